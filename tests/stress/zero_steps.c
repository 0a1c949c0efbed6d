/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a step has no data race, whoever dies when, and dying changes no bit. Method: two ranks on
 * this thread's loop train a small model over real pool threads, the commit thread and the I/O
 * threads, many steps with a random resident share; they read parameters and write gradients as
 * soon as they are given them. A random rank dies at a random call, all attach again and go on from
 * the last commit; norms and parameters of each step are those of a run without deaths. Meant for
 * TSan; a plain main, because a Criterion binary does not start under it. Exits 0, or aborts.
 */
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/step.h"
#include "kernels/cast.h"
#include "kernels/hash.h"
#include "kernels/kernels.h"
#include "tests/stress/zero_node.h"

/* ---- training ---- */

static void *unit_in(const struct place *place, struct tier_segment *segment, uint32_t unit)
{
	const struct zero_unit *entry = &place->rank->job->units[unit];

	return (char *)segment->region.base +
	       (segment == place->memory.param ? entry->param_offset : entry->grad_offset);
}

static void fill(void *target, uint64_t what, uint64_t count, uint32_t dtype)
{
	static float values[1u << 19];

	check(count <= ZI_COUNT_OF(values), "a unit is too large");
	for (uint64_t i = 0; i < count; i++)
		values[i] = (float)(int32_t)mix(what * 0x9e3779b97f4a7c15ull + i) * 0x1p-31f;
	kern_narrow(target, values, count, (enum zi_dtype)dtype);
}

static uint64_t unit_bytes(const struct stress *stress, uint32_t unit)
{
	return unit_elements[unit] * zi_dtype_bytes((enum zi_dtype)stress->config.param_dtype);
}

static int attach(struct stress *stress)
{
	char name[32];
	int r = 0;

	(void)snprintf(name, sizeof(name), "run.%u", stress->start++);
	stress->life = 1 + draw(stress, draw(stress, 2) ? 60 : 250);
	stress->config.resident_bytes = draw(stress, 5) * (stress->model ? MIB / 2 : 0);
	stress->config.commit_interval = stress->model ? draw(stress, 4) : 0;
	for (uint32_t i = 0; i < WORLD && !r; i++) {
		struct zero_attach options = {
			.job = "stress",
			.incarnation = name,
			.pid = getpid(),
			.rank = i,
			.world_size = WORLD,
			.config = stress->config,
			.timeout_ns = 60 * ZI_NS_PER_S,
			.broken = broken,
		};
		struct zero_rank *rank = NULL;
		struct zi_text text = { "" };
		uint64_t number;

		r = zero_attach(stress->zero, &options, &text, &rank, &number);
		check(!r, text.chars);
		/* The former start may still be there: it is fenced, and leaves now. */
		if (stress->places[i].rank)
			leave(stress, i, false);
		stress->places[i].rank = rank;
	}
	return r;
}

static void add_layout(struct place *place)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };
		struct zi_text text;

		(void)snprintf(entry.name, sizeof(entry.name), "unit %u", unit);
		check(!zero_layout_add(place->rank, &entry, &text), "a unit");
		entry.kind = ZI_LAYOUT_PARAM;
		entry.dim_count = 1;
		entry.shape[0] = unit_elements[unit];
		check(!zero_layout_add(place->rank, &entry, &text), "a parameter");
	}
}

/* What was committed with the step is given back. */
static void check_blob(const struct place *place, uint32_t index)
{
	uint64_t bytes = 0;
	const void *blob = zero_blob(place->rank, &bytes);
	int64_t wanted[2] = { place->memory.committed_step, index };

	check(bytes == sizeof(wanted) && !memcmp(blob, wanted, bytes), "another step's blob");
}

static int materialize(struct stress *stress)
{
	const struct zero_op none[WORLD] = { 0 };
	int r;

	for (uint32_t i = 0; i < WORLD; i++)
		add_layout(&stress->places[i]);
	r = all(stress, 0, zero_materialize, none);
	if (r)
		return r;
	for (uint32_t i = 0; i < WORLD; i++) {
		zero_materialized(stress->places[i].rank, &stress->places[i].memory);
		if (stress->places[i].memory.committed_step >= 0)
			check_blob(&stress->places[i], i);
	}
	return 0;
}

