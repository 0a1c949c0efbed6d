/* SPDX-License-Identifier: Apache-2.0 */
/* What a test judges in place of time: beside other programs that grows, this does not. */
#pragma once

#include <stdint.h>
#include <time.h>

#include "common/base/clock.h"

/* CPU time that all threads of this process have had. */
static inline uint64_t process_cpu_ns(void)
{
	struct timespec time = { 0 };

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time); /* It is always there. */
	return (uint64_t)time.tv_sec * ZI_NS_PER_S + (uint64_t)time.tv_nsec;
}
