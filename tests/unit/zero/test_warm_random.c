/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with warm slots a job has the bits of docs/ARITHMETIC.md and nothing else, whatever comes
 * between its steps. Method: random sequences of steps (early, skipped, clipped), deaths in a step,
 * values written, commits, snapshots, jobs that leave, and disks whose k-th write fails, of a job
 * with a resident share, a pool, a number of slots and commit_interval as drawn at each attach;
 * beside it the plain computation, with those of the last steps to fall back to. After each, what
 * is warm is compared with the checksums in force. A failure prints its seed.
 */
#include "tests/unit/zero/kept.h"
#include "tests/unit/zero/warm.h"

#define OPS   40u
#define SEEDS 4u
/* commit_interval at most: what a job can fall back by. */
#define INTERVAL_MAX 3u
#define PASTS        (INTERVAL_MAX + 1)

static struct node node;
static struct actor actors[1];
static struct plain plain;
static struct plain pasts[PASTS]; /* by step */
static struct kept kept;
static struct zi_job_config config;
static uint64_t state, seed;
static uint32_t snapshot_count, failed_count, warm_count;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((state >> 33) % below);
}

static void plain_copy(struct plain *target, const struct plain *source)
{
	target->beta1_power = source->beta1_power;
	target->beta2_power = source->beta2_power;
	target->update_count = source->update_count;
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t bytes = zi_geometry_padded(model_elements[unit]) * 4;

		memcpy(target->param[unit], source->param[unit], bytes);
		memcpy(target->remainder[unit], source->remainder[unit], bytes);
		memcpy(target->exp_avg[unit], source->exp_avg[unit], bytes);
		memcpy(target->exp_avg_sq[unit], source->exp_avg_sq[unit], bytes);
	}
}

static struct zero_job *job(void)
{
	return node_job(&node, "train");
}

static struct plain *past(void)
{
	return &pasts[(uint64_t)job()->current_step % PASTS];
}

static void draw_config(void)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	config.staging_bytes = (3 + draw(4)) * 3 * MIB;
	config.resident_bytes = draw(2) * 3 * MIB;
	config.commit_interval = 1 + draw(INTERVAL_MAX);
	if (draw(2))
		return;
	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = (260 + draw(2) * 12) * 4096ull;
}

/* It stands at a step that was, and has its bits. */
static void attach(void)
{
	draw_config();
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "seed %llu: %s", (unsigned long long)seed,
	             actors[0].text.chars);
	cr_assert(warm_is_none(job()));
	if (actors[0].memory.committed_step < 0) {
		model_write(actors, 1);
		plain_copy(past(), &plain);
	}
	plain_copy(&plain, past());
	cr_assert(plain_equals(&plain, &actors[0]), "seed %llu: as committed",
	          (unsigned long long)seed);
}

static void leave(bool is_clean)
{
	actor_leave(&actors[0], is_clean);
	node_settle(&node);
}

/* Return: 0; the error of a disk that fails. */
static int op_step(void)
{
	uint64_t number = (uint64_t)job()->current_step + 1;
	struct zi_step_options options = model_options();
	bool is_skipped = draw(4) == 0;
	int r;

	options.flags = draw(2) ? ZI_STEP_UPDATE_EARLY : 0;
	if (draw(3) == 0)
		options.max_norm = 0.25;
	if (is_skipped)
		options.flags |= ZI_STEP_SKIP_NONFINITE;
	poison = (struct poison){ grad_what(number, 0, 0, 1), 17, INFINITY, is_skipped };
	warm_count += !zi_list_is_empty(&job()->warm);
	r = model_step(actors, 1, number, &options);
	poison.count = 0;
	if (r)
		return r;
	if (!is_skipped)
		plain_step(&plain, number, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "seed %llu: step %llu",
	          (unsigned long long)seed, (unsigned long long)number);
	plain_copy(past(), &plain);
	return 0;
}

