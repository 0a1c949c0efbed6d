/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything goes that is printed: what ranks print, and the supervisor's own sentences.
 * Owner: the supervisor's thread. */
#pragma once

#include "zctl/launch/sink.h"

struct launch_voice {
	struct launch_sink out, err;
	struct launch_sink *words; /* of them, where sentences go; stderr's */
};

/* Our stdout and stderr. @has_room: of either, as in sink.h. */
void launch_voice_init(struct launch_voice *voice, struct zi_loop *loop, launch_sink_fn has_room,
                       void *arg);
void launch_voice_deinit(struct launch_voice *voice);
/* A sentence on a line of its own. */
void launch_voice_say(struct launch_voice *voice, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Whether all of it has been taken. */
bool launch_voice_is_empty(const struct launch_voice *voice);
