/* SPDX-License-Identifier: Apache-2.0 */
/* Which known name somebody may have meant: Levenshtein's distance, without regard to case. Floor
 * 0, any thread. */
#pragma once

#include <stdint.h>

/* A longer name is just far from every other. */
#define ZI_NEAREST_BYTES 64u

/* The nearest of some names, offered one by one. Zeroed but for `wanted`. */
struct zi_nearest {
	const char *wanted;
	const char *name; /* NULL: none was offered */
	uint32_t distance;
};

/* Keeps @name if it is nearer to what is wanted than what was offered before; of equally near ones
 * the first. @name: the caller's, as long as @nearest is read. */
void zi_nearest_offer(struct zi_nearest *nearest, const char *name);
/* The name worth a "did you mean". NULL: no name is near, and a guess would mislead. */
const char *zi_nearest_name(const struct zi_nearest *nearest);
