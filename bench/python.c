/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the interpreter; see python.h. */
#include "bench/python.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* As bench.mk makes it. */
#define ENVIRONMENT "zinf/bench-env/bin/python"

const char *bench_python(void)
{
	const char *chosen = getenv("BENCH_PYTHON");
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	static char path[400];

	if (chosen)
		return chosen;
	if (cache)
		(void)snprintf(path, sizeof path, "%s/" ENVIRONMENT, cache);
	else
		(void)snprintf(path, sizeof path, "%s/.cache/" ENVIRONMENT, home ? home : "");
	if (!access(path, X_OK))
		return path;
	return "/usr/bin/python3";
}
