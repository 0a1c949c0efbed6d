/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of zero share: a node of one memory tier and one small store, with the real catalog,
 * engine and loop, which a test turns by hand; ranks as a session would hold them; a small model;
 * and the plain computation of what a step must give.
 */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/wire/geometry.h"
#include "daemon/zero/internal.h"
#include "kernels/cast.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"

#define MIB           (1ull << 20)
#define TURN_LIMIT_NS (20 * ZI_NS_PER_S) /* a test that waits longer has failed */

struct node {
	char directory[64];
	char store_path[96];
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
	/* before node_start() */
	const char *backend;
	uint64_t cpu_bytes, store_bytes, staging_bytes, uid_cpu_bytes, uid_nvme_bytes, seed;
	uint32_t jobs_max, jobs_per_uid_max, units_max, params_max;
	uint32_t thread_count; /* 0: the fake device */
	bool is_dumb;          /* no nvme tier */
	uint32_t lost_count;
	char lost_name[ZI_NAME_BYTES];
	bool is_quiesced;
};

static inline void node_init(struct node *node)
{
	*node = (struct node){
		.backend = "threads",
		.cpu_bytes = 256 * MIB,
		.store_bytes = 24 * MIB,
		.staging_bytes = 8 * MIB,
		.uid_cpu_bytes = UINT64_MAX,
		.uid_nvme_bytes = UINT64_MAX,
		.seed = 1,
		.jobs_max = 16,
		.jobs_per_uid_max = 8,
		.units_max = 64,
		.params_max = 256,
	};
	strcpy(node->directory, "/tmp/zinf-zero-XXXXXX");
	cr_assert_not_null(mkdtemp(node->directory));
	(void)snprintf(node->store_path, sizeof(node->store_path), "%s/store", node->directory);
}

static inline void node_reap(struct zi_source *source, uint32_t events)
{
	struct node *node = container_of(source, struct node, engine_source);

	(void)events;
	(void)nvme_engine_reap(node->engine);
}

static inline void node_lost(void *arg, const char *job)
{
	struct node *node = arg;

	node->lost_count++;
	strcpy(node->lost_name, job);
}

static inline void node_start(struct node *node)
{
	struct zi_text text = { "" };
	int r;

	cr_assert_eq(zi_loop_new(&node->loop), 0);
	r = catalog_open(node->directory, &text, &node->catalog);
	cr_assert_eq(r, 0, "%s", text.chars);
	r = nvme_store_open(&(struct nvme_store_options){ .name = "t",
	                                                  .path = node->store_path,
	                                                  .bytes = node->store_bytes },
	                    &text, &node->store);
	cr_assert_eq(r, 0, "%s", text.chars);
	r = catalog_adopt_store(node->catalog, "t", node->store->uuid, node->store->is_created,
	                        &text);
	cr_assert_eq(r, 0, "%s", text.chars);
	r = nvme_engine_new(&(struct nvme_engine_options){ .backend = node->backend }, &text,
	                    &node->engine);
	cr_assert_eq(r, 0, "%s", text.chars);
	cr_assert_eq(nvme_engine_register_store(node->engine, node->store), 0);
	cr_assert_eq(zi_loop_add(node->loop, &node->engine_source, nvme_engine_fd(node->engine),
	                         EPOLLIN, node_reap),
	             0);
	tier_init_cpu(&node->cpu, 0, node->cpu_bytes, NULL, false);
	cr_assert_eq(tier_init_nvme(&node->nvme, node->store, 0), 0);
	if (node->thread_count)
		cr_assert_eq(dev_host_new(NULL, 0, node->thread_count, &node->device), 0);
	else
		cr_assert_eq(dev_fake_new(node->seed, &node->device), 0);
	cr_assert_eq(tier_holders_new(node->loop, &node->holders), 0);
	r = zero_new(
		&(struct zero_options){
			.loop = node->loop,
			.catalog = node->catalog,
			.engine = node->engine,
			.holders = node->holders,
			.cpu_tiers = &node->cpu,
			.cpu_tier_count = 1,
			.devices = &node->device,
			.nvme_tiers = &node->nvme,
			.nvme_tier_count = node->is_dumb ? 0 : 1,
			.default_staging_bytes = node->staging_bytes,
			.uid_cpu_limit_bytes = node->uid_cpu_bytes,
			.uid_nvme_limit_bytes = node->uid_nvme_bytes,
			.jobs_max = node->jobs_max,
			.jobs_per_uid_max = node->jobs_per_uid_max,
			.units_max = node->units_max,
			.params_max = node->params_max,
		},
		&node->zero);
	cr_assert_eq(r, 0);
	r = zero_recover(node->zero, node_lost, node, &text);
	cr_assert_eq(r, 0, "%s", text.chars);
	cr_assert_eq(catalog_start(node->catalog), 0);
}

