/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: over nodes the rank that died is named, not a rank that left because of it. Method: several
 * zeros in one process (nodes.h). A rank dies around the end of a step, when its own node breaks
 * the group only after that step; or the collectives, which hear of a death first, are broken.
 */
#include "daemon/coll/coll.h"
#include "tests/unit/zero/across_train.h"

/* Its node tells of the death when the step is written. The other rank of that node hears of it
 * from the collectives and leaves. */
Test(across_cause, a_death_in_a_step_is_told_before_ranks_that_left_because_of_it)
{
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct train what = wanted("0011", ZI_OFFLOAD_CPU);

		begin_train(&what, seed);
		cr_assert_eq(train_gradients(1), 0, "%s", ranks.actors[0].text.chars);
		train_step_start(1);
		for (uint64_t i = 0; i < seed; i++)
			nodes_turn();
		actor_leave(&ranks.actors[3], false);
		for (uint32_t i = net_draw(3); i > 0; i--)
			nodes_turn();
		actor_leave(&ranks.actors[2], true);
		all_hear(-EPIPE, "rank 3 (pid");
		train_leave(false);
		train_deinit();
	}
}

/* The same, with a rank of a third node that waits for the one that left. */
Test(across_cause, a_death_is_told_by_who_waits_for_a_rank_that_left)
{
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct train what = wanted("0112", ZI_OFFLOAD_CPU);

		begin_train(&what, seed);
		cr_assert_eq(train_gradients(1), 0, "%s", ranks.actors[0].text.chars);
		train_step_start(1);
		for (uint64_t i = 0; i < seed; i++)
			nodes_turn();
		actor_leave(&ranks.actors[2], false);
		actor_leave(&ranks.actors[1], true);
		all_hear(-EPIPE, "rank 2 (pid");
		train_leave(false);
		train_deinit();
	}
}

/* The collectives of node 0 have heard of the death; what else it hears of it is under way. */
Test(across_cause, a_rank_that_leaves_broken_collectives_is_not_the_cause)
{
	static const struct zi_text death = { "rank 3 (pid 9) died (on other)" };

	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct coll *coll;

		begin(2, seed, "0011");
		cr_assert_eq(nodes_all(&ranks, zero_coll_open,
		                       &(struct zero_op){ .bytes = 2 * MIB,
		                                          .rendezvous_host = "first",
		                                          .rendezvous_port = 29501,
		                                          .interface = "",
		                                          .token = "" }),
		             0, "%s", ranks.actors[0].text.chars);
		nodes_layout(&ranks);
		cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
		coll = node_job(&net.nodes[0], "train")->collectives.coll;
		actor_start(&ranks.actors[1], 0, zero_barrier, NULL);
		for (uint32_t i = net_draw(20); i > 0; i--)
			nodes_turn();
		coll_break(coll, &coll->groups[ZI_GROUP_WORLD], -EPIPE, COLL_NOBODY, &death);
		actor_leave(&ranks.actors[0], true);
		cr_expect_eq(nodes_wait(&ranks.actors[1], 0), -EPIPE);
		cr_expect(strstr(ranks.actors[1].text.chars, "rank 3 (pid 9) died"), "%s",
		          ranks.actors[1].text.chars);
		nodes_leave(&ranks, false);
		nodes_settle();
		while (!zi_list_is_empty(&net.nodes[0].zero->fars))
			nodes_turn(); /* It may serve the store. */
		end(false);
	}
}
