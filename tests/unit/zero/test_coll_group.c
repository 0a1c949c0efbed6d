/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: groups are made by all ranks alike or by none, run out with a figure, and are used again;
 * who dies or leaves breaks its own at once, named, and no other. Method: ranks of the tests' node
 * call zero; verdicts and boards are looked at here. */
#include "daemon/zero/collectives/far_private.h"
#include "tests/unit/zero/coll.h"

Test(coll_group, groups_have_their_own_boards_and_members_in_order)
{
	struct zero_coll_grouped grouped;

	begin(4);
	cr_assert_eq(open_all(4), 0);
	cr_assert_eq(group_all(4, 0xa), 0, "%s", actors[0].text.chars);
	for (uint32_t i = 0; i < 4; i++) {
		cr_expect_eq(actors[i].calls[0].op.id, 1);
		cr_assert(zero_coll_grouped(actors[i].rank, 1, &grouped));
		cr_expect_eq(grouped.member_count, 2);
		cr_expect_eq(grouped.self, i % 2 ? i / 2 : UINT32_MAX);
		cr_expect_eq(grouped.board != NULL, i % 2 == 1);
		cr_expect_eq(grouped.board_bytes, i % 2 ? zi_board_bytes(2) : 0);
	}
	cr_assert(zero_coll_grouped(actors[1].rank, 1, &grouped));
	cr_expect_neq(grouped.board, opened_of(&actors[0]).board);
	cr_assert_eq(group_all(4, 0x1), 0);
	cr_expect_eq(actors[3].calls[0].op.id, 2);
	end();
}

Test(coll_group, groups_that_cannot_be_are_refused_by_name)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	cr_expect_eq(group_all(2, 0), -EINVAL);
	says(&actors[1], "a group of no ranks");
	cr_expect_eq(group_all(2, 0x5), -EINVAL);
	says(&actors[1], "a group with rank 2: the job has 2 ranks");
	cr_expect_eq(all_call(actors, 2, zero_coll_group,
	                      &(struct zero_op){ .members = { 1, 0, 0, 1ull << 63 } }),
	             -EINVAL);
	says(&actors[1], "rank 255");
	actor_start(&actors[0], 0, zero_coll_group, &(struct zero_op){ .members = { 1 } });
	actor_start(&actors[1], 0, zero_coll_group, &(struct zero_op){ .members = { 3 } });
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(actor_wait(&actors[i], 0), -EINVAL);
		says(&actors[i], "ranks 0, 1 says rank 1 (pid");
		says(&actors[i], "of ranks 0 says rank 0 (pid");
	}
	cr_expect_eq(group_all(2, 0x3), 0);
	cr_expect_eq(actors[0].calls[0].op.id, 1, "the first that was made");
	end();
}

/* Ranks 0 and 1 name different members; rank 2 has not come. */
static void differ(void)
{
	actor_start(&actors[0], 0, zero_coll_group, &(struct zero_op){ .members = { 0x7 } });
	actor_start(&actors[1], 0, zero_coll_group, &(struct zero_op){ .members = { 0x3 } });
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_wait(&actors[i], 0), -EINVAL);
}

/* Else it would wait for its deadline, or be matched with what the others ask for next. */
Test(coll_group, who_comes_late_to_one_that_failed_has_its_error_at_once)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	differ();
	/* The others are ahead already. */
	actor_start(&actors[0], 1, zero_coll_group, &(struct zero_op){ .members = { 0x5 } });
	actor_start(&actors[2], 0, zero_coll_group, &(struct zero_op){ .members = { 0x7 } });
	cr_assert(actors[2].calls[0].is_done, "it waits for nobody");
	cr_expect_eq(actor_wait(&actors[2], 0), -EINVAL);
	says(&actors[2], "ranks 0, 1 says rank 1 (pid");
	says(&actors[2], "of ranks 0, 1, 2 says rank 0 (pid");
	cr_expect_not(actors[0].calls[1].is_done, "that is another one");
	actor_start(&actors[1], 1, zero_coll_group, &(struct zero_op){ .members = { 0x5 } });
	actor_start(&actors[2], 1, zero_coll_group, &(struct zero_op){ .members = { 0x5 } });
	for (uint32_t i = 0; i < 3; i++) {
		cr_expect_eq(actor_wait(&actors[i], 1), 0, "%s", actors[i].text.chars);
		cr_expect_eq(actors[i].calls[1].op.id, 1, "the same number for all");
	}
	end();
}

