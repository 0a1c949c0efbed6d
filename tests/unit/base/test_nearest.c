/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a guess is made where it helps, and only there. Method: a table of slips and of words that
 * mean nothing. */
#include <criterion/criterion.h>

#include "common/base/cleanup.h"
#include "common/base/nearest.h"

Test(nearest, a_name_is_guessed_only_when_it_is_near)
{
	static const char *const known[] = { "ranks", "heads",    "layers",           "dp",
		                             "zero1", "WarmupLR", "offload-optimizer" };
	static const struct {
		const char *wanted, *guess; /* NULL: none */
	} cases[] = {
		{ "rank", "ranks" },
		{ "arnks", "ranks" },
		{ "zero9", "zero1" },
		{ "LAYERS", "layers" },
		{ "warmuplr", "WarmupLR" },
		{ "offload_optimiser", "offload-optimizer" },
		{ "offloadopt", NULL },
		{ "bogus", NULL },
		{ "sdma_allgather", NULL },
		{ "xy", NULL },
		{ "d", NULL },
		{ "", NULL },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct zi_nearest nearest = { .wanted = cases[i].wanted };
		const char *guess;

		cr_assert_null(zi_nearest_name(&nearest), "nothing was offered");
		for (size_t k = 0; k < ZI_COUNT_OF(known); k++)
			zi_nearest_offer(&nearest, known[k]);
		guess = zi_nearest_name(&nearest);
		if (cases[i].guess)
			cr_expect(guess && !strcmp(guess, cases[i].guess), "%s: %s",
			          cases[i].wanted, guess ? guess : "none");
		else
			cr_expect_null(guess, "%s: %s", cases[i].wanted, guess);
	}
}

Test(nearest, a_name_that_is_too_long_is_near_to_none)
{
	char name[ZI_NEAREST_BYTES + 2];
	struct zi_nearest nearest = { .wanted = name };

	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	zi_nearest_offer(&nearest, name);
	cr_expect_null(zi_nearest_name(&nearest));
}
