/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of collectives on the socket. Floor 6, shard thread. */
#pragma once

#include <stdbool.h>

struct sess;
struct zi_message_header;

/* A message as it came, of any shape: COLL_OPEN of a client that makes collectives by another
 * version is answered by both numbers, whatever it looks like. Return: whether it was. */
bool sess_refuse_coll_version(struct sess *session, const struct zi_message_header *header);

/* COLL_OPEN, COLL_GROUP, COLL_GROUP_FREE, COLL_FAIL, COLL_ABORT. */
void sess_request_coll(struct sess *session, const struct zi_message_header *header);
