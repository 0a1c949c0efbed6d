/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on the socket about the model. Floor 6, shard thread. */
#pragma once

#include "common/base/text.h"

struct sess;
struct zi_layout;
struct zi_materialize;
struct zi_message_header;

/* LAYOUT: one more part of the stream. -EPROTO: the session must end, @text says why. */
int sess_take_layout(struct sess *session, const struct zi_layout *layout, struct zi_text *text);
void sess_materialize(struct sess *session, const struct zi_materialize *message);
/* PARAM_WRITE_BEGIN, PARAM_WRITE_END. */
void sess_param_write(struct sess *session, const struct zi_message_header *header);
