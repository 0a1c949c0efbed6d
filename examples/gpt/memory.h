/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process had, for the progress lines. */
#pragma once

#include <stdint.h>

/* The most that lay in memory at once of all that it has mapped, what it shares with zinfd included
 * (but for huge pages of the pool, which the kernel does not count). 0: unknown. */
uint64_t gpt_peak_bytes(void);
