/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of requests share: their answers. Floor 6, shard thread. */
#pragma once

#include <stdint.h>

struct sess;
struct tier_segment;
struct zero_op;
struct zero_rank;
struct zi_message_header;

/* After an answer: one that did not go out ends the session. */
void sess_sent(struct sess *session, int r);
/* Answers ERROR. */
void sess_refuse(struct sess *session, uint32_t sequence, int error, const char *text);
/* Before a descriptor is sent: its holder is written down. */
int sess_hold(struct sess *session, struct tier_segment *segment);
/* Answers that what was asked for is gone already. */
int sess_reply_over(struct sess *session);

/* Zero's handler of a request. */
typedef void (*sess_submit_fn)(struct zero_rank *rank, struct zero_op *op);
/* Answers a request that has succeeded: 0, or why that did not go out. */
typedef int (*sess_reply_fn)(struct sess *session);

/* Hands session->request, which is filled, to zero; it is answered when that is done: ERROR, or
 * what @reply says; NULL: DONE. */
void sess_submit_request(struct sess *session, const struct zi_message_header *header,
                         sess_submit_fn submit, sess_reply_fn reply);
