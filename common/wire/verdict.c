/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a verdict; see verdict.h. Floor 1, the thread that owns the region. */
#include "common/wire/verdict.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/assert.h"

/* See verdict.h. */
void zi_verdict_give(struct zi_line *verdict, uint32_t error)
{
	assert(error > 0);
	zi_line_store(verdict, error);
	/* Who is about to sleep hands the word that it saw to the kernel, which compares it. */
	(void)syscall(SYS_futex, &verdict->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
