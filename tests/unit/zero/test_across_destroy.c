/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job is destroyed on each of its nodes, whatever the others do meanwhile. Method: several
 * nodes in one process (nodes.h), whose last ranks ask for it right after a step, some turns apart,
 * while parameters are read ahead.
 */
#include "tests/unit/zero/shards.h"

static struct shards_run drawn_run(uint64_t seed)
{
	uint32_t offload = seed % 5 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU;
	struct shards_run run = { .places = seed % 2 ? "01" : "012",
		                  .config = model_config(ZI_DTYPE_BF16, offload),
		                  .training = { .strategy = ZI_STRATEGY_ZERO3 } };

	if (offload == ZI_OFFLOAD_NVME) {
		run.config.offload_param = seed % 7 == 0 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME;
		run.config.staging_bytes = 16 * MIB;
	}
	return run;
}

static void some_turns(uint32_t most)
{
	for (uint32_t i = net_draw(most); i > 0; i--)
		nodes_turn();
}

/* What other ranks' nodes hold is asked for, and maybe on its way for long. */
static void read_ahead(uint32_t held)
{
	if (held < net.count)
		nodes_hold(held, (held + 1) % net.count, true);
	for (uint32_t i = 0; i < ranks.world; i++)
		for (uint32_t unit = 0; unit < UNITS && net_draw(2); unit++)
			cr_assert_eq(call_unit(&ranks.actors[i], zero_prefetch, unit), 0);
}

static void destroy_all(uint32_t held)
{
	uint32_t first = net_draw(ranks.world);

	for (uint32_t i = 0; i < ranks.world; i++) {
		some_turns(i ? 100 : 8);
		actor_start(&ranks.actors[(first + i) % ranks.world], 0, zero_job_destroy, NULL);
	}
	some_turns(200);
	if (held < net.count)
		nodes_hold(held, (held + 1) % net.count, false);
	for (uint32_t i = 0; i < ranks.world; i++) {
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
		ranks.actors[i].rank = NULL; /* It has left. */
	}
}

Test(across_destroy, each_node_deletes_its_part, .timeout = 120)
{
	struct zi_step_options options = model_options();

	each_draw(seed, 14) {
		struct shards_run run = drawn_run(seed);
		uint32_t held;

		shards_begin(&run, seed);
		shards_write();
		cr_assert_eq(shards_step(1, &options), 0, "%s", ranks.actors[0].text.chars);
		held = seed / 2 % 2 ? (uint32_t)(seed / 4 % net.count) : UINT32_MAX;
		if (seed % 16)
			read_ahead(held);
		destroy_all(held);
		nodes_settle();
		for (uint32_t i = 0; i < net.count; i++)
			cr_assert_null(job_of(i), "node %u", i);
		shards_end(true);
	}
}

/* What was read ahead from a node that has just deleted its part does not come. */
Test(across_destroy, nothing_is_waited_for_of_a_part_that_is_deleted, .timeout = 120)
{
	each_draw(seed, 12) {
		struct shards_run run = drawn_run(seed | 1);

		shards_begin(&run, seed);
		shards_write();
		nodes_hold(0, 1, true);
		for (uint32_t unit = 0; unit < UNITS; unit++)
			cr_assert_eq(call_unit(&ranks.actors[0], zero_prefetch, unit), 0);
		actor_start(&ranks.actors[1], 0, zero_job_destroy, NULL);
		cr_assert_eq(nodes_wait(&ranks.actors[1], 0), 0, "%s", ranks.actors[1].text.chars);
		ranks.actors[1].rank = NULL;
		cr_assert_gt(job_of(0)->busy_count, 0);
		nodes_hold(0, 1, seed % 2);
		actor_start(&ranks.actors[0], 0, zero_job_destroy, NULL);
		some_turns(20);
		nodes_hold(0, 1, false);
		cr_assert_eq(nodes_wait(&ranks.actors[0], 0), 0, "%s", ranks.actors[0].text.chars);
		ranks.actors[0].rank = NULL;
		shards_end(true);
	}
}
