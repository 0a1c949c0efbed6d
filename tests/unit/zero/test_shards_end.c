/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whoever goes, is late, has no room, damaged bytes, or says what cannot be while parameters
 * come from other nodes is told by name, and nothing is left. Method: as in test_shards.c.
 */
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/flip.h"
#include "tests/unit/zero/shards.h"

static struct shards_run run_of(const char *places, uint32_t offload, uint32_t offload_param)
{
	struct shards_run run = { .places = places,
		                  .config = model_config(ZI_DTYPE_BF16, offload),
		                  .training = { .strategy = ZI_STRATEGY_ZERO3 } };

	run.config.offload_param = offload_param;
	run.config.staging_bytes = offload == ZI_OFFLOAD_NVME ? 16 * MIB : 0;
	return run;
}

/* A subgroup that node 0 does not hold. */
static struct zero_subgroup *foreign(void)
{
	struct zero_job *job = job_of(0);

	for (uint32_t i = 0; i < job->subgroup_count; i++)
		if (!job->subgroups[i].is_here)
			return &job->subgroups[i];
	cr_assert_fail("node 0 holds all");
	return NULL;
}

/* Whoever goes, at any moment while units come, are written and are updated. */
Test(shards_end, a_death_at_any_moment_leaves_nothing, .timeout = 120)
{
	each_draw(seed, 60) {
		bool is_stored = seed % 3 == 0;
		struct shards_run run = run_of(seed % 2 ? "0012" : "01",
		                               seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                               is_stored ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);
		struct zi_step_options options = model_options();

		shards_begin(&run, seed);
		shards_write();
		if (seed % 4) {
			begin_step(&options);
			for (uint32_t i = 0; i < ranks.world; i++)
				actor_start(
					&ranks.actors[i], 0, zero_unshard,
					&(struct zero_op){ .unit = (i + (uint32_t)seed) % UNITS });
		} else {
			(void)call_unit(&ranks.actors[0], zero_param_write_begin, 1);
			for (uint32_t i = 0; i < ranks.world; i++)
				actor_start(&ranks.actors[i], 1, zero_param_write_end,
				            &(struct zero_op){ .unit = 1 });
		}
		for (uint64_t i = 0; i < seed * seed / 8; i++)
			nodes_turn();
		if (seed % 5 == 0)
			nodes_crash((uint32_t)seed / 5 % net.count);
		else
			actor_leave(&ranks.actors[seed % 2 ? 0 : ranks.world - 1], seed % 5 == 1);
		for (uint32_t i = 0; i < 40; i++)
			nodes_turn();
		shards_end(false);
	}
}

/* In the middle of the update. */
Test(shards_end, a_death_during_an_update_leaves_nothing, .timeout = 120)
{
	each_draw(seed, 40) {
		struct shards_run run = run_of(seed % 2 ? "0012" : "01",
		                               seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                               seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);
		struct zi_step_options options = model_options();

		shards_begin(&run, seed);
		shards_write();
		begin_step(&options);
		for (uint32_t unit = 0; unit < UNITS; unit++)
			for (uint32_t i = 0; i < ranks.world; i++)
				shards_use(i, unit, 1, true);
		for (uint32_t i = 0; i < ranks.world; i++)
			actor_start(&ranks.actors[i], 0, zero_step, NULL);
		for (uint32_t i = 0; i < ranks.world; i++)
			actor_start(&ranks.actors[i], 1, zero_unshard,
			            &(struct zero_op){ .unit = (i + (uint32_t)seed) % UNITS });
		for (uint64_t i = 0; i < seed * seed / 4; i++)
			nodes_turn();
		if (seed % 3 == 0)
			nodes_crash((uint32_t)seed / 3 % net.count);
		else
			actor_leave(&ranks.actors[seed % 2 ? 0 : ranks.world - 1], false);
		for (uint32_t i = 0; i < 40; i++)
			nodes_turn();
		shards_end(false);
	}
}