static inline void node_stop_loop(struct zi_post *post)
{
	zi_loop_stop(container_of(post, struct node, stop)->loop);
}

/* One turn of the loop. */
static inline void node_turn(struct node *node)
{
	zi_loop_post(node->loop, &node->stop, node_stop_loop);
	cr_assert_eq(zi_loop_run(node->loop), 0);
}

static inline bool node_is_quiet(struct node *node)
{
	if (!zi_list_is_empty(&node->zero->ghosts))
		return false;
	zi_list_for_each(link, &node->zero->jobs)
		if (container_of(link, struct zero_job, jobs_link)->busy_count)
			return false;
	return true;
}

/* Until nothing is in flight. */
static inline void node_settle(struct node *node)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	do {
		node_turn(node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the node never comes to rest");
	} while (!node_is_quiet(node));
}

/* As a daemon ends, or (without what is in memory) as it is killed: nothing of it is asked. */
static inline void node_stop(struct node *node)
{
	node_settle(node);
	node->holders = tier_holders_free(node->holders);
	node->zero = zero_free(node->zero);
	node->device = dev_free(node->device);
	node_turn(node);
	zi_loop_remove(&node->engine_source);
	node->engine = nvme_engine_free(node->engine);
	node->catalog = catalog_close(node->catalog);
	cr_assert_eq(node->cpu.used_bytes, 0, "memory is still charged");
	cr_assert_eq(node->nvme.used_bytes, 0, "space is still charged");
	tier_deinit(&node->cpu);
	tier_deinit(&node->nvme);
	node->store = nvme_store_close(node->store);
	node->loop = zi_loop_free(node->loop);
}

static inline void node_deinit(struct node *node)
{
	char command[128];

	if (node->zero)
		node_stop(node);
	(void)snprintf(command, sizeof(command), "rm -rf %s", node->directory);
	cr_assert_eq(system(command), 0);
}

static inline struct zero_job *node_job(struct node *node, const char *name)
{
	return job_find(node->zero, name);
}

/* ---- ranks ---- */

struct call {
	struct zero_op op;
	bool is_done;
};

#define CALLS_MAX 8

struct actor {
	struct node *node;
	struct zero_rank *rank;
	uint32_t number;
	pid_t pid;
	int pidfd;
	bool is_child; /* a process of its own, which the test ends */
	bool is_broken;
	int broken_error;
	uint32_t broken_culprit;
	struct zi_text broken_text;
	struct zi_text text; /* of the last refusal */
	struct call calls[CALLS_MAX];
	struct zero_materialized memory;
};

static inline void actor_broken(void *arg, int error, uint32_t culprit, const struct zi_text *text)
{
	struct actor *actor = arg;

	cr_assert(!actor->is_broken, "told once");
	actor->is_broken = true;
	actor->broken_error = error;
	actor->broken_culprit = culprit;
	actor->broken_text = *text;
}

static inline void actor_fork(struct actor *actor)
{
	actor->pid = fork();
	cr_assert_geq(actor->pid, 0);
	if (actor->pid == 0)
		for (;;)
			(void)pause();
	cr_assert_eq(zi_pidfd_open(actor->pid, &actor->pidfd), 0);
	actor->is_child = true;
}

struct attach_options {
	const char *job, *incarnation;
	uint32_t rank, world, uid;
	bool takeover;
	uint64_t timeout_ns;
	struct zi_job_config config;
};

