/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: ranks open collectives together, with a model or without, pay for them, and hear in words
 * of those who do not come, differ or leave meanwhile; nothing is left of an attempt. Method: ranks
 * of the tests' node call zero; the memory that they would map is looked at here. */
#include "daemon/zero/job/group.h"
#include "tests/unit/zero/coll.h"
#include "tests/unit/zero/gate.h"

Test(coll, all_ranks_open_without_a_model_and_see_the_same_zeroed_memory)
{
	struct zero_coll_opened first, second;
	uint64_t before;

	begin(2);
	before = node.cpu.used_bytes;
	cr_assert_eq(open_all(2), 0, "%s", actors[0].text.chars);
	first = opened_of(&actors[0]);
	second = opened_of(&actors[1]);
	cr_expect_eq(first.arenas, second.arenas);
	cr_expect_eq(first.board, second.board);
	cr_expect_eq(first.verdicts, second.verdicts);
	cr_expect_eq(first.member_count, 2);
	cr_expect_eq(first.arena_bytes, 4 * MIB, "whole huge pages");
	cr_expect_eq(first.arenas->region.bytes, 8 * MIB);
	cr_expect_geq(first.board->region.bytes, zi_board_bytes(2));
	for (uint64_t i = 0; i < first.arenas->region.bytes; i += 4096)
		cr_assert_eq(((char *)first.arenas->region.base)[i], 0);
	cr_expect_eq(node.cpu.used_bytes - before,
	             first.arenas->bytes + first.board->bytes + first.verdicts->bytes);
	cr_expect_eq(verdict(&actors[0], 0), 0);
	end();
}

Test(coll, a_model_may_come_before_or_after)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	cr_assert_eq(group_all(2, 0x3), 0);
	actors_leave(actors, 2, true);
	attach(2, "run.1");
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	cr_assert_eq(open_all(2), 0);
	end();
}

Test(coll, everything_before_opening_is_told_that)
{
	struct zero_coll_opened opened;
	struct zero_coll_grouped grouped;

	begin(2);
	cr_expect_eq(actor_call(&actors[0], zero_coll_group, &(struct zero_op){ .members = { 3 } }),
	             -ENOTCONN);
	says(&actors[0], "are not open");
	cr_expect_eq(fail(&actors[0], 0, 1, -ETIMEDOUT), -ENOTCONN);
	cr_expect_eq(zero_coll_group_free(actors[0].rank, 1, &actors[0].text), -ENOTCONN);
	cr_expect_not(zero_coll_opened(actors[0].rank, &opened));
	cr_expect_not(zero_coll_grouped(actors[0].rank, 0, &grouped));
	end();
}

Test(coll, opening_twice_is_refused)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	cr_expect_eq(actor_call(&actors[0], zero_coll_open, &(struct zero_op){ .bytes = ARENA }),
	             -EALREADY);
	says(&actors[0], "opened before");
	end();
}

/* Ranks 0 and 1 ask for different arenas; @late, if given, comes when they have heard. */
static void differ(struct actor *late)
{
	uint32_t count = late ? 3 : 2;

	/* The words are of what their programs asked for, without the staging. */
	actor_start(&actors[0], 0, zero_coll_open,
	            &(struct zero_op){ .bytes = ARENA, .asked_bytes = 4710 });
	actor_start(&actors[1], 0, zero_coll_open,
	            &(struct zero_op){ .bytes = ARENA + 1, .asked_bytes = 4711 });
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_wait(&actors[i], 0), -EINVAL);
	if (late) {
		actor_start(late, 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
		cr_assert(late->calls[0].is_done, "it waits for nobody");
		cr_assert_eq(actor_wait(late, 0), -EINVAL);
	}
	for (uint32_t i = 0; i < count; i++) {
		says(&actors[i], "rank 1 (pid");
		says(&actors[i], "4711 bytes");
		says(&actors[i], "rank 0 (pid");
		says(&actors[i], "for 4710");
	}
}

Test(coll, other_bytes_are_told_to_all_who_comes_late_as_well_and_may_be_tried_again)
{
	begin(3);
	differ(&actors[2]);
	cr_assert_eq(open_all(3), 0);
	end();
}

