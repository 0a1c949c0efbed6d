/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whoever looks sees that a large store is being made, and a small one makes one line.
 * Method: steps at times of the test. */
#include <criterion/criterion.h>

#include "common/base/clock.h"
#include "daemon/progress.h"

#define TOTAL 1000u

static uint32_t lines(struct progress *progress, uint64_t ns_per_step)
{
	uint32_t count = 0;

	for (uint64_t done = 1; done <= TOTAL; done++)
		count += (progress_step(progress, done, TOTAL, done * ns_per_step) &
		          PROGRESS_LINE) != 0;
	cr_assert_eq(progress->percent, 100);
	return count;
}

Test(progress, first_step_is_told_to_all)
{
	struct progress progress = { .is_terminal = false };

	cr_assert_eq(progress_step(&progress, 1, TOTAL, 5), PROGRESS_BEGUN | PROGRESS_MANAGER);
	cr_assert_eq(progress_step(&progress, 2, TOTAL, 6), 0);
	cr_assert_eq(progress_step(&progress, 10, TOTAL, 7), PROGRESS_MANAGER, "a percent");
}

Test(progress, slow_disk_has_a_line_for_each_tenth_and_a_quick_one_none)
{
	struct progress slow = { .is_terminal = false };
	struct progress quick = { .is_terminal = false };

	cr_assert_eq(lines(&slow, ZI_NS_PER_S), 10);
	cr_assert_eq(lines(&quick, 1000), 0);
}

Test(progress, line_is_no_sooner_than_a_second_after_the_one_before)
{
	struct progress progress = { .is_terminal = false };

	/* 5 s in all. */
	cr_assert_leq(lines(&progress, 5 * ZI_NS_PER_MS), 5);
	cr_assert_gt(progress.line_percent, 0);
}

Test(progress, terminal_has_a_line_that_changes_with_each_percent)
{
	struct progress progress = { .is_terminal = true };
	uint32_t bars = 0;

	for (uint64_t done = 1; done <= TOTAL; done++) {
		uint32_t news = progress_step(&progress, done, TOTAL, done * ZI_NS_PER_S);

		cr_assert_not(news & PROGRESS_LINE);
		bars += (news & PROGRESS_BAR) != 0;
	}
	cr_assert_eq(bars, 100);
}