static inline int actor_attach(struct node *node, struct actor *actor,
                               const struct attach_options *options)
{
	uint64_t number = 0;
	struct actor fresh = { .node = node,
		               .number = options->rank,
		               .pid = actor->pid,
		               .pidfd = actor->pidfd,
		               .is_child = actor->is_child };

	*actor = fresh;
	if (!actor->is_child) {
		actor->pid = getpid();
		cr_assert_eq(zi_pidfd_open(actor->pid, &actor->pidfd), 0);
	}
	int r = zero_attach(
		node->zero,
		&(struct zero_attach){
			.job = options->job ? options->job : "train",
			.incarnation = options->incarnation ? options->incarnation : "",
			.uid = options->uid,
			.pid = actor->pid,
			.pidfd = actor->pidfd,
			.rank = options->rank,
			.world_size = options->world,
			.takeover = options->takeover,
			.config = options->config,
			.timeout_ns = options->timeout_ns ? options->timeout_ns : TURN_LIMIT_NS,
			.broken = actor_broken,
			.broken_arg = actor,
		},
		&actor->text, &actor->rank, &number);
	if (r)
		actor->rank = NULL;
	if (!actor->is_child)
		actor->pidfd = zi_close(actor->pidfd);
	return r;
}

/* Its process ends, and is waited for by its pidfd: no time passes unobserved. */
static inline void actor_kill(struct actor *actor)
{
	cr_assert(actor->is_child);
	cr_assert_eq(kill(actor->pid, SIGKILL), 0);
	cr_assert_eq(waitpid(actor->pid, NULL, 0), actor->pid);
	actor->pidfd = zi_close(actor->pidfd);
	actor->is_child = false;
}

static inline void actor_leave(struct actor *actor, bool is_clean)
{
	struct zero_rank *rank = actor->rank;

	actor->rank = NULL;
	zero_rank_leave(rank, is_clean, is_clean ? NULL : "killed by the test");
}

static inline void call_done(struct zero_op *op)
{
	struct call *call = container_of(op, struct call, op);

	cr_assert(!call->is_done, "completed once");
	call->is_done = true;
}

typedef void (*call_fn)(struct zero_rank *rank, struct zero_op *op);

/* @filled: kind-specific input. */
static inline void actor_start(struct actor *actor, uint32_t slot, call_fn function,
                               const struct zero_op *filled)
{
	struct call *call = &actor->calls[slot];

	*call = (struct call){ .op = filled ? *filled : (struct zero_op){ 0 } };
	call->op.done = call_done;
	function(actor->rank, &call->op);
}

static inline int actor_wait(struct actor *actor, uint32_t slot)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	struct call *call = &actor->calls[slot];

	while (!call->is_done) {
		node_turn(actor->node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the call never ends");
	}
	actor->text = call->op.text;
	return call->op.result;
}

static inline int actor_call(struct actor *actor, call_fn function, const struct zero_op *filled)
{
	actor_start(actor, 0, function, filled);
	return actor_wait(actor, 0);
}

static inline int actor_unit(struct actor *actor, call_fn function, uint32_t unit)
{
	return actor_call(actor, function, &(struct zero_op){ .unit = unit });
}

/* All of them; the first error. */
static inline int all_call(struct actor *actors, uint32_t count, call_fn function,
                           const struct zero_op *filled)
{
	int first = 0;

	for (uint32_t i = 0; i < count; i++)
		actor_start(&actors[i], 0, function, filled);
	for (uint32_t i = 0; i < count; i++) {
		int r = actor_wait(&actors[i], 0);

		if (!first)
			first = r;
	}
	return first;
}

/* ---- the model ---- */

#define UNITS 3u
/* Shorter than a block; of several subgroups; of two tiles, the second one short. */
static const uint64_t model_elements[UNITS] = { 1000, 530000, 20000 };

static inline void layout_unit(struct actor *actor, const char *name)
{
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };

	strcpy(entry.name, name);
	cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
	             actor->text.chars);
}

static inline void layout_param(struct actor *actor, const char *name, uint64_t rows,
                                uint64_t columns)
{
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM,
		                         .dim_count = columns ? 2 : 1,
		                         .shape = { rows, columns } };

	strcpy(entry.name, name);
	cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
	             actor->text.chars);
}

