/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on the socket about GPU memory (wire/gpu.h). Floor 6, shard thread. */
#pragma once

#include "common/base/text.h"

struct sess;
struct zi_message_header;

/* GPU_OPEN, answered when the chunks are made, and GPU_CHUNKS. -EPROTO: the session must end, @text
 * says why. */
int sess_request_gpu(struct sess *session, const struct zi_message_header *header,
                     struct zi_text *text);
/* The session ends: a GPU_OPEN that is pending is over, without an answer; the session's arena
 * lives on as long as it must. */
void sess_gpu_end(struct sess *session);
/* All GPUs were opened (tier_arenas_watch()): those that waited for it go on. @arg: the shard. */
void sess_gpu_ready(void *arg);
