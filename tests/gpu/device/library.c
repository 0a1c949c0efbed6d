/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for a library of NVIDIA; see library.h. */
#include "tests/gpu/device/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/cleanup.h"

const char *const library_cublas_names[] = { "libcublas.so.13", "libcublas.so.12",
	                                     "libcublas.so.11", "libcublas.so", NULL };
const char *const library_nccl_names[] = { "libnccl.so.2", "libnccl.so", NULL };

/* Where toolkits and packages of Python put libraries, as patterns of glob(). %s: $VIRTUAL_ENV,
 * $CONDA_PREFIX, $HOME/.local. The last star is the library's package. */
static const char *const places[] = {
	"/usr/local/cuda*/lib64",
	"/usr/local/cuda*/targets/*/lib",
	"/opt/cuda/lib64",
	"/usr/local/lib/python3*/*-packages/nvidia/*/lib",
	"/usr/lib/python3*/*-packages/nvidia/*/lib",
	"/opt/*/lib/python3*/site-packages/nvidia/*/lib",
};
static const char *const roots[] = { "VIRTUAL_ENV", "CONDA_PREFIX", "HOME" };

static bool opens(const char *path)
{
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);

	if (library)
		(void)dlclose(library); /* It was only asked for. */
	return library;
}

/* Return: a library of this name lies where the pattern says, and opens. */
static bool look(const char *folder, const char *name, char *ret_path, size_t capacity)
{
	char pattern[PATH_MAX];
	glob_t found;
	bool is_found = false;

	(void)snprintf(pattern, sizeof(pattern), "%.3000s/%s", folder, name);
	if (glob(pattern, 0, NULL, &found))
		return false;
	for (size_t i = found.gl_pathc; i-- > 0 && !is_found;) {
		is_found = opens(found.gl_pathv[i]);
		if (is_found)
			(void)snprintf(ret_path, capacity, "%s", found.gl_pathv[i]);
	}
	globfree(&found);
	return is_found;
}

static bool look_everywhere(const char *name, char *ret_path, size_t capacity)
{
	char folder[PATH_MAX];

	for (size_t i = 0; i < ZI_COUNT_OF(roots); i++) {
		const char *root = getenv(roots[i]);

		if (!root || !root[0])
			continue;
		(void)snprintf(folder, sizeof(folder),
		               "%.2000s%s/lib/python3*/site-packages/nvidia/*/lib", root,
		               i + 1 == ZI_COUNT_OF(roots) ? "/.local" : "");
		if (look(folder, name, ret_path, capacity))
			return true;
	}
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++)
		if (look(places[i], name, ret_path, capacity))
			return true;
	return false;
}

void library_find(const char *given, const char *const *names, char *ret_path, size_t capacity)
{
	if (given) {
		(void)snprintf(ret_path, capacity, "%s", given);
		return;
	}
	for (const char *const *name = names; *name; name++)
		if (opens(*name)) {
			(void)snprintf(ret_path, capacity, "%s", *name);
			return;
		}
	for (const char *const *name = names; *name; name++)
		if (look_everywhere(*name, ret_path, capacity))
			return;
	ret_path[0] = '\0';
}
