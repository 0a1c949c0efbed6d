/* SPDX-License-Identifier: Apache-2.0 */
/* See program.h. Floor 5, any thread. */
#include "daemon/zero/across/talk/program.h"

#include "common/base/err.h"
#include "daemon/worker/spawn.h"

/* Documented in the header. */
int net_program(char *path, size_t capacity, struct zi_text *text)
{
	return err_trace(spawn_beside("zinf-net", path, capacity, text));
}