static inline void model_layout(struct actor *actor)
{
	layout_unit(actor, "embed");
	layout_param(actor, "embed.w", 10, 80);
	layout_param(actor, "embed.b", 200, 0);
	layout_unit(actor, "h.0");
	layout_param(actor, "h.0.w", 530, 1000);
	layout_unit(actor, "head");
	layout_param(actor, "head.w", 100, 200);
}

static inline int model_materialize(struct actor *actors, uint32_t count)
{
	int r;

	for (uint32_t i = 0; i < count; i++)
		model_layout(&actors[i]);
	r = all_call(actors, count, zero_materialize, NULL);
	for (uint32_t i = 0; i < count && !r; i++)
		zero_materialized(actors[i].rank, &actors[i].memory);
	return r;
}

static inline void model_attach(struct node *node, struct actor *actors, uint32_t count,
                                const struct attach_options *options)
{
	for (uint32_t i = 0; i < count; i++) {
		struct attach_options mine = *options;
		int r;

		mine.rank = i;
		mine.world = count;
		r = actor_attach(node, &actors[i], &mine);
		cr_assert_eq(r, 0, "%s", actors[i].text.chars);
	}
}

static inline uint64_t noise(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* In [-1, 1), of many magnitudes. */
static inline float model_value(uint64_t what, uint64_t index)
{
	uint64_t bits = noise(what * 0x9e3779b97f4a7c15ull + index);
	float value = (float)(int32_t)(uint32_t)bits * 0x1p-31f;

	return bits >> 60 ? value : value * 0x1p-20f;
}

static inline void put(void *target, uint64_t index, float value, uint32_t dtype)
{
	kern_narrow((char *)target + index * zi_dtype_bytes((enum zi_dtype)dtype), &value, 1,
	            (enum zi_dtype)dtype);
}

/* What put() would give, at once. */
static inline void fill(void *target, uint64_t what, uint64_t count, uint32_t dtype)
{
	float *values = malloc(count * sizeof(*values));

	for (uint64_t i = 0; i < count; i++)
		values[i] = model_value(what, i);
	kern_narrow(target, values, count, (enum zi_dtype)dtype);
	free(values);
}

static inline uint64_t grad_what(uint64_t step, uint32_t micro, uint32_t rank, uint32_t unit)
{
	return ((step * 16 + micro) * 64 + rank) * 16 + unit + 1;
}

static inline void *unit_of(const struct actor *actor, const struct tier_segment *segment,
                            uint32_t unit)
{
	const struct zero_unit *entry = &actor->rank->job->units[unit];

	return (char *)segment->region.base +
	       (segment == actor->memory.param ? entry->param_offset : entry->grad_offset);
}

static inline void model_write_unit(struct actor *actors, uint32_t count, uint32_t unit,
                                    uint64_t what)
{
	uint32_t dtype = actors[0].rank->job->config.param_dtype;
	int r;

	r = actor_unit(&actors[0], zero_param_write_begin, unit);
	cr_assert_eq(r, 0, "%s", actors[0].text.chars);
	fill(zero_param_staging(actors[0].rank)->region.base, what + unit, model_elements[unit],
	     dtype);
	r = all_call(actors, count, zero_param_write_end, &(struct zero_op){ .unit = unit });
	cr_assert_eq(r, 0, "%s", actors[0].text.chars);
}

/* First values, committed as step 0. */
static inline void model_write(struct actor *actors, uint32_t count)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		model_write_unit(actors, count, unit, 900);
	cr_assert_eq(all_call(actors, count, zero_commit,
	                      &(struct zero_op){ .blob = "zero", .blob_bytes = 4 }),
	             0, "%s", actors[0].text.chars);
}

static inline struct zi_step_options model_options(void)
{
	return (struct zi_step_options){ .lr = 1e-2,
		                         .beta1 = 0.9,
		                         .beta2 = 0.99,
		                         .eps = 1e-8,
		                         .weight_decay = 0.1,
		                         .unscale = 0.5,
		                         .micro_batches = 1 };
}

