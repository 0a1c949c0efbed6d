/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of what nodes offer the right commit is chosen, and what it lacks is told. Method: offers
 * made by hand; test_resume.c has drawn histories.
 */
#include <criterion/criterion.h>

#include "daemon/zero/across/agree/resume.h"

#define BITS 67u /* more than a word */

static const uint64_t all[2] = { UINT64_MAX, UINT64_MAX };
static const uint64_t low[2] = { UINT64_MAX, 0 };
static const uint64_t high[2] = { 0, UINT64_MAX };
static const uint64_t none[2] = { 0, 0 };

static struct resume_choice chosen(int wanted, const struct resume_offer *offers, uint32_t count)
{
	struct resume_choice choice = { .number = 77 };

	cr_assert_eq(resume_choose(offers, count, BITS, &choice), wanted);
	return choice;
}

Test(zero_resume_choice, nothing_that_is_offered_is_no_choice)
{
	cr_assert_eq(chosen(RESUME_E_NONE, NULL, 0).number, 77, "left alone");
}

Test(zero_resume_choice, newest_that_is_whole_goes_before_newer_parts)
{
	const struct resume_offer offers[] = {
		{ .number = 9, .line = 1, .step = 9, .node = 0, .bits = low },
		{ .number = 8, .line = 1, .step = 8, .node = 0, .bits = low },
		{ .number = 8, .line = 1, .step = 8, .node = 63, .bits = high },
		{ .number = 8, .line = 2, .step = 8, .node = 5, .bits = low },
		{ .number = 7, .line = 1, .step = 7, .node = 5, .bits = all },
	};
	struct resume_choice choice = chosen(0, offers, 5);

	cr_assert_eq(choice.number, 8);
	cr_assert_eq(choice.line, 1);
	cr_assert_eq(choice.step, 8);
	cr_assert_eq(choice.node_mask, 1ull << 63 | 1);
}

Test(zero_resume_choice, lines_of_one_number_are_told_apart_by_who_is_here)
{
	struct resume_offer offers[] = {
		{ .number = 8, .line = 1, .step = 8, .node = 0, .bits = all },
		{ .number = 8, .line = 1, .step = 8, .node = 1, .bits = all },
		{ .number = 8, .line = 2, .step = 8, .node = 2, .bits = all },
	};

	cr_assert_eq(chosen(0, offers, 3).line, 1);
	offers[1].line = 3;
	cr_assert_eq(chosen(0, offers, 3).line, 3, "then by their own number");
}

Test(zero_resume_choice, what_nobody_has_is_counted_of_the_newest)
{
	const struct resume_offer offers[] = {
		{ .number = 7, .line = 1, .step = 7, .node = 1, .bits = none },
		{ .number = 8, .line = 1, .step = 8, .node = 1, .bits = low },
	};
	struct resume_choice choice = chosen(RESUME_E_INCOMPLETE, offers, 2);

	cr_assert_eq(choice.number, 8);
	cr_assert_eq(choice.missing_count, BITS - 64);
	cr_assert_eq(choice.missing_first, 64);
}

/* Nobody needs anything of it: better than a part, and worse than anything whole. */
Test(zero_resume_choice, nothing_committed_is_whole)
{
	const struct resume_offer offers[] = {
		{ .number = 0, .line = 0, .step = -1, .node = 1, .bits = none },
		{ .number = 1, .line = 4, .step = 0, .node = 1, .bits = low },
		{ .number = 1, .line = 4, .step = 0, .node = 2, .bits = high },
	};

	cr_assert_eq(chosen(0, offers, 3).number, 1);
	cr_assert_eq(chosen(0, offers, 2).step, -1);
}
