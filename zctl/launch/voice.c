/* SPDX-License-Identifier: Apache-2.0 */
/* Our stdout and stderr (voice.h). */
#include "zctl/launch/voice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text.h"

/* See voice.h, as are the others. */
void launch_voice_init(struct launch_voice *voice, struct zi_loop *loop, launch_sink_fn has_room,
                       void *arg)
{
	launch_sink_init(&voice->out, loop, STDOUT_FILENO);
	launch_sink_init(&voice->err, loop, STDERR_FILENO);
	voice->out.has_room = voice->err.has_room = has_room;
	voice->out.arg = voice->err.arg = arg;
	voice->words =
		launch_sink_is_same(STDOUT_FILENO, STDERR_FILENO) ? &voice->out : &voice->err;
}

void launch_voice_deinit(struct launch_voice *voice)
{
	launch_sink_deinit(&voice->out);
	launch_sink_deinit(&voice->err);
}

void launch_voice_say(struct launch_voice *voice, const char *format, ...)
{
	char line[2 * ZI_TEXT_BYTES];
	va_list arguments;
	size_t bytes;

	va_start(arguments, format);
	(void)vsnprintf(line, sizeof(line) - 1, format, arguments); /* Cut: still a sentence. */
	va_end(arguments);
	bytes = strlen(line);
	line[bytes++] = '\n';
	launch_sink_put(voice->words, "zctl: ", 6);
	launch_sink_put(voice->words, line, bytes);
	launch_sink_flush(voice->words);
}

bool launch_voice_is_empty(const struct launch_voice *voice)
{
	return launch_sink_is_empty(&voice->out) && launch_sink_is_empty(&voice->err);
}