Test(coll_group, who_did_not_come_in_time_hears_it_when_it_comes)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_call(&actors[0], zero_coll_group,
		                        &(struct zero_op){ .members = { 0x7 },
		                                           .timeout_ns = ZI_NS_PER_MS }),
		             -ETIMEDOUT);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t rank = 1; rank < 3; rank++) {
			cr_expect_eq(actor_call(&actors[rank], zero_coll_group,
			                        &(struct zero_op){ .members = { 0x7 } }),
			             -ETIMEDOUT);
			says(&actors[rank], "rank 2 (pid");
			says(&actors[rank], "did not come");
		}
	cr_expect_eq(group_all(3, 0x7), 0, "%s", actors[1].text.chars);
	end();
}

/* What one rank cannot wish for ends the others' wait for it. */
Test(coll_group, one_that_cannot_be_is_told_to_those_who_wait_for_a_right_one)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	actor_start(&actors[0], 0, zero_coll_group, &(struct zero_op){ .members = { 0x3 } });
	cr_expect_eq(
		actor_call(&actors[1], zero_coll_group, &(struct zero_op){ .members = { 0x8 } }),
		-EINVAL);
	cr_expect_eq(actor_wait(&actors[0], 0), -EINVAL);
	for (uint32_t i = 0; i < 2; i++)
		says(&actors[i], "asks for a group with rank 3: the job has 2 ranks");
	says(&actors[0], "rank 1 (pid");
	cr_expect_eq(group_all(2, 0x3), 0);
	end();
}

Test(coll_group, what_a_rank_refuses_itself_is_told_to_those_who_wait_and_to_who_comes_late)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	actor_start(&actors[0], 0, zero_coll_group, &(struct zero_op){ .members = { 0x3 } });
	actor_start(&actors[1], 0, zero_coll_group,
	            &(struct zero_op){ .refusal = -EINVAL,
	                               .reason = "ranks[2]: rank 1 is named twice" });
	actor_start(&actors[2], 0, zero_coll_group, &(struct zero_op){ .members = { 0x3 } });
	for (uint32_t i = 0; i < 3; i++) {
		cr_expect_eq(actor_wait(&actors[i], 0), -EINVAL);
		says(&actors[i], "rank 1 (pid");
		says(&actors[i], "makes no call of coll_group: ranks[2]: rank 1 is named twice");
	}
	/* One that was missed is the same one, whatever its rank thinks of it. */
	actor_start(&actors[2], 1, zero_coll_group, &(struct zero_op){ .members = { 0x8 } });
	cr_expect_eq(actor_wait(&actors[2], 1), -EINVAL);
	actor_start(&actors[1], 1, zero_coll_group,
	            &(struct zero_op){ .refusal = -EPERM, .reason = "another one" });
	cr_expect_eq(actor_wait(&actors[1], 1), -EINVAL);
	says(&actors[1], "asks for a group with rank 3");
	cr_expect_eq(
		actor_call(&actors[0], zero_coll_group, &(struct zero_op){ .members = { 0x3 } }),
		-EINVAL);
	cr_expect_eq(group_all(3, 0x3), 0);
	end();
}

Test(coll_group, one_that_failed_is_nothing_to_those_who_come_after_a_death)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	differ();
	actor_leave(&actors[2], false);
	cr_expect_eq(
		actor_call(&actors[0], zero_coll_group, &(struct zero_op){ .members = { 0x3 } }),
		-EPIPE);
	says(&actors[0], "rank 2 (pid");
	actors_leave(actors, 3, true);
	attach(3, "run.1");
	cr_assert_eq(open_all(3), 0, "%s", actors[2].text.chars);
	cr_expect_eq(group_all(3, 0x7), 0, "%s", actors[2].text.chars);
	cr_expect_eq(actors[2].calls[0].op.id, 1);
	end();
}

