/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever is done in whatever order, free space is exact and no extent is overwritten while
 * anybody names it. Method: random sequences of steps (early, skipped, or broken off by a death),
 * snapshots, removals, loads, deletions and restarts over a few jobs, each with a pool or without,
 * with a resident share and commit_interval as drawn at each attach; after each, every holder's
 * extents are read from the store and compared with its checksums, and counted against the free
 * space. A failure prints its seed.
 */
#include "daemon/zero/param/fetch.h"
#include "tests/unit/zero/kept.h"

#define JOBS     3u
#define OPS      40u
#define SEEDS    3u
#define KEPT_MAX 6u

static struct node node;
static struct actor actors[JOBS];
static struct kept kept;
static struct zi_job_config config;
static uint64_t state, seed;
static uint32_t name_count;
static struct {
	char job[8], name[16];
	int64_t step;
} snapshots[KEPT_MAX];
static uint32_t snapshot_count;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((state >> 33) % below);
}

static const char *const names[JOBS] = { "a", "b", "c" };

static void draw_config(void)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	config.staging_bytes = 10 * MIB;
	config.resident_bytes = draw(2) * 3 * MIB;
	config.commit_interval = 1 + draw(3);
	if (draw(2))
		return;
	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = (260 + draw(2) * 12) * 4096ull;
}

/* Attaches job @i, new or not, from snapshot @from (KEPT_MAX: none). */
static void attach(uint32_t i, uint32_t from)
{
	struct zi_text text;

	draw_config();
	model_attach(&node, &actors[i], 1,
	             &(struct attach_options){ .job = names[i], .config = config });
	if (from < KEPT_MAX)
		cr_assert_eq(
			zero_load(actors[i].rank, snapshots[from].job, snapshots[from].name, &text),
			0, "seed %llu: %s", (unsigned long long)seed, text.chars);
	cr_assert_eq(model_materialize(&actors[i], 1), 0, "seed %llu: %s", (unsigned long long)seed,
	             actors[i].text.chars);
	if (actors[i].memory.committed_step < 0)
		model_write(&actors[i], 1);
	else if (from < KEPT_MAX)
		cr_assert_eq(actors[i].memory.committed_step, snapshots[from].step);
}

static void op_step(uint32_t i)
{
	struct zi_step_options options = model_options();
	struct zero_job *job = actors[i].rank->job;

	/* Some are skipped, and commit no extents. */
	options.flags = draw(2) ? ZI_STEP_UPDATE_EARLY : 0;
	if (draw(4) == 0) {
		options.flags = ZI_STEP_SKIP_NONFINITE;
		options.unscale = INFINITY;
	}
	cr_assert_eq(model_step(&actors[i], 1, (uint64_t)job->current_step + 1, &options), 0,
	             "seed %llu: %s", (unsigned long long)seed, actors[i].text.chars);
}

/* The rank dies in the middle of a step, units updated early among them, and comes back. */
static void op_break(uint32_t i)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	cr_assert_eq(
		actor_call(&actors[i], zero_step_begin, &(struct zero_op){ .options = options }), 0,
		"seed %llu: %s", (unsigned long long)seed, actors[i].text.chars);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (draw(2))
			cr_assert_eq(actor_unit(&actors[i], zero_reduce, unit), 0);
	for (uint32_t turns = draw(12); turns > 0; turns--)
		node_turn(&node);
	actor_leave(&actors[i], false);
	node_settle(&node);
	attach(i, KEPT_MAX);
}

/* New values of a unit: its optimizer state counts as zero. */
static void op_write(uint32_t i)
{
	/* What is ahead comes first. */
	cr_assert_eq(actor_call(&actors[i], zero_commit, NULL), 0);
	model_write_unit(&actors[i], 1, draw(UNITS), 77);
	cr_assert_eq(actor_call(&actors[i], zero_commit, NULL), 0);
}

static void op_snapshot(uint32_t i)
{
	char name[16];

	if (snapshot_count == KEPT_MAX)
		return;
	(void)snprintf(name, sizeof(name), "s%u", name_count++);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, names[i], name), 0,
	             "seed %llu: %s", (unsigned long long)seed, kept.op.text.chars);
	cr_assert_eq(zi_copy_name(snapshots[snapshot_count].job, 8, names[i]), 0);
	cr_assert_eq(zi_copy_name(snapshots[snapshot_count].name, 16, name), 0);
	snapshots[snapshot_count++].step = kept.op.step;
}

static void op_remove(void)
{
	uint32_t which;

	if (!snapshot_count)
		return;
	which = draw(snapshot_count);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, snapshots[which].job,
	                       snapshots[which].name),
	             0, "seed %llu: %s", (unsigned long long)seed, kept.op.text.chars);
	snapshots[which] = snapshots[--snapshot_count];
}

/* The job ends, and begins with a snapshot, or empty. */
static void op_load(uint32_t i)
{
	cr_assert_eq(actor_call(&actors[i], zero_job_destroy, NULL), 0);
	actors[i].rank = NULL;
	attach(i, snapshot_count ? draw(snapshot_count) : KEPT_MAX);
}

static void op_restart(void)
{
	for (uint32_t i = 0; i < JOBS; i++)
		actor_leave(&actors[i], false);
	node_stop(&node);
	node_start(&node);
	node_check_space(&node);
	for (uint32_t i = 0; i < JOBS; i++)
		attach(i, KEPT_MAX);
}

static void run(void)
{
	node_init(&node);
	node.store_bytes = 128 * MIB;
	node_start(&node);
	state = seed * 0x9e3779b97f4a7c15ull;
	snapshot_count = 0;
	for (uint32_t i = 0; i < JOBS; i++)
		attach(i, KEPT_MAX);
	for (uint32_t op = 0; op < OPS; op++) {
		uint32_t i = draw(JOBS);

		switch (draw(10)) {
		case 0:
		case 1:
		case 2:
			op_step(i);
			break;
		case 3:
		case 4:
			op_snapshot(i);
			break;
		case 5:
			op_remove();
			break;
		case 6:
			op_load(i);
			break;
		case 7:
			op_write(i);
			break;
		case 8:
			op_break(i);
			break;
		default:
			op_restart();
			break;
		}
		node_settle(&node);
		node_check_space(&node);
	}
	for (uint32_t i = 0; i < JOBS; i++) {
		cr_assert_eq(actor_call(&actors[i], zero_job_destroy, NULL), 0);
		actors[i].rank = NULL;
	}
	while (snapshot_count)
		op_remove();
	cr_assert_eq(nvme_space_free_bytes(node.nvme.members[0].space),
	             nvme_space_total_bytes(node.nvme.members[0].space), "nothing is left");
	cr_assert_eq(node.zero->shares.count, 0);
	node_deinit(&node);
}

Test(zero_snapshot_random, free_space_is_exact_and_nothing_named_is_overwritten)
{
	const char *only = getenv("SEED");

	for (uint32_t i = 0; i < (only ? 1 : SEEDS); i++) {
		seed = only ? strtoull(only, NULL, 10) : i + 1;
		cr_log_info("seed %llu", (unsigned long long)seed);
		run();
	}
}
