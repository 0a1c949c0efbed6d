/* SPDX-License-Identifier: Apache-2.0 */
/* See program.h. Floor 5, any thread. */
#include "daemon/zero/across/talk/program.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"

#define NET_PROGRAM "zinf-net"

/* Documented in the header. */
int net_program(char *path, size_t capacity, struct zi_text *text)
{
	ssize_t bytes = readlink("/proc/self/exe", path, capacity - sizeof(NET_PROGRAM) - 1);
	char *slash;

	if (bytes <= 0)
		return err_origin(zi_text_error(text, -ENOENT,
		                                "where zinfd itself lies is not "
		                                "known: /proc is needed"));
	path[bytes] = '\0';
	slash = strrchr(path, '/');
	assert(slash);
	memcpy(slash + 1, NET_PROGRAM, sizeof(NET_PROGRAM));
	return 0;
}