/* Who has no more time hears which node does not even answer; so do all, for it may be gone. */
Test(shards_end, a_node_that_sends_nothing_is_named)
{
	struct shards_run run = run_of("01", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);
	uint32_t unit;

	shards_begin(&run, 3);
	shards_write();
	unit = foreign()->unit;
	nodes_hold(1, 0, true);
	actor_start(&ranks.actors[0], 0, zero_unshard,
	            &(struct zero_op){ .unit = unit, .timeout_ns = 50 * ZI_NS_PER_MS });
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -ETIMEDOUT);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "node 1 (ranks 1"), "%s",
	                   ranks.actors[0].text.chars);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "does not report what it waits for"),
	                   "%s", ranks.actors[0].text.chars);
	nodes_hold(1, 0, false);
	for (uint32_t i = 0; i < 40; i++)
		nodes_turn();
	shards_end(false);
}

static void leave_node_1(void)
{
	for (uint32_t i = 0; i < ranks.world; i++)
		if (ranks.places[i] == 1)
			actor_leave(&ranks.actors[i], true);
}

static void expect_left(int got)
{
	cr_expect_eq(got, -EPIPE, "%d", got);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "are on node 1 (ranks 1"), "%s",
	                   ranks.actors[0].text.chars);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "whose ranks have left"), "%s",
	                   ranks.actors[0].text.chars);
}

/* All ranks of a node have left, cleanly: who wants more of its parameters hears that at once,
 * whether it had asked before, or does then. Nothing stays in flight, and the group stands. */
Test(shards_end, who_wants_parameters_of_a_node_that_has_left_is_told, .timeout = 120)
{
	each_draw(seed, 24) {
		uint32_t offload = seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME;
		struct shards_run run = run_of("011", offload, offload);
		uint32_t unit;
		int r;

		shards_begin(&run, seed);
		shards_write();
		unit = foreign()->unit;
		nodes_hold(0, 1, seed % 2); /* Then node 1 hears of it when its ranks have gone. */
		actor_start(&ranks.actors[0], 0, zero_unshard, &(struct zero_op){ .unit = unit });
		for (uint64_t i = 0; i < seed; i++)
			nodes_turn();
		leave_node_1();
		nodes_hold(0, 1, false);
		r = nodes_wait(&ranks.actors[0], 0);
		if (r || seed % 2)
			expect_left(r); /* Else it may have come before. */
		for (uint32_t i = 0; i < 2 && r; i++) {
			cr_expect_eq(call_unit(&ranks.actors[0], zero_prefetch, unit), 0);
			nodes_settle();
			expect_left(call_unit(&ranks.actors[0], zero_unshard, unit));
		}
		nodes_settle();
		cr_expect_eq(job_of(0)->busy_count, 0);
		cr_expect_eq(job_of(0)->group.phase, ZERO_GROUP_LIVE);
		shards_end(true);
	}
}

/* All have left, at about the same time: a node may be refused what nobody here wants any more. */
Test(shards_end, who_has_left_is_refused_as_well, .timeout = 120)
{
	each_draw(seed, 40) {
		struct shards_run run = run_of("01", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);

		shards_begin(&run, seed);
		shards_write();
		nodes_hold(0, 1, true);
		cr_assert_eq(call_unit(&ranks.actors[0], zero_prefetch, foreign()->unit), 0);
		nodes_turn();
		actor_leave(&ranks.actors[1], true);
		nodes_hold(0, 1, false);
		for (uint64_t i = 0; i < seed / 4; i++)
			nodes_turn();
		actor_leave(&ranks.actors[0], true);
		shards_end(true);
	}
}

/* A barrier that a rank's other thread calls while a write ends comes after it on all nodes. */
Test(shards_end, a_barrier_beside_a_write_comes_in_one_order, .timeout = 120)
{
	each_draw(seed, 24) {
		uint32_t offload = seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME;
		struct shards_run run = run_of("011", offload, offload);

		shards_begin(&run, seed);
		shards_write();
		cr_assert_eq(call_unit(&ranks.actors[0], zero_param_write_begin, 1), 0);
		for (uint32_t i = 0; i < ranks.world; i++)
			actor_start(&ranks.actors[i], 0, zero_param_write_end,
			            &(struct zero_op){ .unit = 1 });
		for (uint32_t i = 0; i < ranks.world; i++) {
			actor_start(&ranks.actors[i], 1, zero_barrier, NULL);
			for (uint32_t turns = net_draw(40); turns > 0; turns--)
				nodes_turn();
		}
		for (uint32_t i = 0; i < 2 * ranks.world; i++)
			cr_expect_eq(nodes_wait(&ranks.actors[i / 2], i % 2), 0, "seed %llu: %s",
			             (unsigned long long)seed, ranks.actors[i / 2].text.chars);
		shards_end(true);
	}
}