/* First values, committed as step 0. */
static int write_params(struct stress *stress)
{
	int64_t blobs[WORLD][2];
	struct zero_op ops[WORLD] = { 0 };
	int r;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		r = one(stress, 0, zero_param_write_begin, &(struct zero_op){ .unit = unit });
		if (r)
			return r;
		fill(zero_param_staging(stress->places[0].rank)->region.base, 900 + unit,
		     unit_elements[unit], stress->config.param_dtype);
		for (uint32_t i = 0; i < WORLD; i++)
			ops[i].unit = unit;
		r = all(stress, 0, zero_param_write_end, ops);
		if (r)
			return r;
	}
	for (uint32_t i = 0; i < WORLD; i++) {
		blobs[i][0] = 0;
		blobs[i][1] = i;
		ops[i].blob = blobs[i];
		ops[i].blob_bytes = sizeof(blobs[i]);
	}
	return all(stress, 0, zero_commit, ops);
}

/* All kinds of steps: plain, clipped, checked, and one that is skipped. */
static struct zi_step_options step_options(const struct stress *stress, int64_t step)
{
	return (struct zi_step_options){
		.lr = 1e-2,
		.beta1 = 0.9,
		.beta2 = 0.99,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.unscale = 0.5,
		.max_norm = step % 3 == 1 ? 1.0 : 0.0,
		.micro_batches = stress->config.schedule == ZI_SCHEDULE_SHARDED ? 2 : 1,
		.flags = ZI_STEP_UPDATE_EARLY | (step % 3 == 2 ? ZI_STEP_SKIP_NONFINITE : 0),
	};
}

static int gradient(struct stress *stress, uint32_t index, int64_t step, uint32_t micro,
                    uint32_t unit)
{
	struct place *place = &stress->places[index];
	uint64_t what = (((uint64_t)step * 4 + micro) * WORLD + index) * UNITS + unit;
	uint32_t dtype = stress->config.grad_dtype;
	void *grad;
	int r;

	r = one(stress, index, zero_grad_acquire, &(struct zero_op){ .unit = unit });
	if (r)
		return r;
	grad = unit_in(place, place->memory.grad, unit);
	fill(grad, what, unit_elements[unit], dtype);
	if (step == 5 && index == 1 && unit == 2)
		kern_narrow(grad, &(float){ __builtin_inff() }, 1, (enum zi_dtype)dtype);
	return one(stress, index, zero_reduce, &(struct zero_op){ .unit = unit });
}

static int gradients(struct stress *stress, int64_t step)
{
	struct zero_op begin = { .options = step_options(stress, step) };
	const struct zero_op begins[WORLD] = { begin, begin };
	int r = all(stress, 0, zero_step_begin, begins);

	for (uint32_t micro = 0; micro < begin.options.micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < WORLD && !r; i++)
				r = gradient(stress, (i + unit + (uint32_t)step) % WORLD, step,
				             micro, unit);
	return r;
}

/* The next forward of a rank: its unshards are under way; each unit is read as soon as it may be,
 * and is that of @step. */
static int forward(struct stress *stress, uint32_t index, int64_t step)
{
	struct place *place = &stress->places[index];
	int r = 0;

	for (uint32_t unit = 0; unit < UNITS && !r; unit++) {
		uint64_t hash;

		r = place->rank ? finish(stress, index, 1 + unit) : -EPIPE;
		if (r || !place->rank)
			return -EPIPE;
		hash = kern_hash(unit_in(place, place->memory.param, unit),
		                 unit_bytes(stress, unit));
		check(!stress->model || hash == stress->model->hashes[step][unit],
		      "parameters differ from those of a run without deaths");
		stress->hashes[step][unit] = hash;
		r = start(stress, index, 1 + unit, zero_reshard, &place->calls[1 + unit].op);
	}
	return r;
}

/* Gradient buffers are the rank's again long before the commit, and then nobody else's. */
static int scribble(struct stress *stress, uint32_t index)
{
	struct place *place = &stress->places[index];

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		int r = start(stress, index, GRAD_CALL, zero_grad_acquire,
		              &(struct zero_op){ .unit = unit });

		if (!r)
			r = finish(stress, index, GRAD_CALL);
		if (r || !place->rank)
			return -EPIPE;
		memset(unit_in(place, place->memory.grad, unit), 0x7e, unit_bytes(stress, unit));
	}
	return 0;
}

static int unshard_all(struct stress *stress)
{
	struct zero_op ops[WORLD] = { 0 };
	int r = 0;

	for (uint32_t unit = 0; unit < UNITS && !r; unit++)
		for (uint32_t i = 0; i < WORLD && !r; i++) {
			ops[i].unit = unit;
			r = start(stress, i, 1 + unit, zero_unshard, &ops[i]);
		}
	return r;
}

static void norm_keep(struct stress *stress, int64_t step, double norm)
{
	check(!stress->model || !memcmp(&norm, &stress->model->norms[step], sizeof(norm)),
	      "a norm differs from that of a run without deaths");
	stress->norms[step] = norm;
}