/* A newer incarnation takes over while the former one's late rank lives: neither has the other's.
 */
Test(coll_group, a_newer_incarnation_has_missed_nothing)
{
	struct actor newer[3] = { 0 };

	begin(3);
	cr_assert_eq(open_all(3), 0);
	differ();
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(
			actor_attach(&node, &newer[i],
		                     &(struct attach_options){
					     .incarnation = "run.1",
					     .rank = i,
					     .world = 3,
					     .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				     }),
			0, "%s", newer[i].text.chars);
	cr_expect_eq(
		actor_call(&actors[2], zero_coll_group, &(struct zero_op){ .members = { 0x7 } }),
		-ESTALE);
	cr_assert_eq(all_call(newer, 3, zero_coll_open, &(struct zero_op){ .bytes = ARENA }), 0);
	cr_expect_eq(all_call(newer, 3, zero_coll_group, &(struct zero_op){ .members = { 0x7 } }),
	             0, "%s", newer[2].text.chars);
	actors_leave(newer, 3, true);
	end();
}

/* A worker says that a call was not complete in time, and the boards say that nobody is in it. */
Test(coll_group, a_call_that_is_late_for_nobody_ends_all_the_same)
{
	struct far far = { .group = 1 };

	begin(2);
	cr_assert_eq(open_all(2), 0);
	cr_assert_eq(group_all(2, 0x3), 0);
	far.job = node_job(&node, "train");
	far_call_late(&far, 5, UINT32_MAX);
	cr_expect_eq(verdict(&actors[0], 1), ETIMEDOUT);
	cr_expect_eq(fail(&actors[0], 1, 0, 0), -ETIMEDOUT);
	says(&actors[0], "call #5 of group 1 was not complete on this node in time");
	end();
}

Test(coll_group, who_does_not_group_is_named_in_time)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	cr_assert_eq(
		actor_call(&actors[1], zero_coll_group,
	                   &(struct zero_op){ .members = { 3 }, .timeout_ns = 20 * ZI_NS_PER_MS }),
		-ETIMEDOUT);
	says(&actors[1], "coll_group timed out");
	says(&actors[1], "rank 0 (pid");
	says(&actors[1], "its last call was coll_open");
	end();
}

Test(coll_group, a_second_call_leaves_the_first_one_alone)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	actor_start(&actors[1], 0, zero_coll_group, &(struct zero_op){ .members = { 3 } });
	actor_start(&actors[1], 1, zero_coll_group, &(struct zero_op){ .members = { 1 } });
	cr_expect_eq(actor_wait(&actors[1], 1), -EALREADY);
	says(&actors[1], "coll_group was called before");
	cr_expect_eq(actor_call(&actors[0], zero_coll_group, &(struct zero_op){ .members = { 3 } }),
	             0, "%s", actors[0].text.chars);
	cr_expect_eq(actor_wait(&actors[1], 0), 0, "%s", actors[1].text.chars);
	end();
}

Test(coll_group, groups_run_out_with_a_figure_and_come_back_zeroed)
{
	struct zero_coll_grouped grouped;
	uint64_t charged;

	begin(2);
	cr_assert_eq(open_all(2), 0);
	for (uint32_t i = 1; i < ZI_GROUPS_MAX; i++)
		cr_assert_eq(group_all(2, 0x3), 0);
	cr_expect_eq(group_all(2, 0x3), -ENOSPC);
	says(&actors[0], "64 groups");
	cr_assert(zero_coll_grouped(actors[0].rank, 5, &grouped));
	memset(grouped.board->region.base, 0x77, grouped.board->region.bytes);
	charged = node.cpu.used_bytes;
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 5, &actors[0].text), 0);
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 5, &actors[0].text), -EPERM);
	says(&actors[0], "freed group 5 before");
	cr_expect_eq(group_all(2, 0x3), -ENOSPC, "the other one is still in it");
	cr_expect_eq(zero_coll_group_free(actors[1].rank, 5, &actors[1].text), 0);
	cr_expect_eq(group_all(2, 0x3), 0);
	cr_expect_eq(actors[0].calls[0].op.id, 5);
	cr_assert(zero_coll_grouped(actors[0].rank, 5, &grouped));
	for (uint64_t i = 0; i < grouped.board->region.bytes; i++)
		cr_assert_eq(((char *)grouped.board->region.base)[i], 0);
	cr_expect_eq(node.cpu.used_bytes, charged);
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 0, &actors[0].text), -EINVAL);
	says(&actors[0], "group 0 is that of all ranks");
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 64, &actors[0].text), -EPERM);
	end();
}