/* The rank dies in the middle of a step, units updated early among them. */
static void op_break(void)
{
	struct zi_step_options options = model_options();

	options.flags = draw(2) ? ZI_STEP_UPDATE_EARLY : 0;
	cr_assert_eq(actor_call(actors, zero_step_begin, &(struct zero_op){ .options = options }),
	             0, "seed %llu: %s", (unsigned long long)seed, actors[0].text.chars);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (draw(2))
			cr_assert_eq(actor_unit(actors, zero_reduce, unit), 0);
	for (uint32_t turns = draw(12); turns > 0; turns--)
		node_turn(&node);
	leave(false);
	attach();
}

static void commit(void)
{
	cr_assert_eq(actor_call(actors, zero_commit, NULL), 0, "seed %llu: %s",
	             (unsigned long long)seed, actors[0].text.chars);
	cr_assert_eq(job()->committed_step, job()->current_step);
}

/* New values of a unit: its optimizer state counts as zero. */
static void op_write(void)
{
	uint32_t unit = draw(UNITS);
	uint64_t bytes = zi_geometry_padded(model_elements[unit]) * 4;

	commit();
	model_write_unit(actors, 1, unit, 500);
	(void)warm_bytes(job());
	commit();
	fill(plain.param[unit], 500 + unit, model_elements[unit], ZI_DTYPE_BF16);
	memset(plain.remainder[unit], 0, bytes);
	memset(plain.exp_avg[unit], 0, bytes);
	memset(plain.exp_avg_sq[unit], 0, bytes);
	plain_copy(past(), &plain);
}

static void op_snapshot(void)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "s%u", snapshot_count++);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", name), 0,
	             "seed %llu: %s", (unsigned long long)seed, kept.op.text.chars);
	if (draw(2))
		cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", name), 0);
}

static void restart(const char *backend)
{
	leave(draw(2));
	node_stop(&node);
	node.backend = backend;
	node_start(&node);
	attach();
}

/* One write fails, in a step or in the commit that nobody asked for, or none. */
static void op_fault(void)
{
	static char backend[64];
	int r = 0;

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,write_eio_at=%u",
	               1 + draw(40));
	restart(backend);
	for (uint32_t i = 0; i < 3 && !r; i++)
		r = op_step();
	failed_count += r != 0;
	cr_assert(!r || r == -EIO, "seed %llu: %s", (unsigned long long)seed, actors[0].text.chars);
	node_settle(&node);
	cr_assert(!r || warm_is_none(job()));
	restart("threads");
}

static void one_op(void)
{
	switch (draw(12)) {
	case 0:
		op_break();
		break;
	case 1:
		op_write();
		break;
	case 2:
		op_snapshot();
		break;
	case 3:
		commit();
		break;
	case 4:
		op_fault();
		break;
	case 5:
		leave(draw(2));
		attach();
		break;
	default:
		cr_assert_eq(op_step(), 0, "seed %llu: %s", (unsigned long long)seed,
		             actors[0].text.chars);
		break;
	}
	node_settle(&node);
	(void)warm_bytes(job());
	node_check_space(&node);
}

static void run(void)
{
	node_init(&node);
	node.seed = seed;
	node.store_bytes = 192 * MIB;
	node_start(&node);
	state = seed * 0x9e3779b97f4a7c15ull;
	snapshot_count = 0;
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	plain_init(&plain, &config, 1);
	for (uint32_t i = 0; i < PASTS; i++)
		plain_init(&pasts[i], &config, 1);
	attach();
	for (uint32_t op = 0; op < OPS; op++)
		one_op();
	leave(true);
	for (uint32_t i = 0; i < PASTS; i++)
		plain_deinit(&pasts[i]);
	plain_deinit(&plain);
	node_deinit(&node);
}

Test(zero_warm_random, what_comes_between_steps_changes_no_bit)
{
	const char *only = getenv("SEED");

	for (uint32_t i = 0; i < (only ? 1 : SEEDS); i++) {
		seed = only ? strtoull(only, NULL, 10) : i + 1;
		cr_log_info("seed %llu", (unsigned long long)seed);
		run();
	}
	if (only)
		return;
	cr_assert_gt(failed_count, 2, "steps fail");
	cr_assert_gt(warm_count, 20, "steps begin with what is warm");
}
