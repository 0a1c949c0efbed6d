/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with zero1 and zero2, which divide the optimizer's state and not the parameters, nodes may
 * have these on NVMe: each keeps all of them on its own store, writes there what others update, and
 * has the bits of one place at each step, whoever is lost at whatever moment. Method: several zeros
 * in one process beside the plain computation (across_train.h).
 */
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/flip.h"

TestSuite(across_kept, .timeout = 300);

static struct train drawn(uint64_t seed)
{
	static const char *const places[] = { "01", "0012", "0123", "011", "0101", "210" };
	struct train train = wanted(places[seed % ZI_COUNT_OF(places)], ZI_OFFLOAD_NVME);

	train.config.offload_param = ZI_OFFLOAD_NVME;
	train.training.strategy = seed % 2 ? ZI_STRATEGY_ZERO1 : ZI_STRATEGY_ZERO2;
	train.config.commit_interval = seed % 5 == 4 ? 2 : 1;
	train.config.resident_bytes = seed % 3 ? 0 : 3 * MIB;
	train.config.staging_bytes = seed % 7 < 4 ? 9 * MIB : 16 * MIB; /* Three slots. */
	train.config.param_budget_bytes = seed % 4 == 3 ? 260 * 4096 : 0;
	if (seed % 4 == 1)
		train.config.param_dtype = train.config.grad_dtype = ZI_DTYPE_F32;
	return train;
}

/* Every subgroup's parameters are on every node's store, the state on some. */
static void expect_kept(void)
{
	for (uint32_t i = 0; i < net.count; i++) {
		const struct zero_job *job = node_job(&net.nodes[i], "train");

		cr_expect_eq(job->kept_count, job->subgroup_count);
		for (uint32_t k = 0; k < job->subgroup_count; k++) {
			const struct zero_subgroup *subgroup = &job->subgroups[k];

			cr_expect_gt(subgroup->places[ZERO_PLANE_PARAM].extent.bytes, 0);
			cr_expect(subgroup->is_here ||
			          !subgroup->places[ZERO_PLANE_STATE].extent.bytes);
		}
	}
}

Test(across_kept, nodes_train_the_bits_of_one_place)
{
	each_draw(seed, 16) {
		struct train what = drawn(seed);

		begin_train(&what, seed);
		steps(1, 3);
		expect_kept();
		train_leave(true);
		cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
		cr_assert_eq(train_committed(), 3);
		train_check(3);
		steps(4, 5);
		end_train();
	}
}

/* State is divided in a replica; and units of all ranks, of some, and of those of one node. */
Test(across_kept, replicas_and_sets)
{
	static const struct model_set sets[UNITS] = { { "some", 0x2a },
		                                      { "all", 0x3f },
		                                      { "near", 0x03 } };

	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct train what = drawn(seed);

		if (seed % 2) {
			what.places = seed % 4 == 1 ? "001122" : "002121";
			what.sets = sets;
		} else {
			what.places = seed % 4 ? "0011" : "0123";
			what.training.shard_size = 2;
		}
		begin_train(&what, seed);
		steps(1, 3);
		end_train();
	}
}

/* All daemons began anew. */
Test(across_kept, nodes_go_on_from_their_stores)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train what = drawn(seed);
		int64_t step = what.config.commit_interval > 1 ? 4 : 3;

		begin_train(&what, seed);
		steps(1, (uint64_t)step);
		train_leave(true);
		for (uint32_t i = 0; i < net.count; i++) {
			node_stop(&net.nodes[i]);
			node_start(&net.nodes[i]);
		}
		resumed(step);
		expect_kept();
		steps((uint64_t)step + 1, (uint64_t)step + 2);
		end_train();
	}
}

/* ---- what is lost ---- */

static uint32_t kept_count, undone_count;

static void step_lost(void)
{
	uint64_t step = 1 + (uint64_t)node_job(&net.nodes[0], "train")->committed_step;
	enum anchor anchor = (enum anchor)net_draw(_ANCHOR_COUNT);
	enum loss loss = (enum loss)net_draw(_LOSS_COUNT);
	uint32_t place = net_draw(net.count), moment = net_draw(60);
	int64_t committed;

	lose_in_step(step, anchor, moment, loss, place);
	committed = go_on_from(step);
	kept_count += committed == (int64_t)step;
	undone_count += committed != (int64_t)step;
	expect_kept();
}

Test(across_kept, who_is_lost_at_any_moment_costs_a_step_at_most)
{
	each_draw(seed, 12) {
		struct train what = drawn(seed);
		int64_t step;

		what.config.commit_interval = 1;
		begin_train(&what, seed);
		for (uint32_t i = 0; i < 4; i++)
			step_lost();
		step = node_job(&net.nodes[0], "train")->committed_step;
		steps((uint64_t)step + 1, (uint64_t)step + 2);
		end_train();
	}
	cr_expect(kept_count >= 4 && undone_count >= 4, "%u kept, %u undone", kept_count,
	          undone_count);
}

/* ---- what cannot be ---- */

/* Silent damage of what others update is told to who uses it. */
Test(across_kept, what_is_kept_of_others_is_verified)
{
	struct train what = drawn(2);
	struct tier_extent *extent;
	struct zero_job *job;
	uint32_t unit = 0;

	what.config.commit_interval = 1;
	begin_train(&what, 5);
	steps(1, 2);
	job = node_job(&net.nodes[1], "train");
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		if (job->subgroups[i].is_here)
			continue;
		unit = job->subgroups[i].unit;
		extent = &job->subgroups[i].places[ZERO_PLANE_PARAM].extent;
		flip(extent->member->path, extent->offset_bytes + 4000);
		break;
	}
	/* What it keeps of others is verified when it is used. */
	nodes_settle();
	(void)residency_void(job, unit);
	for (uint32_t i = 0; i < ranks.world; i++)
		if (ranks.places[i] == 1) {
			cr_expect_eq(train_call(i, zero_unshard, unit), -EBADMSG);
			cr_expect_not_null(strstr(ranks.actors[i].text.chars, "are damaged"));
			break;
		}
	train_leave(false);
	train_deinit();
}