Test(coll_group, death_breaks_the_groups_of_who_died_at_once_and_no_other)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	cr_assert_eq(group_all(3, 0x3), 0);
	cr_assert_eq(group_all(3, 0x6), 0);
	actor_leave(&actors[2], false);
	cr_expect_eq(verdict(&actors[0], 0), EPIPE);
	cr_expect_eq(verdict(&actors[0], 1), 0, "it is not in it");
	cr_expect_eq(verdict(&actors[0], 2), EPIPE);
	cr_expect(actors[0].is_broken, "and so is the incarnation");
	cr_expect_eq(fail(&actors[1], 2, 0, 0), -EPIPE);
	says(&actors[1], "rank 2 (pid");
	says(&actors[1], "died: killed by the test");
	/* The others' own group goes on, and may fail by itself. */
	cr_expect_eq(fail(&actors[1], 1, 1, -ETIMEDOUT), -ETIMEDOUT);
	cr_expect_eq(verdict(&actors[0], 1), ETIMEDOUT);
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 1, &actors[0].text), 0);
	end();
}

Test(coll_group, a_member_aborts_its_group_and_no_other)
{
	begin(3);
	cr_assert_eq(zero_coll_abort(actors[0].rank, 0, "", &actors[0].text), -ENOTCONN);
	says(&actors[0], "not open");
	cr_assert_eq(open_all(3), 0);
	cr_assert_eq(group_all(3, 0x3), 0);
	cr_assert_eq(zero_coll_abort(actors[2].rank, 1, "", &actors[2].text), -EPERM);
	says(&actors[2], "no member of group 1");
	cr_assert_eq(zero_coll_abort(actors[1].rank, 1, "out of data", &actors[1].text), 0);
	cr_expect_eq(verdict(&actors[0], 1), ECONNABORTED);
	cr_expect_eq(verdict(&actors[0], 0), 0);
	cr_expect_eq(fail(&actors[0], 1, 0, 0), -ECONNABORTED);
	says(&actors[0], "rank 1 (pid");
	says(&actors[0], "aborted group 1: out of data");
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 1, &actors[0].text), 0);
	cr_expect_eq(zero_coll_group_free(actors[1].rank, 1, &actors[1].text), 0);
	cr_assert_eq(zero_coll_abort(actors[1].rank, 1, "", &actors[1].text), -EPERM);
	end();
}

Test(coll_group, who_leaves_is_named_and_nobody_takes_its_place)
{
	struct actor late = { 0 };

	begin(2);
	cr_assert_eq(open_all(2), 0);
	actor_leave(&actors[1], true);
	cr_expect_eq(verdict(&actors[0], 0), EPIPE);
	cr_expect_eq(fail(&actors[0], 0, 0, 0), -EPIPE);
	says(&actors[0], "rank 1 (pid");
	says(&actors[0], "left");
	cr_expect_eq(actor_attach(&node, &late,
	                          &(struct attach_options){
					  .incarnation = "run.0",
					  .rank = 1,
					  .world = 2,
					  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				  }),
	             -EBUSY);
	says(&late, "rank 1 has left this incarnation");
	/* What needs every rank says so at once. */
	cr_expect_eq(actor_call(&actors[0], zero_coll_group, &(struct zero_op){ .members = { 1 } }),
	             -EPIPE);
	says(&actors[0], "left");
	end();
}