/* What a rank uses is not written; over nodes that ends the group, with its name. */
Test(shards_end, a_unit_in_use_is_not_written)
{
	struct shards_run run = run_of("011", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);

	shards_begin(&run, 4);
	shards_write();
	cr_assert_eq(call_unit(&ranks.actors[2], zero_unshard, 1), 0);
	cr_assert_eq(call_unit(&ranks.actors[0], zero_param_write_begin, 1), 0);
	cr_expect_eq(nodes_all(&ranks, zero_param_write_end, &(struct zero_op){ .unit = 1 }),
	             -EBUSY);
	all_hear(-EBUSY, "rank 2 has unit 'h.0' unsharded: reshard it first");
	shards_end(false);
}

/* Nor is one that a rank has asked for, and gets before all nodes have come. */
Test(shards_end, a_unit_that_comes_into_use_is_not_written)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct shards_run run = run_of("011", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);

		shards_begin(&run, seed);
		shards_write();
		cr_assert_eq(call_unit(&ranks.actors[0], zero_param_write_begin, 1), 0);
		actor_start(&ranks.actors[2], 1, zero_unshard, &(struct zero_op){ .unit = 1 });
		cr_expect_eq(
			nodes_all(&ranks, zero_param_write_end, &(struct zero_op){ .unit = 1 }),
			-EBUSY);
		all_hear(-EBUSY, "rank 2 has unit 'h.0' unsharded: reshard it first");
		shards_end(false);
	}
}

/* A call whose time is over while its node still waits for parameters ends for all, by name. */
Test(shards_end, a_call_that_waits_for_parameters_to_come_ends_for_all)
{
	struct shards_run run = run_of("01", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);
	struct zero_op op = { .unit = 0, .timeout_ns = 50 * ZI_NS_PER_MS };

	shards_begin(&run, 11);
	shards_write();
	cr_assert_eq(call_unit(&ranks.actors[0], zero_param_write_begin, 0), 0);
	nodes_hold(1, 0, true);
	cr_assert_eq(call_unit(&ranks.actors[0], zero_prefetch, foreign()->unit), 0);
	cr_expect_eq(nodes_all(&ranks, zero_param_write_end, &op), -ETIMEDOUT);
	nodes_hold(1, 0, false);
	all_hear(-ETIMEDOUT, "have not come from node 1 (ranks 1");
	shards_end(false);
}

/* Where parameters are on NVMe a node needs room for what it is to store. */
Test(shards_end, a_node_without_room_for_what_is_written_is_named)
{
	struct shards_run run = run_of("01", ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME);
	struct tier_charge charge = { 0 };
	struct zi_text why;

	shards_begin(&run, 5);
	cr_assert_eq(call_unit(&ranks.actors[0], zero_param_write_begin, 1), 0);
	cr_assert_eq(tier_charge_take(&charge, job_of(1)->cpu_tier, &job_of(1)->account->account,
	                              tier_free_bytes(job_of(1)->cpu_tier), &why),
	             0);
	cr_expect_eq(nodes_all(&ranks, zero_param_write_end, &(struct zero_op){ .unit = 1 }),
	             -ENOSPC);
	all_hear(-ENOSPC, "node 1 (ranks 1");
	tier_charge_return(&charge);
	shards_end(false);
}

/* Silent damage on one node is told on all. */
Test(shards_end, damage_is_named_and_never_sent)
{
	struct shards_run run = run_of("01", ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME);
	const struct zero_subgroup *theirs;
	const struct tier_extent *extent;

	shards_begin(&run, 6);
	shards_write();
	theirs = &job_of(1)->subgroups[job_subgroup_index(job_of(0), foreign())];
	cr_assert(theirs->is_here);
	extent = &theirs->places[ZERO_PLANE_PARAM].extent;
	flip(extent->member->path, extent->offset_bytes + 4000);
	cr_expect_neq(call_unit(&ranks.actors[0], zero_unshard, theirs->unit), 0);
	all_hear(-EBADMSG, "are damaged");
	shards_end(false);
}

