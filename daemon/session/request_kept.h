/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on the socket for what a job keeps: blobs and snapshots. Floor 6, shard thread. */
#pragma once

#include <stdint.h>

struct sess;
struct zi_load;
struct zi_snapshot;

/* BLOB_GET: the blob that this rank committed, in as many messages as it takes. */
void sess_blob_get(struct sess *session, uint32_t sequence);
/* LOAD: the job begins with a snapshot; answered at once. */
void sess_load(struct sess *session, const struct zi_load *message);
/* SNAPSHOT: answered when it is kept. */
void sess_snapshot(struct sess *session, const struct zi_snapshot *message);