static inline void model_fill_grad(struct actor *actor, uint64_t step, uint32_t micro,
                                   uint32_t unit)
{
	uint32_t dtype = actor->rank->job->config.grad_dtype;
	void *grad = unit_of(actor, actor->memory.grad, unit);
	uint64_t what = grad_what(step, micro, actor->number, unit);

	fill(grad, what, model_elements[unit], dtype);
	/* Garbage in the padding must not matter. */
	for (uint64_t i = model_elements[unit]; i < zi_geometry_padded(model_elements[unit]); i++)
		put(grad, i, NAN, dtype);
}

/* Up to, and without, zero_step(). */
static inline void model_gradients(struct actor *actors, uint32_t count, uint64_t step,
                                   const struct zi_step_options *options)
{
	int r = all_call(actors, count, zero_step_begin, &(struct zero_op){ .options = *options });

	cr_assert_eq(r, 0, "%s", actors[0].text.chars);
	for (uint32_t micro = 0; micro < options->micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < count; i++) {
				r = actor_unit(&actors[i], zero_grad_acquire, unit);
				cr_assert_eq(r, 0, "%s", actors[i].text.chars);
				model_fill_grad(&actors[i], step, micro, unit);
				r = actor_unit(&actors[i], zero_reduce, unit);
				cr_assert_eq(r, 0, "%s", actors[i].text.chars);
			}
}

/* @step: the one that is made. The result of rank 0's step(). */
static inline int model_step(struct actor *actors, uint32_t count, uint64_t step,
                             const struct zi_step_options *options)
{
	char blob[32];

	model_gradients(actors, count, step, options);
	(void)snprintf(blob, sizeof(blob), "blob %llu", (unsigned long long)step);
	return all_call(actors, count, zero_step,
	                &(struct zero_op){ .blob = blob, .blob_bytes = strlen(blob) });
}

/* ---- the plain computation ---- */

struct plain {
	struct zi_job_config config;
	uint32_t world;
	void *param[UNITS];
	int16_t *remainder[UNITS];
	float *exp_avg[UNITS], *exp_avg_sq[UNITS];
	double beta1_power, beta2_power, norm;
	uint64_t update_count;
};

static inline void plain_init(struct plain *plain, const struct zi_job_config *config,
                              uint32_t world)
{
	*plain = (struct plain){
		.config = *config, .world = world, .beta1_power = 1, .beta2_power = 1
	};
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t padded = zi_geometry_padded(model_elements[unit]);

		plain->param[unit] = aligned_alloc(64, padded * 4);
		plain->remainder[unit] = aligned_alloc(64, padded * 4);
		plain->exp_avg[unit] = aligned_alloc(64, padded * 4);
		plain->exp_avg_sq[unit] = aligned_alloc(64, padded * 4);
		memset(plain->param[unit], 0, padded * 4);
		memset(plain->remainder[unit], 0, padded * 4);
		memset(plain->exp_avg[unit], 0, padded * 4);
		memset(plain->exp_avg_sq[unit], 0, padded * 4);
		fill(plain->param[unit], 900 + unit, model_elements[unit], config->param_dtype);
	}
}

static inline void plain_deinit(struct plain *plain)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		free(plain->param[unit]);
		free(plain->remainder[unit]);
		free(plain->exp_avg[unit]);
		free(plain->exp_avg_sq[unit]);
	}
}

/* The reduced gradient of a unit: (padded,) of grad_dtype, the caller's. */
static inline void *plain_reduce(const struct plain *plain, uint64_t step, uint32_t unit,
                                 const struct zi_step_options *options)
{
	uint64_t padded = zi_geometry_padded(model_elements[unit]);
	enum zi_dtype dtype = (enum zi_dtype)plain->config.grad_dtype;
	void *grads[ZI_WORLD_MAX];
	float *sum = aligned_alloc(64, padded * 4);
	struct kern_reduce_options reduce = {
		.dtype = dtype,
		.average =
			options->flags & ZI_STEP_SUM ? 1.0f : (float)(1.0 / (double)plain->world),
	};

	for (uint32_t micro = 0; micro < options->micro_batches; micro++) {
		for (uint32_t rank = 0; rank < plain->world; rank++) {
			grads[rank] = aligned_alloc(64, padded * 4);
			memset(grads[rank], 0, padded * 4);
			fill(grads[rank], grad_what(step, micro, rank, unit), model_elements[unit],
			     dtype);
		}
		kern_reduce_accumulate(sum, (const void *const *)grads, plain->world, padded,
		                       micro == 0, dtype);
		for (uint32_t rank = 0; rank < plain->world; rank++)
			free(grads[rank]);
	}
	void *target = aligned_alloc(64, padded * 4);

	kern_reduce_finish(target, sum, padded, &reduce);
	free(sum);
	return target;
}

