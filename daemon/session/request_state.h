/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about optimizer state. Floor 6, shard thread. */
#pragma once

struct sess;
struct zi_message_header;

/* STATE_OPEN, STATE_READ, STATE_WRITE, STATE_COUNT, checked. Answered here, or later. */
void sess_request_state(struct sess *session, const struct zi_message_header *header);