/* The end of @step, with the forward of the next one under way before it is committed. */
static int end_step(struct stress *stress, int64_t step)
{
	int64_t blobs[WORLD][2];
	int r = 0;

	for (uint32_t i = 0; i < WORLD && !r; i++) {
		blobs[i][0] = step;
		blobs[i][1] = i;
		r = start(stress, i, 0, zero_step,
		          &(struct zero_op){ .blob = blobs[i], .blob_bytes = sizeof(blobs[i]) });
	}
	if (!r)
		r = unshard_all(stress);
	for (uint32_t i = 0; i < WORLD && !r; i++)
		r = step % 2 ? scribble(stress, i) : forward(stress, i, step);
	for (uint32_t i = 0; i < WORLD && !r; i++)
		r = step % 2 ? forward(stress, i, step) : scribble(stress, i);
	for (uint32_t i = 0; i < WORLD && !r; i++)
		r = stress->places[i].rank ? finish(stress, i, 0) : -EPIPE;
	if (!r)
		norm_keep(stress, step, stress->places[0].calls[0].op.stats.norm);
	return r;
}

/* Until a rank dies, or the last step is committed. */
static int train(struct stress *stress)
{
	int64_t step = stress->places[0].memory.committed_step;
	int r = 0;

	if (step < 0) {
		r = write_params(stress);
		step = 0;
	}
	while (!r && step++ < STEPS) {
		r = gradients(stress, step);
		if (!r)
			r = end_step(stress, step);
	}
	return r;
}

/* What is pending ends, by a commit or by the death of the other. Some stay until they are fenced.
 */
static void survivors_end(struct stress *stress)
{
	for (uint32_t i = 0; i < WORLD; i++) {
		struct place *place = &stress->places[i];

		for (uint32_t slot = 0; slot < CALLS; slot++)
			if (place->rank && place->calls[slot].op.done)
				(void)finish(stress, i, slot);
		memset(place->calls, 0, sizeof(place->calls));
		if (place->rank && draw(stress, 2))
			leave(stress, i, draw(stress, 2));
	}
}

/* @model: NULL: nobody dies. */
static void run(struct stress *stress, const struct zi_job_config *config, uint64_t seed,
                const struct stress *model)
{
	*stress = (struct stress){ .config = *config, .random = seed, .model = model };
	stress_begin(stress);
	for (;;) {
		int r = attach(stress);

		if (!r)
			r = materialize(stress);
		if (!r)
			r = train(stress);
		if (!r)
			break;
		check(stress->model, "a call failed, though nobody died");
		survivors_end(stress);
	}
	for (uint32_t i = 0; i < WORLD; i++)
		if (stress->places[i].rank)
			leave(stress, i, true);
	stress_end(stress);
}

int main(void)
{
	static const struct zi_job_config configs[] = {
		{ .param_dtype = ZI_DTYPE_BF16,
		  .grad_dtype = ZI_DTYPE_BF16,
		  .optimizer = ZI_OPTIMIZER_ADAMW,
		  .schedule = ZI_SCHEDULE_LOCAL,
		  .offload_optimizer = ZI_OFFLOAD_NVME,
		  .durability = ZI_DURABILITY_POWER },
		{ .param_dtype = ZI_DTYPE_F32,
		  .grad_dtype = ZI_DTYPE_F32,
		  .optimizer = ZI_OPTIMIZER_ADAM,
		  .schedule = ZI_SCHEDULE_SHARDED,
		  .offload_optimizer = ZI_OFFLOAD_NVME },
		{ .param_dtype = ZI_DTYPE_BF16,
		  .grad_dtype = ZI_DTYPE_F32,
		  .optimizer = ZI_OPTIMIZER_SGD,
		  .schedule = ZI_SCHEDULE_LOCAL,
		  .offload_optimizer = ZI_OFFLOAD_CPU },
	};
	static struct stress stress, model;
	uint32_t start_count = 0, death_count = 0;

	for (uint32_t i = 0; i < ZI_COUNT_OF(configs); i++) {
		check(!kern_isa_force(kern_isa_best()), "kern_isa_force");
		run(&model, &configs[i], 0, NULL);
		/* TSan sees neither side of a vector of 32 or 64 bytes. */
		check(!kern_isa_force(KERN_ISA_REF), "kern_isa_force");
		for (uint64_t seed = 1; seed <= 2; seed++) {
			run(&stress, &configs[i], seed * 77 + i, &model);
			start_count += stress.start;
			death_count += stress.death_count;
		}
	}
	check(death_count > 20, "the dice never fell");
	(void)printf("zero_steps: %u steps in %u starts with %u deaths, all bits equal\n",
	             (uint32_t)ZI_COUNT_OF(configs) * 2 * STEPS, start_count, death_count);
	return 0;
}
