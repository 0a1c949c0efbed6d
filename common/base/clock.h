/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds; deadlines are absolute (ZI_DEADLINE_NEVER: none). Floor 0. */
#pragma once

#include <stdint.h>

#define ZI_NS_PER_US      1000ull
#define ZI_NS_PER_MS      1000000ull
#define ZI_NS_PER_S       1000000000ull
#define ZI_DEADLINE_NEVER UINT64_MAX

uint64_t zi_clock_now_ns(void);
/* now + @timeout_ns, saturating at ZI_DEADLINE_NEVER. */
uint64_t zi_clock_deadline_ns(uint64_t timeout_ns);
/* Milliseconds until @deadline_ns for poll(): rounded up, 0 when past, -1 for never. */
int zi_clock_poll_ms(uint64_t deadline_ns);