/* What its own library sees, or another version of that: nobody waits for it. */
Test(coll, what_a_rank_refuses_itself_is_told_to_all_and_may_be_tried_again)
{
	begin(3);
	actor_start(&actors[0], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	actor_start(&actors[1], 0, zero_coll_open,
	            &(struct zero_op){ .refusal = -EPROTONOSUPPORT,
	                               .reason = "its libzinf is \x1b[31m old" });
	cr_assert(actors[1].calls[0].is_done, "it waits for nobody");
	actor_start(&actors[2], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(actor_wait(&actors[i], 0), -EPROTONOSUPPORT);
		says(&actors[i], "rank 1 (pid");
		says(&actors[i], "makes no call of coll_open: its libzinf is ?[31m old");
	}
	cr_assert_eq(open_all(3), 0);
	end();
}

/* It is told as often as it was missed. */
Test(coll, each_attempt_that_failed_is_told_to_who_comes_late)
{
	begin(3);
	differ(NULL);
	differ(NULL);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(
			actor_call(&actors[2], zero_coll_open, &(struct zero_op){ .bytes = ARENA }),
			-EINVAL);
		says(&actors[2], "4711 bytes");
	}
	cr_assert_eq(open_all(3), 0);
	end();
}

/* A rank that was not even attached; and where another process comes for it, nothing is owed. */
Test(coll, who_attaches_after_an_attempt_that_failed_is_told_and_a_new_process_is_not)
{
	struct attach_options options = {
		.incarnation = "run.0",
		.rank = 2,
		.world = 3,
		.config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
	};

	begin(3);
	actor_leave(&actors[2], true);
	differ(NULL);
	cr_assert_eq(actor_attach(&node, &actors[2], &options), 0, "%s", actors[2].text.chars);
	cr_assert_eq(actor_call(&actors[2], zero_coll_open, &(struct zero_op){ .bytes = ARENA }),
	             -EINVAL);
	differ(NULL);
	actor_leave(&actors[2], true);
	cr_assert_eq(actor_attach(&node, &actors[2], &options), 0, "%s", actors[2].text.chars);
	cr_assert_eq(open_all(3), 0, "%s", actors[2].text.chars);
	end();
}

Test(coll, what_failed_is_nothing_to_those_who_come_after_a_death)
{
	begin(3);
	differ(NULL);
	actor_leave(&actors[2], false);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(
			actor_call(&actors[i], zero_coll_open, &(struct zero_op){ .bytes = ARENA }),
			-EPIPE);
		says(&actors[i], "rank 2 (pid");
		says(&actors[i], "died");
	}
	actors_leave(actors, 3, true);
	attach(3, "run.1");
	cr_assert_eq(open_all(3), 0, "%s", actors[2].text.chars);
	end();
}

/* What it asks for is its own affair: those who wait go on waiting. */
Test(coll, a_second_call_with_other_bytes_leaves_the_first_one_alone)
{
	begin(2);
	actor_start(&actors[1], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	cr_expect_eq((actor_start(&actors[1], 1, zero_coll_open,
	                          &(struct zero_op){ .bytes = 2 * ARENA }),
	              actor_wait(&actors[1], 1)),
	             -EALREADY);
	says(&actors[1], "coll_open was called before");
	cr_assert_not(actors[1].calls[0].is_done);
	cr_expect_eq(actor_call(&actors[0], zero_coll_open, &(struct zero_op){ .bytes = ARENA }), 0,
	             "%s", actors[0].text.chars);
	cr_expect_eq(actor_wait(&actors[1], 0), 0, "%s", actors[1].text.chars);
	end();
}

Test(coll, arenas_of_no_or_impossible_bytes_are_refused_with_figures)
{
	begin(2);
	cr_expect_eq(all_call(actors, 2, zero_coll_open, NULL), -EINVAL);
	says(&actors[1], "rank 0 (pid");
	says(&actors[1], "no bytes");
	cr_expect_eq(all_call(actors, 2, zero_coll_open, &(struct zero_op){ .bytes = UINT64_MAX }),
	             -EINVAL);
	says(&actors[1], "18446744073709551615");
	cr_expect_eq(all_call(actors, 2, zero_coll_open, &(struct zero_op){ .bytes = 1ull << 62 }),
	             -EINVAL);
	cr_expect_eq(all_call(actors, 2, zero_coll_open, &(struct zero_op){ .bytes = 1024 * MIB }),
	             -ENOSPC);
	says(&actors[1], "arenas of 2 x 1 GiB");
	cr_expect_eq(node.cpu.used_bytes, 0, "nothing is left charged");
	cr_assert_eq(open_all(2), 0);
	end();
}

Test(coll, a_quota_is_kept)
{
	node_init(&node);
	node.uid_cpu_bytes = 6 * MIB;
	node_start(&node);
	attach(2, "run.0");
	cr_expect_eq(open_all(2), -EDQUOT);
	says(&actors[0], "arenas of 2 x 4 MiB for collectives: 8 MiB asked for on cpu:0, uid 0 "
	                 "holds 0 B of the 6 MiB");
	end();
}

Test(coll, who_does_not_open_is_named_in_time)
{
	begin(2);
	cr_assert_eq(
		actor_call(&actors[0], zero_coll_open,
	                   &(struct zero_op){ .bytes = ARENA, .timeout_ns = 20 * ZI_NS_PER_MS }),
		-ETIMEDOUT);
	says(&actors[0], "coll_open timed out after 0.0 s");
	says(&actors[0], "rank 1 (pid");
	says(&actors[0], "it only attached");
	/* It hears that, and may try with the others. */
	cr_assert_eq(actor_call(&actors[1], zero_coll_open, &(struct zero_op){ .bytes = ARENA }),
	             -ETIMEDOUT);
	says(&actors[1], "rank 1 (pid");
	cr_assert_eq(open_all(2), 0);
	end();
}

Test(coll, a_model_after_somebody_left_is_refused_at_once)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	actor_leave(&actors[1], true);
	model_layout(&actors[0]);
	cr_expect_eq(actor_call(&actors[0], zero_materialize, NULL), -EPIPE);
	says(&actors[0], "left");
	end();
}

