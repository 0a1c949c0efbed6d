/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every strategy has its name, and divides what its row of the table says; what is none has
 * no name and divides nothing.
 * Method: all of them, and the first number behind.
 */
#include <criterion/criterion.h>

#include "common/base/cleanup.h"
#include "common/wire/strategy.h"

static const struct {
	const char *name;
	bool divides_state, divides_grads, divides_params;
} rows[] = {
	[ZI_STRATEGY_DEFAULT] = { "ddp" },
	[ZI_STRATEGY_DP] = { "dp" },
	[ZI_STRATEGY_DDP] = { "ddp" },
	[ZI_STRATEGY_ZERO1] = { "zero1", true },
	[ZI_STRATEGY_ZERO2] = { "zero2", true, true },
	[ZI_STRATEGY_ZERO3] = { "zero3", true, true, true },
	[_ZI_STRATEGY_COUNT] = { "?" },
};

Test(strategy, each_has_its_name_and_divides_what_its_row_says)
{
	cr_assert_eq(ZI_COUNT_OF(rows), _ZI_STRATEGY_COUNT + 1);
	for (uint32_t i = 0; i < ZI_COUNT_OF(rows); i++) {
		cr_expect_str_eq(zi_strategy_name(i), rows[i].name);
		cr_expect_eq(zi_strategy_divides_state(i), rows[i].divides_state, "%u", i);
		cr_expect_eq(zi_strategy_divides_grads(i), rows[i].divides_grads, "%u", i);
		cr_expect_eq(zi_strategy_divides_params(i), rows[i].divides_params, "%u", i);
	}
}
