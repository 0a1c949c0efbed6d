/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a verdict; see verdict.h. Floor 1, the thread that owns the region. */
#include "common/wire/verdict.h"

#include "common/base/assert.h"
#include "common/base/futex.h"

/* See verdict.h. */
void zi_verdict_give(struct zi_line *verdict, uint32_t error)
{
	assert(error > 0);
	zi_line_store(verdict, error);
	zi_futex_wake(&verdict->value);
}
