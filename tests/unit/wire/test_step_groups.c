/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a step gives its groups of parameters is believed only where it is finite and not
 * negative, and in the places that exist. Method: the check alone. */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/base/text.h"
#include "common/wire/check.h"

static struct zi_text text;

static void expect_text(const char *word)
{
	cr_expect_not_null(strstr(text.chars, word), "'%s' is not in '%s'", word, text.chars);
}

Test(step_groups, groups_of_a_step_are_looked_at_one_by_one)
{
	const double bad[] = { NAN, -1, 1e39, INFINITY };
	struct zi_step_group groups[3] = { { .lr = 1 }, { .weight_decay = 1 }, { .lr = 0 } };

	cr_expect_eq(zi_check_step_groups(groups, 3, &text), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		groups[1].lr = bad[i];
		cr_expect_eq(zi_check_step_groups(groups, 1, &text), 0, "so many alone");
		cr_expect_eq(zi_check_step_groups(groups, 3, &text), -EINVAL);
		expect_text("group 1 of a step has lr ");
		groups[1].lr = 0;
		groups[2].weight_decay = bad[i];
		cr_expect_eq(zi_check_step_groups(groups, 3, NULL), -EINVAL);
		groups[2].weight_decay = 0;
	}
	groups[0].reserved[1] = 1;
	cr_expect_eq(zi_check_step_groups(groups, 3, &text), -EPROTO);
	expect_text("group 0 of a step: reserved words");
}