Test(coll, a_place_is_free_again_before_anything_is_open)
{
	begin(2);
	actor_start(&actors[1], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	actor_leave(&actors[1], true);
	cr_expect_eq(actors[1].calls[0].op.result, -ECANCELED);
	cr_assert_eq(actor_attach(&node, &actors[1],
	                          &(struct attach_options){
					  .incarnation = "run.0",
					  .rank = 1,
					  .world = 2,
					  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				  }),
	             0, "%s", actors[1].text.chars);
	cr_assert_eq(open_all(2), 0);
	end();
}

Test(coll, leaving_while_memory_is_made_is_told_to_the_others)
{
	begin(2);
	actor_start(&actors[0], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	actor_start(&actors[1], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	actor_leave(&actors[1], true);
	cr_expect_eq(actor_wait(&actors[0], 0), -EPIPE);
	says(&actors[0], "left");
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_expect_eq(node.cpu.used_bytes, 0, "the memory goes when it is made");
	end();
}

Test(coll, an_incarnation_that_is_replaced_while_memory_is_made_leaves_nothing)
{
	begin(1);
	actor_start(&actors[0], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	cr_assert_eq(actor_attach(&node, &actors[1],
	                          &(struct attach_options){
					  .incarnation = "run.1",
					  .rank = 0,
					  .world = 1,
					  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				  }),
	             0, "%s", actors[1].text.chars);
	cr_expect_eq(actor_wait(&actors[0], 0), -ESTALE);
	/* It waits until that is made, and has its own then. */
	cr_expect_eq(actor_call(&actors[1], zero_coll_open, &(struct zero_op){ .bytes = ARENA }), 0,
	             "%s", actors[1].text.chars);
	cr_expect_eq(node.cpu.used_bytes,
	             opened_of(&actors[1]).arenas->bytes + opened_of(&actors[1]).board->bytes +
	                     opened_of(&actors[1]).verdicts->bytes,
	             "nothing of the former one");
	end();
}

Test(coll, who_leaves_while_all_wait_for_a_former_ones_memory_is_named)
{
	begin(1);
	actor_start(&actors[0], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(
			actor_attach(&node, &actors[1 + i],
		                     &(struct attach_options){
					     .incarnation = "run.1",
					     .rank = i,
					     .world = 2,
					     .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				     }),
			0, "%s", actors[1 + i].text.chars);
	cr_expect_eq(actor_wait(&actors[0], 0), -ESTALE);
	actor_start(&actors[1], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	actor_start(&actors[2], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	actor_leave(&actors[2], true);
	cr_expect_eq(actor_wait(&actors[1], 0), -EPIPE);
	says(&actors[1], "left");
	actor_leave(&actors[1], true);
	node_settle(&node);
	cr_expect_eq(node.cpu.used_bytes, 0);
	end();
}

static void quiesced(void *arg)
{
	((struct node *)arg)->is_quiesced = true;
}

Test(coll, a_daemon_that_stops_says_so_on_the_verdicts)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	zero_quiesce(node.zero, quiesced, &node);
	cr_expect_eq(verdict(&actors[0], 0), ESTALE);
	cr_expect_eq(fail(&actors[0], 0, 0, 0), -ESTALE);
	says(&actors[0], "the daemon is stopping");
	node_settle(&node);
	cr_expect(node.is_quiesced);
	end();
}

Test(coll, a_report_counts_what_is_held)
{
	struct zero_job *job;

	begin(2);
	job = node_job(&node, "train");
	cr_expect_eq(collectives_held_bytes(job), 0);
	cr_assert_eq(open_all(2), 0);
	cr_assert_eq(group_all(2, 0x3), 0);
	cr_expect_eq(collectives_held_bytes(job), node.cpu.used_bytes);
	end();
}

/* Both incarnations' deadlines pass while memory is made; whoever gave up, all hear of it. */
Test(coll, a_rank_that_gives_up_while_memory_is_made_is_named_to_all)
{
	begin(2);
	actor_start(&actors[0], 0, zero_coll_open,
	            &(struct zero_op){ .bytes = ARENA, .timeout_ns = 1 });
	actor_start(&actors[1], 0, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	/* The clock is looked at before what the device has made. */
	cr_assert_eq(actor_wait(&actors[0], 0), -ETIMEDOUT, "%s", actors[0].text.chars);
	cr_assert_eq(actor_wait(&actors[1], 0), -ETIMEDOUT, "%s", actors[1].text.chars);
	says(&actors[1], "rank 0 (pid");
	says(&actors[1], "left before memory for collectives was ready");
	cr_expect_eq(node.cpu.used_bytes, 0);
	cr_assert_eq(open_all(2), 0, "%s", actors[0].text.chars);
	end();
}

/* The step that is being written ends by itself, and until then the group is as it was: the arenas
 * are ready before, and nobody may have them. */
Test(coll, death_while_memory_is_made_and_a_step_is_written_opens_nothing)
{
	struct zi_step_options options = model_options();

	node_init(&node);
	node_start(&node);
	model_begin(&node, actors, 3,
	            &(struct attach_options){
			    .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME),
		    });
	model_gradients(actors, 3, 1, &options);
	gate_close(&node);
	for (uint32_t i = 0; i < 3; i++)
		actor_start(&actors[i], 0, zero_step, NULL);
	for (uint32_t i = 0; i < 3; i++)
		actor_start(&actors[i], 1, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
	cr_assert(collectives_is_building(node_job(&node, "train")));
	actor_leave(&actors[1], false);
	for (uint32_t i = 0; i < 3; i += 2) {
		cr_assert_eq(actor_wait(&actors[i], 1), -EPIPE, "%s", actors[i].text.chars);
		says(&actors[i], "rank 1 (pid");
		says(&actors[i], "died");
		cr_expect_not(actors[i].calls[0].is_done, "the step is still written");
	}
	cr_expect_not(collectives_is_on(node_job(&node, "train")));
	cr_expect_eq(collectives_held_bytes(node_job(&node, "train")), 0);
	gate_open();
	cr_expect_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	cr_expect(actors[0].is_broken);
	end();
	gate_end();
}

/* Ranks of one node are told that they are on node 0, whatever their job was before. */
Test(coll, where_ranks_of_a_former_incarnation_were_is_forgotten)
{
	struct zero_meeting *meeting;

	begin(2);
	cr_assert_eq(open_all(2), 0);
	meeting = &node_job(&node, "train")->meeting;
	/* As of one that spanned nodes. */
	meeting->nodes[1] = 3;
	meeting->node_count = 4;
	meeting->node = 3;
	cr_assert_eq(actor_attach(&node, &actors[2],
	                          &(struct attach_options){
					  .incarnation = "run.1",
					  .rank = 0,
					  .world = 1,
					  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				  }),
	             0, "%s", actors[2].text.chars);
	cr_assert_eq(actor_call(&actors[2], zero_coll_open, &(struct zero_op){ .bytes = ARENA }), 0,
	             "%s", actors[2].text.chars);
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		cr_expect_eq(opened_of(&actors[2]).nodes[i], 0, "rank %u", i);
	end();
}

/* Their collectives are on, so that nobody may take the place of one that leaves; and what all have
 * called waits for the space of another job, which the catalog is just forgetting. */
Test(zero_coll, a_member_that_leaves_before_memory_is_made_ends_the_start)
{
	struct attach_options options = { .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME),
		                          .world = 2 };
	struct actor *other = &actors[3];

	for (uint32_t leaving = 0; leaving < 2; leaving++) {
		uint32_t staying = 1 - leaving;

		node_init(&node);
		node.store_bytes = 64 * MIB;
		node_start(&node);
		model_attach(&node, other, 1,
		             &(struct attach_options){ .job = "other", .config = options.config });
		cr_assert_eq(model_materialize(other, 1), 0, "%s", other->text.chars);
		model_attach(&node, actors, 2, &options);
		cr_assert_eq(open_all(2), 0);
		model_layout(&actors[0]);
		model_layout(&actors[1]);
		actor_leave(other, true);
		actor_start(&actors[0], 0, zero_materialize, NULL);
		actor_start(&actors[1], 0, zero_materialize, NULL);
		cr_assert_not(zi_list_is_empty(&node.zero->ghosts), "it waits");
		actor_leave(&actors[leaving], true);
		cr_expect_eq(actor_wait(&actors[staying], 0), -EPIPE);
		cr_expect(actors[staying].is_broken);
		end();
	}
}
