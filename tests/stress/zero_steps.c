/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a step has no data race, whoever dies when, and dying changes no bit. Method: two ranks on
 * this thread's loop train a small model over real pool threads, the commit thread and the I/O
 * threads, many steps with a random resident share; they read parameters and write gradients as
 * soon as they are given them. A random rank dies at a random call, all attach again and go on from
 * the last commit; norms and final parameters are those of a run without deaths. Meant for TSan; a
 * plain main, because a Criterion binary does not start under it. Exits 0, or aborts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/wire/geometry.h"
#include "daemon/zero/internal.h"
#include "kernels/cast.h"

#define WORLD   2u
#define UNITS   4u
#define STEPS   12
#define CALLS   (UNITS + 1u) /* at once, of a rank */
#define THREADS 3u
#define MIB     (1ull << 20)

/* Shorter than a block; of two subgroups; of a short second tile; of one tile. */
static const uint64_t unit_elements[UNITS] = { 700, 270000, 20000, 16384 };

struct call {
	struct zero_op op;
	bool is_done;
};

struct place {
	struct zero_rank *rank;
	struct zero_materialized memory;
	struct call calls[CALLS];
};

struct stress {
	char directory[64], store_path[96];
	struct zi_loop *loop;
	struct zi_post stop;
	struct catalog *catalog;
	struct nvme_store *store;
	struct nvme_engine *engine;
	struct zi_source engine_source;
	struct tier cpu, nvme;
	struct dev *device;
	struct tier_holders *holders;
	struct zero *zero;

	struct zi_job_config config;
	uint64_t random;
	bool is_mortal;
	uint32_t life;  /* calls until a rank dies */
	uint32_t start; /* of the job */
	uint32_t death_count;
	struct place places[WORLD];
	double norms[STEPS + 1];
	void *params[UNITS];
};

/* A failed check must stop NDEBUG builds too. */
static void check(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "zero_steps: %s\n", what);
	abort();
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint32_t draw(struct stress *stress, uint32_t below)
{
	stress->random += 0x9e3779b97f4a7c15ull;
	return (uint32_t)(mix(stress->random) % below);
}

/* ---- a node ---- */

static void reap(struct zi_source *source, uint32_t events)
{
	(void)events;
	(void)nvme_engine_reap(container_of(source, struct stress, engine_source)->engine);
}

static void stress_begin(struct stress *stress)
{
	struct zi_text text = { "" };

	(void)snprintf(stress->directory, sizeof(stress->directory), "/tmp/zinf-stress-XXXXXX");
	check(mkdtemp(stress->directory) != NULL, "mkdtemp");
	(void)snprintf(stress->store_path, sizeof(stress->store_path), "%s/store",
	               stress->directory);
	check(!zi_loop_new(&stress->loop), "zi_loop_new");
	check(!catalog_open(stress->directory, &text, &stress->catalog), text.chars);
	check(!nvme_store_open(&(struct nvme_store_options){ .name = "s",
	                                                     .path = stress->store_path,
	                                                     .bytes = 16 * MIB },
	                       &text, &stress->store),
	      text.chars);
	check(!catalog_adopt_store(stress->catalog, "s", stress->store->uuid, true, &text),
	      text.chars);
	check(!nvme_engine_new(&(struct nvme_engine_options){ .backend = "threads" }, &text,
	                       &stress->engine),
	      text.chars);
	check(!nvme_engine_register_store(stress->engine, stress->store), "register_store");
	check(!zi_loop_add(stress->loop, &stress->engine_source, nvme_engine_fd(stress->engine),
	                   EPOLLIN, reap),
	      "zi_loop_add");
	/* This process holds all it ever received: room for every start. */
	tier_init_cpu(&stress->cpu, 0, 1024 * MIB, NULL, false);
	check(!tier_init_nvme(&stress->nvme, stress->store, 0), "tier_init_nvme");
	check(!dev_host_new(NULL, NULL, THREADS, &stress->device), "dev_host_new");
	check(!tier_holders_new(stress->loop, &stress->holders), "tier_holders_new");
	check(!zero_new(&(struct zero_options){ .loop = stress->loop,
	                                        .catalog = stress->catalog,
	                                        .engine = stress->engine,
	                                        .holders = stress->holders,
	                                        .cpu_tiers = &stress->cpu,
	                                        .cpu_tier_count = 1,
	                                        .devices = &stress->device,
	                                        .nvme_tiers = &stress->nvme,
	                                        .nvme_tier_count = 1,
	                                        .default_staging_bytes = 8 * MIB,
	                                        .uid_cpu_limit_bytes = UINT64_MAX,
	                                        .uid_nvme_limit_bytes = UINT64_MAX,
	                                        .jobs_max = 1,
	                                        .jobs_per_uid_max = 1,
	                                        .units_max = UNITS,
	                                        .params_max = UNITS },
	                &stress->zero),
	      "zero_new");
	check(!catalog_start(stress->catalog), "catalog_start");
}

