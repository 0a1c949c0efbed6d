/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job whose state is spread over several paths trains as on one, bit by bit, while paths
 * slow down, fill up, are drained, fail, or are not there any more. Method: a tier of two or three
 * small stores; the faulty backend fails the k-th write to one of them, for every k.
 */
#include "daemon/tier/drain.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/disk.h"
#include "tests/unit/zero/flip.h"

static char backend[96];

static void begin_on(uint32_t store_count)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_count = store_count;
	plain_init(&plain, &config, 1);
	start("threads");
	cr_assert_eq(model_materialize(actors, 1), 0);
	model_write(actors, 1);
}

static const struct tier_member *member(uint32_t index)
{
	return &node.nvme.members[index];
}

/* Steps up to and including @step; each must be what the plain computation gives. */
static void train(uint64_t step)
{
	struct zi_step_options options = model_options();

	for (uint64_t i = (uint64_t)node_job(&node, "train")->committed_step + 1; i <= step; i++) {
		cr_assert_eq(model_step(actors, 1, i, &options), 0, "step %llu: %s",
		             (unsigned long long)i, actors[0].text.chars);
		plain_step(&plain, i, &options);
	}
	cr_assert(plain_equals(&plain, &actors[0]));
}

/* The job has two sets of extents reserved for good, or one and what a step writes. */
static uint64_t set_bytes(void)
{
	return node_job(&node, "train")->nvme_charge.bytes / 2;
}

static uint64_t used_bytes(void)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < node.store_count; i++)
		bytes += tier_member_used_bytes(member(i));
	return bytes;
}

Test(zero_stripe, neighbours_lie_on_different_paths_and_a_restart_finds_them)
{
	const struct zero_job *job;

	begin_on(2);
	train(2); /* a path of this machine cannot count as slow before the third */
	job = node_job(&node, "train");
	/* The two largest subgroups are neighbours, of equal size. */
	for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
		cr_assert_neq(job->subgroups[1].places[plane].extent.member,
		              job->subgroups[2].places[plane].extent.member);
	cr_assert_eq(used_bytes(), set_bytes());
	cr_assert_gt(tier_member_used_bytes(member(0)), set_bytes() / 4);
	cr_assert_gt(tier_member_used_bytes(member(1)), set_bytes() / 4);
	/* Which of them the second step read depends on what was still warm: now nothing is. */
	restart("threads");
	cr_assert_eq(model_materialize(actors, 1), 0);
	train(3);
	cr_assert_gt(member(0)->read_bytes, 0);
	cr_assert_gt(member(1)->read_bytes, 0);
	sound(3);
	cr_assert_eq(used_bytes(), set_bytes());
	end();
}

/* The k-th write to the second path fails, and all after it. */
static bool dies_at(uint32_t store_count, uint32_t k)
{
	bool is_dead;

	begin_on(store_count);
	train(1);
	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,path=t1,write_eio_from=%u",
	               k);
	restart(backend);
	cr_assert_eq(model_materialize(actors, 1), 0);
	train(3);
	is_dead = member(1)->state == TIER_MEMBER_FAILED;
	if (is_dead) {
		cr_assert_str_eq(member(1)->reason.chars, "writing failed: EIO");
		train(4);
		cr_assert_eq(tier_member_used_bytes(member(1)), 0,
		             "nothing is left where writes failed, k = %u", k);
	}
	cr_assert_eq(used_bytes(), set_bytes(), "nothing stays reserved, k = %u", k);
	cr_assert_eq(node_job(&node, "train")->abandoned_count, 0);
	sound((uint64_t)node_job(&node, "train")->committed_step);
	end();
	return is_dead;
}

Test(zero_stripe, path_that_dies_in_the_middle_of_a_step_costs_nothing, .timeout = 120)
{
	uint32_t k = 1;

	while (dies_at(2, k))
		cr_assert_lt(k++, 100);
	cr_assert_gt(k, 5, "two steps write more often than that");
	cr_assert(dies_at(3, 1));
}

Test(zero_stripe, parameters_written_by_hand_go_elsewhere_as_well)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_count = 2;
	plain_init(&plain, &config, 1);
	start("faulty:over=threads,path=t,write_eio_from=1");
	cr_assert_eq(model_materialize(actors, 1), 0);
	model_write(actors, 1);
	cr_assert_eq(member(0)->state, TIER_MEMBER_FAILED);
	cr_assert_eq(tier_member_used_bytes(member(0)), 0);
	train(2);
	sound(2);
	end();
}

Test(zero_stripe, when_every_path_fails_the_step_fails_and_the_former_one_stands)
{
	struct zi_step_options options = model_options();
	uint64_t bytes;

	begin_on(2);
	train(1);
	restart("faulty:over=threads,write_eio_from=3");
	cr_assert_eq(model_materialize(actors, 1), 0);
	bytes = used_bytes();
	cr_assert_eq(model_step(actors, 1, 2, &options), -EIO);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "job 'train': writing"), "%s",
	                   actors[0].broken_text.chars);
	node_settle(&node);
	cr_assert_eq(used_bytes(), bytes, "nothing stays reserved");
	/* Nothing new can be written anywhere: said before anything is changed. */
	actor_leave(&actors[0], true);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }),
		-ENOSPC);
	cr_assert_not_null(strstr(actors[0].text.chars, "failed: writing failed: EIO"), "%s",
	                   actors[0].text.chars);
	sound(1);
	end();
}

