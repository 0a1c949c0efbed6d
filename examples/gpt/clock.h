/* SPDX-License-Identifier: Apache-2.0 */
/* Time spans, for the progress line only. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t gpt_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail for this clock. */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
