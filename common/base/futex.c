/* SPDX-License-Identifier: Apache-2.0 */
/* See futex.h. Floor 0. */
#include "common/base/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* See futex.h. Not private: its users share words with other processes. */
void zi_futex_wake(const uint32_t *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); /* Nobody sleeps. */
}