static void stop_loop(struct zi_post *post)
{
	zi_loop_stop(container_of(post, struct stress, stop)->loop);
}

static void turn(struct stress *stress)
{
	zi_loop_post(stress->loop, &stress->stop, stop_loop);
	check(!zi_loop_run(stress->loop), "zi_loop_run");
}

static void quiesced(void *arg)
{
	*(bool *)arg = true;
}

static void stress_end(struct stress *stress)
{
	char file[96];
	bool is_quiet = false;

	zero_quiesce(stress->zero, quiesced, &is_quiet);
	while (!is_quiet)
		turn(stress);
	stress->holders = tier_holders_free(stress->holders);
	stress->zero = zero_free(stress->zero);
	stress->device = dev_free(stress->device);
	zi_loop_remove(&stress->engine_source);
	stress->engine = nvme_engine_free(stress->engine);
	stress->catalog = catalog_close(stress->catalog);
	check(!stress->cpu.used_bytes && !stress->nvme.used_bytes, "something is still charged");
	tier_deinit(&stress->cpu);
	tier_deinit(&stress->nvme);
	stress->store = nvme_store_close(stress->store);
	stress->loop = zi_loop_free(stress->loop);
	(void)unlink(stress->store_path);
	(void)snprintf(file, sizeof(file), "%s/catalog.db", stress->directory); /* Fits. */
	(void)unlink(file);
	check(!rmdir(stress->directory), "something was left in the directory");
}

/* ---- calls ---- */

typedef void (*call_fn)(struct zero_rank *rank, struct zero_op *op);

static void call_done(struct zero_op *op)
{
	struct call *call = container_of(op, struct call, op);

	check(!call->is_done, "an op was completed twice");
	call->is_done = true;
}

static void broken(void *arg, int error, uint32_t culprit, const struct zi_text *text)
{
	(void)arg; /* The next call says so too. */
	(void)error;
	(void)culprit;
	(void)text;
}

static void leave(struct stress *stress, uint32_t index, bool is_clean)
{
	struct zero_rank *rank = stress->places[index].rank;

	stress->places[index].rank = NULL;
	zero_rank_leave(rank, is_clean, "the dice fell");
}

/* Before each call: is it the last one of some rank? */
static bool dies(struct stress *stress)
{
	if (!stress->is_mortal || stress->life-- > 0)
		return false;
	stress->life = UINT32_MAX; /* Once per start. */
	stress->death_count++;
	leave(stress, draw(stress, WORLD), draw(stress, 4) == 0);
	return true;
}

/* Return: 0, also when the call waits; -EPIPE when it has no rank any more. */
static int start(struct stress *stress, uint32_t index, uint32_t slot, call_fn function,
                 const struct zero_op *filled)
{
	struct place *place = &stress->places[index];

	(void)dies(stress);
	if (!place->rank)
		return -EPIPE;
	place->calls[slot] = (struct call){ .op = *filled };
	place->calls[slot].op.done = call_done;
	function(place->rank, &place->calls[slot].op);
	return 0;
}

static int finish(struct stress *stress, uint32_t index, uint32_t slot)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(60 * ZI_NS_PER_S);
	struct call *call = &stress->places[index].calls[slot];

	while (!call->is_done) {
		turn(stress);
		check(zi_clock_now_ns() < deadline_ns, "a call never ends");
	}
	return call->op.result;
}

static int one(struct stress *stress, uint32_t index, call_fn function,
               const struct zero_op *filled)
{
	int r = start(stress, index, 0, function, filled);

	return r ? r : finish(stress, index, 0);
}