static inline double plain_norm(const struct plain *plain, void *const *reduced,
                                const struct zi_step_options *options)
{
	uint64_t blocks = 0;
	double *sums;
	double total;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		blocks += zi_geometry_padded(model_elements[unit]) / ZI_BLOCK_ELEMENTS;
	sums = calloc(blocks, sizeof(*sums));
	blocks = 0;
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t padded = zi_geometry_padded(model_elements[unit]);

		kern_norm_blocks(sums + blocks, reduced[unit], padded, (float)options->unscale,
		                 (enum zi_dtype)plain->config.grad_dtype);
		blocks += padded / ZI_BLOCK_ELEMENTS;
	}
	total = kern_norm_join(sums, blocks);
	free(sums);
	return sqrt(total);
}

static inline void plain_step(struct plain *plain, uint64_t step,
                              const struct zi_step_options *options)
{
	bool is_bf16 = plain->config.param_dtype == ZI_DTYPE_BF16;
	bool is_sgd = plain->config.optimizer == ZI_OPTIMIZER_SGD;
	void *reduced[UNITS];
	struct kern_optim_scalars scalars;
	float clip = 1;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		reduced[unit] = plain_reduce(plain, step, unit, options);
	plain->norm = plain_norm(plain, reduced, options);
	if (options->max_norm > 0)
		clip = fminf(1, (float)(options->max_norm / (plain->norm + 1e-6)));
	plain->beta1_power *= options->beta1;
	plain->beta2_power *= options->beta2;
	kern_optim_prepare(&scalars,
	                   &(struct kern_hyper){
				   .optimizer = (enum zi_optimizer)plain->config.optimizer,
				   .lr = options->lr,
				   .beta1 = options->beta1,
				   .beta2 = options->beta2,
				   .eps = options->eps,
				   .weight_decay = options->weight_decay,
				   .is_nesterov = options->flags & ZI_STEP_NESTEROV,
				   .beta1_power = plain->beta1_power,
				   .beta2_power = plain->beta2_power,
				   .is_first = plain->update_count++ == 0,
				   .average = 1,
				   .unscale = (float)options->unscale,
				   .clip = clip,
			   });
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		const void *grads[1] = { reduced[unit] };

		kern_optim_step(
			&(struct kern_optim_run){
				.param = plain->param[unit],
				.remainder = is_bf16 ? plain->remainder[unit] : NULL,
				.exp_avg = plain->exp_avg[unit],
				.exp_avg_sq = is_sgd ? NULL : plain->exp_avg_sq[unit],
				.grads = grads,
				.rank_count = 1,
				.is_reduced = true,
				.element_count = zi_geometry_padded(model_elements[unit]),
				.param_dtype = (enum zi_dtype)plain->config.param_dtype,
				.grad_dtype = (enum zi_dtype)plain->config.grad_dtype,
			},
			&scalars);
		free(reduced[unit]);
	}
}

/* What the rank sees is what was computed, bit by bit. */
static inline bool plain_equals(const struct plain *plain, const struct actor *actor)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)plain->config.param_dtype);

	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (memcmp(plain->param[unit], unit_of(actor, actor->memory.param, unit),
		           model_elements[unit] * width) != 0)
			return false;
	return true;
}

static inline struct zi_job_config model_config(uint32_t param_dtype, uint32_t offload)
{
	return (struct zi_job_config){
		.param_dtype = param_dtype,
		.grad_dtype = param_dtype,
		.optimizer = ZI_OPTIMIZER_ADAMW,
		.schedule = ZI_SCHEDULE_LOCAL,
		.offload_optimizer = offload,
	};
}