Test(coll_group, a_newer_incarnation_ends_the_former_ones_groups)
{
	struct zero_coll_opened former;
	struct tier_segment *kept;

	begin(2);
	cr_assert_eq(open_all(2), 0);
	former = opened_of(&actors[0]);
	kept = tier_segment_ref(former.verdicts); /* As its process would hold it. */
	cr_assert_eq(actor_attach(&node, &actors[2],
	                          &(struct attach_options){
					  .incarnation = "run.1",
					  .rank = 0,
					  .world = 1,
					  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				  }),
	             0, "%s", actors[2].text.chars);
	cr_expect_eq(((const struct zi_verdicts *)kept->region.base)->groups[0].value, ESTALE);
	cr_expect_eq(fail(&actors[0], 0, 0, 0), -ESTALE);
	says(&actors[0], "has taken over");
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 1, &actors[0].text), -ESTALE);
	cr_assert_eq(actor_call(&actors[2], zero_coll_open, &(struct zero_op){ .bytes = ARENA }),
	             0);
	cr_expect_eq(verdict(&actors[2], 0), 0);
	(void)tier_segment_unref(kept);
	end();
}

Test(coll_group, ranks_spin_while_they_are_not_more_than_the_cpus)
{
	const struct zi_verdicts *verdicts;
	struct actor other = { 0 };

	begin(2);
	cr_assert_eq(open_all(2), 0);
	verdicts = opened_of(&actors[0]).verdicts->region.base;
	zero_coll_spin(node.zero, 2, 50);
	cr_expect_eq(zi_line_load(&verdicts->spin_us), 50);
	/* Beside a thread that computes: two for each rank. */
	cr_expect_eq(zi_line_load(&verdicts->beside_us), 0);
	zero_coll_spin(node.zero, 4, 50);
	cr_expect_eq(zi_line_load(&verdicts->beside_us), 50);
	/* Of a job that spans nodes its worker's threads are as busy. */
	node_job(&node, "train")->group.local_size = 1;
	zero_coll_spin(node.zero, 3, 50);
	cr_expect_eq(zi_line_load(&verdicts->spin_us), 0);
	zero_coll_spin(node.zero, 4, 50);
	cr_expect_eq(zi_line_load(&verdicts->spin_us), 50);
	cr_expect_eq(zi_line_load(&verdicts->beside_us), 0);
	zero_coll_spin(node.zero, 6, 50);
	cr_expect_eq(zi_line_load(&verdicts->beside_us), 50);
	node_job(&node, "train")->group.local_size = 2;
	/* A job without collectives does not count. */
	cr_assert_eq(actor_attach(&node, &other,
	                          &(struct attach_options){
					  .job = "other",
					  .world = 1,
					  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				  }),
	             0);
	zero_coll_spin(node.zero, 2, 50);
	cr_expect_eq(zi_line_load(&verdicts->spin_us), 50);
	cr_assert_eq(actor_call(&other, zero_coll_open, &(struct zero_op){ .bytes = 1 }), 0);
	zero_coll_spin(node.zero, 2, 50);
	cr_expect_eq(zi_line_load(&verdicts->spin_us), 0);
	actor_leave(&other, true);
	zero_coll_spin(node.zero, 2, 50);
	cr_expect_eq(zi_line_load(&verdicts->spin_us), 50);
	end();
}

Test(coll_group, a_wait_of_a_rank_elsewhere_is_in_the_words)
{
	struct zi_board_member *board;

	begin(2);
	cr_assert_eq(open_all(2), 0);
	board = opened_of(&actors[0]).board->region.base;
	board[0].posts[1].call.operation = ZI_COLL_BARRIER;
	board[0].posts[1].sequence = 1;
	model_layout(&actors[1]);
	actor_start(&actors[1], 0, zero_materialize, NULL);
	cr_expect_eq(fail(&actors[0], 0, 1, -ETIMEDOUT), -ETIMEDOUT);
	says(&actors[0], "barrier #1 of group 0: rank 1 (pid");
	says(&actors[0], "did not come within 0.1 s: it has been in materialize for 0.0 s");
	end();
}
