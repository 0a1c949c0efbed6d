/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: blobs belong to the ranks of the commit, whoever has been attached since. Method: four
 * ranks commit, two come and leave without a commit, then what is committed is written down once
 * more: by a snapshot, by a move off a drained path.
 */
#include "daemon/tier/drain.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/step/commit.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[4];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;

static void leave(void)
{
	actors_leave(actors, 4, true);
	node_settle(&node);
}

static void attach(const char *job, uint32_t world)
{
	model_attach(&node, actors, world,
	             &(struct attach_options){ .job = job, .config = config });
}

static void materialize(uint32_t world)
{
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
}

/* Step 1 is of four ranks; two have been attached since. */
static void begin(uint32_t store_count)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_bytes = 48 * MIB;
	node.store_count = store_count;
	node_start(&node);
	plain_init(&plain, &config, 4);
	attach("train", 4);
	materialize(4);
	model_write(actors, 4);
	cr_assert_eq(model_step(actors, 4, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	leave();
	attach("train", 2);
	materialize(2);
}

static void restart(void)
{
	leave();
	node_stop(&node);
	node_start(&node);
}

/* Of four ranks that are attached. */
static void check(void)
{
	for (uint32_t i = 0; i < 4; i++) {
		uint64_t bytes = 0;
		const void *blob = zero_blob(actors[i].rank, &bytes);

		cr_assert_eq(bytes, 6, "rank %u", i);
		cr_assert_eq(memcmp(blob, "blob 1", 6), 0);
	}
	cr_assert(plain_equals(&plain, &actors[3]));
}

static void end(void)
{
	leave();
	plain_deinit(&plain);
	node_deinit(&node);
}

Test(zero_blob, snapshot_has_those_of_all_ranks_of_its_step, .timeout = 60)
{
	struct zi_text text;

	begin(1);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "a"), 0, "%s",
	             kept.op.text.chars);
	restart();
	attach("other", 4);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(zero_load(actors[i].rank, "train", "a", &text), 0, "%s", text.chars);
	materialize(4);
	check();
	end();
}

Test(zero_blob, job_that_is_moved_keeps_those_of_all_ranks_of_its_step, .timeout = 60)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	struct zi_text text;

	begin(2);
	leave();
	cr_assert_gt(tier_member_used_bytes(&node.nvme.members[1]), 0);
	cr_assert_eq(tier_member_drain(&node.nvme.members[1], true, &text), 0, "%s", text.chars);
	zero_evacuate(node.zero);
	while (tier_member_used_bytes(&node.nvme.members[1])) {
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the path is never empty");
		node_turn(&node);
	}
	restart();
	attach("train", 4);
	materialize(4);
	check();
	end();
}

/* A smaller world that does commit leaves the larger one's behind. */
Test(zero_blob, next_commit_has_those_of_its_own_ranks_alone, .timeout = 60)
{
	struct zi_step_options options = model_options();
	uint64_t bytes = 7;

	begin(1);
	plain.world = 2;
	cr_assert_eq(model_step(actors, 2, 2, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 2, &options);
	restart();
	attach("train", 4);
	materialize(4);
	cr_assert_null(zero_blob(actors[2].rank, &bytes));
	cr_assert_eq(bytes, 0);
	cr_assert_eq(memcmp(zero_blob(actors[1].rank, &bytes), "blob 2", 6), 0);
	cr_assert(plain_equals(&plain, &actors[3]));
	end();
}