/* Every rank makes the call @slot; the first error. */
static int all(struct stress *stress, uint32_t slot, call_fn function, const struct zero_op *filled)
{
	int results[WORLD];
	int first = 0;

	for (uint32_t i = 0; i < WORLD; i++)
		results[i] = start(stress, i, slot, function, &filled[i]);
	for (uint32_t i = 0; i < WORLD; i++) {
		if (!results[i])
			results[i] = finish(stress, i, slot);
		first = first ? first : results[i];
	}
	return first;
}

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
	int pidfd = -1;
	int r = 0;

	check(!zi_pidfd_open(getpid(), &pidfd), "zi_pidfd_open");
	(void)snprintf(name, sizeof(name), "run.%u", stress->start++);
	stress->life = 1 + draw(stress, draw(stress, 2) ? 60 : 250);
	stress->config.resident_bytes = draw(stress, 5) * (stress->is_mortal ? MIB / 2 : 0);
	for (uint32_t i = 0; i < WORLD && !r; i++) {
		struct zero_attach options = {
			.job = "stress",
			.incarnation = name,
			.pid = getpid(),
			.pidfd = pidfd,
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
	pidfd = zi_close(pidfd);
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
		.flags = step % 3 == 2 ? ZI_STEP_SKIP_NONFINITE : 0,
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

/* The next forward of a rank: its unshards are under way; each unit is read as soon as it may be.
 * @targets: NULL, or where to keep what was read. */
static int forward(struct stress *stress, uint32_t index, void *const *targets)
{
	static char sink[1u << 21];
	struct place *place = &stress->places[index];
	int r = 0;

	for (uint32_t unit = 0; unit < UNITS && !r; unit++) {
		r = place->rank ? finish(stress, index, 1 + unit) : -EPIPE;
		if (r || !place->rank)
			return -EPIPE;
		memcpy(targets ? targets[unit] : sink, unit_in(place, place->memory.param, unit),
		       unit_bytes(stress, unit));
		r = start(stress, index, 1 + unit, zero_reshard, &place->calls[1 + unit].op);
	}
	return r;
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
		r = forward(stress, i, NULL);
	for (uint32_t i = 0; i < WORLD && !r; i++)
		r = stress->places[i].rank ? finish(stress, i, 0) : -EPIPE;
	if (!r)
		stress->norms[step] = stress->places[0].calls[0].op.stats.norm;
	return r;
}

/* Until a rank dies, or the last step is committed and its parameters are kept. */
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
	if (!r)
		r = unshard_all(stress);
	return r ? r : forward(stress, WORLD - 1, stress->params);
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

static void run(struct stress *stress, const struct zi_job_config *config, uint64_t seed)
{
	*stress = (struct stress){ .config = *config, .random = seed, .is_mortal = seed != 0 };
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		stress->params[unit] = malloc(unit_bytes(stress, unit));
		check(stress->params[unit] != NULL, "malloc");
	}
	stress_begin(stress);
	for (;;) {
		int r = attach(stress);

		if (!r)
			r = materialize(stress);
		if (!r)
			r = train(stress);
		if (!r)
			break;
		check(stress->is_mortal, "a call failed, though nobody died");
		survivors_end(stress);
	}
	for (uint32_t i = 0; i < WORLD; i++)
		if (stress->places[i].rank)
			leave(stress, i, true);
	stress_end(stress);
}

static void compare(const struct stress *stress, const struct stress *model)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		check(!memcmp(stress->params[unit], model->params[unit], unit_bytes(model, unit)),
		      "parameters differ from those of a run without deaths");
	for (uint32_t step = 0; step <= STEPS; step++)
		check(stress->norms[step] == 0 ||
		              !memcmp(&stress->norms[step], &model->norms[step], sizeof(double)),
		      "a norm differs from that of a run without deaths");
}

static void params_free(struct stress *stress)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		free(stress->params[unit]);
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
		run(&model, &configs[i], 0);
		for (uint64_t seed = 1; seed <= 3; seed++) {
			run(&stress, &configs[i], seed * 77 + i);
			compare(&stress, &model);
			start_count += stress.start;
			death_count += stress.death_count;
			params_free(&stress);
		}
		params_free(&model);
	}
	check(death_count > 20, "the dice never fell");
	(void)printf("zero_steps: %u steps in %u starts with %u deaths, all bits equal\n",
	             (uint32_t)ZI_COUNT_OF(configs) * 3 * STEPS, start_count, death_count);
	return 0;
}
