/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job starts again on a node that has yet to end its former start. Method: several nodes in
 * one process (nodes.h), of which one's ranks go in the middle of a round and are back at once.
 */
#include "tests/unit/zero/across.h"

/* Of a node's daemon: each holds the port of the store, if it serves one. */
static uint32_t workers_of(uint32_t place)
{
	uint32_t count = 0;

	for (const struct net_worker *worker = net.workers; worker; worker = worker->next)
		count += worker->place == place && worker->state == NET_WORKER_UP;
	return count;
}

/* Rank 0 goes while its node waits for a round, and is back before that has ended; the other node's
 * rank of the former start lives on. The new start's worker finds the port free. */
Test(across_again, a_start_waits_for_the_round_of_the_former_one)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct attach_options options = {
			.incarnation = "run.1",
			.world = 2,
			.local = 1,
			.config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
		};
		struct actor former;

		trained(2, seed, "01");
		actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
		for (uint64_t i = 0; i < seed; i++)
			nodes_turn();
		actor_leave(&ranks.actors[0], false);
		cr_assert_eq(actor_attach(&net.nodes[0], &ranks.actors[0], &options), 0, "%s",
		             ranks.actors[0].text.chars);
		model_layout(&ranks.actors[0]);
		actor_start(&ranks.actors[0], 0, zero_materialize, &nodes_place);
		for (uint32_t i = 0; i < 60; i++) {
			cr_assert_leq(workers_of(0), 1, "seed %llu", (unsigned long long)seed);
			nodes_turn();
		}
		cr_expect_eq(workers_of(0), 1);
		former = ranks.actors[1];
		actor_leave(&former, false);
		options.rank = 1;
		cr_assert_eq(actor_attach(&net.nodes[1], &ranks.actors[1], &options), 0, "%s",
		             ranks.actors[1].text.chars);
		model_layout(&ranks.actors[1]);
		actor_start(&ranks.actors[1], 0, zero_materialize, &nodes_place);
		for (uint32_t i = 0; i < 2; i++)
			cr_expect_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s",
			             ranks.actors[i].text.chars);
		end(true);
	}
}