/* A write that finds no path has not failed itself, but the step fails for the same reason. */
Test(zero_stripe, when_no_path_is_left_before_the_first_write_that_is_said)
{
	struct zi_step_options options = model_options();
	uint64_t bytes;

	begin_on(2);
	train(1);
	bytes = used_bytes();
	model_gradients(actors, 1, 2, &options);
	for (uint32_t i = 0; i < 2; i++)
		tier_member_fail(&node.nvme.members[i], -EIO, "writing");
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), -EIO);
	cr_assert_not_null(strstr(actors[0].broken_text.chars,
	                          "job 'train': writing to nvme:t: no path is left: "),
	                   "%s", actors[0].broken_text.chars);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "failed: writing failed: EIO"), "%s",
	                   actors[0].broken_text.chars);
	node_settle(&node);
	cr_assert_eq(used_bytes(), bytes, "nothing stays reserved");
	sound(1);
	end();
}

Test(zero_stripe, where_the_others_have_no_room_the_step_fails_with_figures)
{
	struct zi_step_options options = model_options();
	struct zi_extent taken;

	begin_on(2);
	train(1);
	restart("faulty:over=threads,path=t1,write_eio_from=1");
	cr_assert_eq(model_materialize(actors, 1), 0);
	/* Room for the share that is reserved there, and little more. */
	cr_assert_eq(nvme_space_allocate(
			     member(0)->space,
			     nvme_space_free_bytes(member(0)->space) - set_bytes() * 3 / 4, &taken),
	             0);
	cr_assert_lt(model_step(actors, 1, 2, &options), 0);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, node.more_paths[1]), "%s",
	                   actors[0].broken_text.chars);
	node_settle(&node);
	nvme_space_release(member(0)->space, &taken);
	sound(1);
	end();
}

Test(zero_stripe, drained_path_is_empty_after_one_step)
{
	struct zi_text text;

	begin_on(3);
	train(2);
	cr_assert_gt(tier_member_used_bytes(member(0)), 0);
	cr_assert_eq(tier_member_drain(&node.nvme.members[0], true, &text), 0);
	train(3);
	cr_assert_eq(tier_member_used_bytes(member(0)), 0);
	cr_assert_gt(tier_member_used_bytes(member(1)), 0);
	cr_assert_gt(tier_member_used_bytes(member(2)), 0);
	cr_assert_eq(tier_member_drain(&node.nvme.members[0], false, &text), 0);
	train(4);
	cr_assert_gt(tier_member_used_bytes(member(0)), 0);
	sound(4);
	end();
}

/* Attaches anew after a step that failed, and trains up to @step. */
static void return_and_train(uint64_t step)
{
	actor_leave(&actors[0], true);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	train(step);
}

Test(zero_stripe, one_bad_sector_names_the_path_and_does_not_condemn_it)
{
	static const char *const errors[] = { "EIO", "ENODATA" };
	struct zi_step_options options = model_options();

	for (uint32_t i = 0; i < ZI_COUNT_OF(errors); i++) {
		begin_on(2);
		train(2);
		(void)snprintf(backend, sizeof(backend), "faulty:over=threads,path=t1,%s=read@4",
		               errors[i]);
		restart(backend);
		cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
		cr_assert_neq(model_step(actors, 1, 3, &options), 0);
		cr_assert_not_null(strstr(actors[0].broken_text.chars, node.more_paths[1]), "%s",
		                   actors[0].broken_text.chars);
		cr_assert_not_null(strstr(actors[0].broken_text.chars, errors[i]), "%s",
		                   actors[0].broken_text.chars);
		cr_assert_eq(member(1)->state, TIER_MEMBER_HEALTHY);
		cr_assert_eq(member(1)->damage.place_count, 1);
		return_and_train(3);
		cr_assert_gt(tier_member_used_bytes(member(1)), 0);
		sound(3);
		end();
	}
}

Test(zero_stripe, path_that_reads_find_gone_is_left_at_once)
{
	struct zi_step_options options = model_options();

	begin_on(2);
	train(2);
	restart("faulty:over=threads,path=t1,ENODEV=read@4");
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(model_step(actors, 1, 3, &options), -ENODEV);
	cr_assert_eq(member(1)->state, TIER_MEMBER_FAILED);
	cr_assert_str_eq(member(1)->reason.chars, "reading failed: ENODEV");
	return_and_train(3);
	cr_assert_eq(tier_member_used_bytes(member(1)), 0);
	sound(3);
	end();
}

