/* SPDX-License-Identifier: Apache-2.0 */
/* zinf-gpt is read through a pipe; see gpt_run.h. */
#include "bench/gpt_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int gpt_run(const char *program, const char *words, gpt_line_fn line, void *arg)
{
	char command[1024], text[2048];
	FILE *pipe;

	(void)snprintf(command, sizeof command, "exec '%.*s/../bin/zinf-gpt' %s --json </dev/null",
	               (int)(strrchr(program, '/') - program), program, words);
	pipe = popen(command, "re");
	if (!pipe) {
		fprintf(stderr, "bench: %s: %s\n", command, strerror(errno));
		return -1;
	}
	while (fgets(text, sizeof text, pipe)) {
		json_t *object = json_loads(text, 0, NULL);

		if (object)
			line(arg, object);
		json_decref(object);
	}
	if (pclose(pipe)) {
		fprintf(stderr, "bench: zinf-gpt failed: %s\n", command);
		return -1;
	}
	return 0;
}