/* A node of another mind is not believed. */
Test(shards_end, a_pull_of_what_is_not_there_is_refused)
{
	static const struct {
		uint32_t unit, subgroup, number, piece;
		uint64_t less;
	} asked[] = { { 9, 0, 1, 0, 0 }, { 1, 9, 1, 0, 0 }, { 1, 0, 0, 0, 0 },
		      { 1, 0, 7, 0, 0 }, { 1, 0, 1, 9, 0 }, { 1, 0, 1, 0, 4096 } };

	for (uint32_t i = 0; i < 2 * ZI_COUNT_OF(asked); i++) {
		bool is_owner = i % 2;
		struct shards_run run = run_of("01", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);
		struct talk_entry entry = { .kind = TALK_PULL,
			                    .what = PULL_PARAM,
			                    .tag = 77,
			                    .unit = asked[i / 2].unit,
			                    .subgroup = asked[i / 2].subgroup,
			                    .micro = asked[i / 2].number,
			                    .piece = asked[i / 2].piece };

		shards_begin(&run, 7 + i);
		/* Of one that it does not hold, whatever else is right. */
		if (!is_owner) {
			entry.unit = foreign()->unit;
			entry.subgroup = foreign()->index;
		}
		entry.bytes = ZI_SUBGROUP_ELEMENTS * 2 - asked[i / 2].less;
		nodes_say(1, 0, entry);
		all_hear(-EPROTO, "node 1 asks for");
		shards_end(false);
	}
}

static void ask_written(uint32_t unit, uint32_t subgroup, uint32_t number)
{
	nodes_say(1, 0,
	          (struct talk_entry){ .kind = TALK_PULL,
	                               .what = PULL_WRITTEN,
	                               .tag = 77,
	                               .unit = unit,
	                               .subgroup = subgroup,
	                               .micro = number,
	                               .bytes = 4096 });
}

/* With a pool what was written is there as long as it is being written. */
Test(shards_end, a_pull_of_what_was_written_before_is_refused)
{
	static const uint32_t asked[][3] = { /* unit, subgroup, number */
		                             { 0, 0, 0 },
		                             { 0, 0, 1 },
		                             { UNITS - 1, 0, UNITS },
		                             { 0, 9, UNITS },
		                             { 0, 0, UNITS + 2 }
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(asked); i++) {
		uint32_t offload = i % 2 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU;
		struct shards_run run = run_of("01", offload, offload);

		shards_begin(&run, 31 + i);
		shards_write();
		ask_written(asked[i][0], asked[i][1], asked[i][2]);
		all_hear(-EPROTO, "node 1 asks for");
		shards_end(false);
	}
}

/* Nor is another unit there than that which is written: who asks for it in advance waits. */
Test(shards_end, a_pull_of_what_nobody_writes_is_never_served)
{
	struct shards_run run = run_of("01", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);

	shards_begin(&run, 41);
	shards_write();
	ask_written(UNITS - 1, 0, UNITS + 1);
	cr_assert_eq(shards_write_unit(0, 0, 901), 0, "%s", ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < job_of(0)->across->slot_count; i++)
		cr_expect_neq(job_of(0)->across->serves[i].entry.tag, 77);
	job_of(0)->across->peers[1].pull_count = 0; /* Nobody is there to hear of it. */
	shards_end(true);
}

/* Memory for the own share is charged; one node without it fails the call on all. */
Test(shards_end, a_node_without_room_for_its_share_is_told)
{
	struct shards_run run = run_of("01", ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);
	const struct attach_options options = { .incarnation = "run.0",
		                                .config = run.config,
		                                .training = run.training };

	nodes_init(2, 9);
	net.nodes[1].cpu_bytes = 17 * MIB; /* The slab takes 16. */
	nodes_start();
	nodes_attach(&ranks, run.places, &options);
	nodes_layout(&ranks);
	cr_expect_eq(nodes_materialize(&ranks), -ENOSPC);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "asked for on cpu:0"), "%s",
	                   ranks.actors[0].text.chars);
	end_run(false);
}