Test(zero_stripe, job_on_a_missing_path_is_refused_by_name_and_the_others_go_on)
{
	begin_on(2);
	train(2);
	actor_leave(&actors[0], true);
	node_stop(&node);
	node.missing = 2;
	node.backend = "threads";
	node_start(&node);
	cr_assert_eq(actor_attach(&node, &actors[0],
	                          &(struct attach_options){ .config = config, .world = 1 }),
	             -ENODEV);
	cr_assert_not_null(strstr(actors[0].text.chars, node.more_paths[1]), "%s",
	                   actors[0].text.chars);
	cr_assert_eq(tier_member_used_bytes(member(1)), 0);
	cr_assert_gt(tier_member_used_bytes(member(0)), 0, "what is left of it is kept");
	cr_assert_eq(actor_attach(&node, &actors[1],
	                          &(struct attach_options){
					  .config = config, .world = 1, .job = "other" }),
	             0, "%s", actors[1].text.chars);
	cr_assert_eq(model_materialize(&actors[1], 1), 0, "%s", actors[1].text.chars);
	model_write(&actors[1], 1);
	actor_leave(&actors[1], true);
	node_settle(&node);
	node_stop(&node);
	node.missing = 0;
	start("threads");
	sound(2);
	end();
}

Test(zero_stripe, path_that_is_added_takes_its_share_from_the_next_step_on)
{
	begin(0);
	train(2);
	node.store_count = 2;
	sound(2);
	cr_assert_gt(tier_member_used_bytes(member(1)), 0);
	cr_assert_eq(used_bytes(), set_bytes());
	end();
}

/* ---- jobs at rest ---- */

/* Until the path is empty. */
static void await_empty(uint32_t index)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	while (tier_member_used_bytes(member(index))) {
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the path is never empty");
		node_turn(&node);
	}
	node_settle(&node);
}

static void drain(uint32_t index)
{
	struct zi_text text;

	cr_assert_eq(tier_member_drain(&node.nvme.members[index], true, &text), 0, "%s",
	             text.chars);
	zero_evacuate(node.zero);
}

Test(zero_stripe, job_at_rest_is_moved_off_a_drained_path_and_is_the_same)
{
	uint64_t held_bytes;

	begin_on(2);
	train(3);
	actor_leave(&actors[0], true);
	node_settle(&node);
	held_bytes = node.cpu.used_bytes; /* What this process received. */
	drain(1);
	await_empty(1);
	cr_assert_eq(tier_member_used_bytes(member(0)), set_bytes());
	cr_assert_eq(node_job(&node, "train")->committed_step, 3);
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_NONE);
	cr_assert_eq(node.cpu.used_bytes, held_bytes, "no memory is held when it is over");
	sound(3);
	end();
}

Test(zero_stripe, job_that_comes_to_rest_on_a_drained_path_is_moved_then)
{
	begin_on(2);
	train(2);
	drain(0);
	node_settle(&node);
	cr_assert_gt(tier_member_used_bytes(member(0)), 0, "its ranks are there");
	actor_leave(&actors[0], true);
	await_empty(0);
	sound(2);
	end();
}

Test(zero_stripe, ranks_that_come_while_a_job_is_moved_wait_for_a_round)
{
	begin_on(2);
	train(2);
	actor_leave(&actors[0], true);
	node_settle(&node);
	drain(1);
	while (node_job(&node, "train")->step.phase != ZERO_STEP_COMMITTING)
		node_turn(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	train(3);
	cr_assert_eq(tier_member_used_bytes(member(1)), 0);
	sound(3);
	end();
}

Test(zero_stripe, what_cannot_be_moved_stays_and_the_rest_moves)
{
	const struct tier_extent *extent;
	uint64_t used, bytes;

	begin_on(2);
	train(2);
	actor_leave(&actors[0], true);
	node_settle(&node);
	extent = &node_job(&node, "train")->subgroups[1].places[ZERO_PLANE_STATE].extent;
	used = tier_member_used_bytes(extent->member);
	bytes = extent->bytes;
	flip(extent->member->path, extent->offset_bytes + 40000);
	drain((uint32_t)(extent->member - node.nvme.members));
	while (!node_job(&node, "train")->is_stuck)
		node_turn(&node);
	node_settle(&node);
	cr_assert_not_null(strstr(node.stuck_text.chars, "moving optimizer state of unit 'h.0'"),
	                   "%s", node.stuck_text.chars);
	cr_assert_not_null(strstr(node.stuck_text.chars, "damaged"), "%s", node.stuck_text.chars);
	cr_assert_geq(tier_member_used_bytes(extent->member), bytes);
	cr_assert_leq(tier_member_used_bytes(extent->member), used);
	cr_assert_eq(used_bytes(), set_bytes(), "nothing stays reserved");
	end();
}

Test(zero_stripe, failed_path_is_left_by_jobs_at_rest_as_well)
{
	begin_on(2);
	train(1);
	actor_leave(&actors[0], true);
	node_settle(&node);
	tier_member_fail(&node.nvme.members[1], -EIO, "writing");
	zero_evacuate(node.zero);
	await_empty(1);
	sound(1);
	end();
}
