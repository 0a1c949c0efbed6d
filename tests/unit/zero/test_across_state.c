/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job over several nodes refuses each call that reads, writes or keeps optimizer state, on
 * every node, with a sentence that says so, and goes on. Method: several zeros in one process
 * (nodes.h); the rank of each node calls alone, so that no refusal waits for another rank.
 */
#include "daemon/zero/state/state.h"
#include "tests/unit/zero/across.h"

TestSuite(across_state, .timeout = 60);

static void expect_refused(struct actor *actor, const char *words, int got)
{
	cr_expect_eq(got, -EOPNOTSUPP, "%d, not -EOPNOTSUPP", got);
	cr_expect_not_null(strstr(actor->text.chars, words), "'%s' lacks '%s'", actor->text.chars,
	                   words);
}

struct refusal {
	call_fn function;
	struct zero_op op;
	const char *words;
};

static const struct refusal refusals[] = {
	{ zero_state_open, { 0 }, "over several nodes cannot be read or written" },
	{ zero_state_read,
	  { .unit = 1, .state = { .kind = ZI_STATE_FIRST, .count = 1 } },
	  "over several nodes cannot be read" },
	{ zero_state_write,
	  { .unit = 1, .state = { .kind = ZI_STATE_FIRST, .count = 1 } },
	  "over several nodes cannot be written" },
	{ zero_state_count,
	  { .state = { .update_count = 7, .betas = { 0.9, 0.999 } } },
	  "over several nodes cannot be written" },
	{ zero_param_write_end,
	  { .unit = 1, .keeps_state = true },
	  "optimizer state is not kept in a job over several nodes" },
};

Test(across_state, each_call_is_refused_on_every_node_and_the_job_goes_on)
{
	trained(3, 5, "0112");
	for (uint32_t i = 0; i < ranks.world; i++)
		for (size_t k = 0; k < ZI_COUNT_OF(refusals); k++) {
			struct actor *actor = &ranks.actors[i];
			int r = actor_call(actor, refusals[k].function, &refusals[k].op);

			expect_refused(actor, refusals[k].words, r);
		}
	/* A write that was not begun for its state ends without it. */
	cr_assert_eq(actor_unit(&ranks.actors[3], zero_param_write_begin, 1), 0);
	expect_refused(&ranks.actors[3], "end the write without that",
	               actor_call(&ranks.actors[3], zero_param_write_end,
	                          &(struct zero_op){ .unit = 1, .root = 3, .keeps_state = true }));
	cr_assert_eq(
		nodes_all(&ranks, zero_param_write_end, &(struct zero_op){ .unit = 1, .root = 3 }),
		0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", ranks.actors[0].text.chars);
	end(true);
}
