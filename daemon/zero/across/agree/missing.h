/* SPDX-License-Identifier: Apache-2.0 */
/* A commit that is not whole, in words: what is missing, who had it, what helps. Pure. Floor 5, any
 * thread. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct catalog_placement;
struct zero_layout;

struct missing {
	const char *job;
	const struct zero_layout *layout;
	const struct catalog_placement *placement; /* of the commit */
	uint32_t world;                            /* of it */
	int64_t step;
	uint64_t count, subgroup; /* subgroups; the first one, counted over all units */
};

void missing_say(const struct missing *missing, struct zi_text *ret_text);
