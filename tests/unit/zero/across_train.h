/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixture of tests about training over nodes: ranks on several nodes beside the plain computation,
 * and daemons that are killed: what is on a node's disk at that moment is what it finds again.
 */
#pragma once

#include "tests/unit/zero/across.h"
#include "tests/unit/zero/plain.h"

/* What is trained, and where. */
struct train {
	const char *places;
	struct zi_job_config config;
	struct zi_job_training training;
	const struct model_set *sets;
	uint32_t start; /* of the job */
};

static struct train train;
static struct plain plain;

static inline uint32_t train_node_count(void)
{
	uint32_t count = 0;

	for (const char *place = train.places; *place; place++)
		count = ZI_MAX(count, (uint32_t)(*place - '0') + 1);
	return count;
}

/* What all ranks have to see at @step. */
static inline void train_plain(int64_t step)
{
	if (plain.world)
		plain_deinit(&plain);
	plain_init(&plain, &train.config, (uint32_t)strlen(train.places));
	for (int64_t i = 1; i <= step; i++)
		plain_train(&plain, (uint64_t)i, (uint64_t)i);
}

static inline int train_call(uint32_t rank, call_fn function, uint32_t unit)
{
	actor_start(&ranks.actors[rank], 0, function, &(struct zero_op){ .unit = unit });
	return nodes_wait(&ranks.actors[rank], 0);
}

static inline void train_check_unit(uint32_t rank, uint32_t unit, int64_t step)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)train.config.param_dtype);
	struct actor *actor = &ranks.actors[rank];
	bool has_pool = actor->rank->job->residency;
	const char *seen;

	if (has_pool)
		cr_assert_eq(train_call(rank, zero_unshard, unit), 0, "%s", actor->text.chars);
	seen = has_pool ? (char *)actor->memory.param->region.base + actor->calls[0].op.offset_bytes
	                : unit_of(actor, actor->memory.param, unit);
	cr_assert_eq(memcmp(plain.param[unit], seen, model_elements[unit] * width), 0,
	             "'%s': unit %u of rank %u at step %lld", train.places, unit, rank,
	             (long long)step);
	if (has_pool)
		cr_assert_eq(train_call(rank, zero_reshard, unit), 0);
}

static inline void train_check(int64_t step)
{
	cr_assert_eq(ranks.actors[0].rank->job->current_step, step);
	for (uint32_t i = 0; i < ranks.world; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			train_check_unit(i, unit, step);
}

/* ---- a start of the job ---- */

static inline void train_attach(void)
{
	static char names[64][16];
	char *name = names[train.start % ZI_COUNT_OF(names)];
	struct attach_options options = { .incarnation = name,
		                          .config = train.config,
		                          .training = train.training };

	(void)snprintf(name, sizeof(names[0]), "run.%u", train.start++);
	nodes_attach(&ranks, train.places, &options);
	nodes_layout(&ranks);
}

static inline int train_come(void)
{
	train_attach();
	return nodes_materialize(&ranks);
}

/* They come, and are not waited for. */
static inline void train_come_start(void)
{
	train_attach();
	for (uint32_t i = 0; i < ranks.world; i++)
		actor_start(&ranks.actors[i], 0, zero_materialize, &nodes_place);
}

static inline int64_t train_committed(void)
{
	int64_t step = ranks.actors[0].memory.committed_step;

	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_eq(ranks.actors[i].memory.committed_step, step, "rank %u", i);
	return step;
}

/* First values, by drawn ranks, and step 0. Return: the first error. */
static inline int train_write(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t members = model_members(unit, ranks.world);
		uint32_t root = net_draw(ranks.world);
		struct actor *writer;
		int r;

		while (!(members >> root & 1))
			root = (root + 1) % ranks.world;
		writer = &ranks.actors[root];
		actor_start(writer, 0, zero_param_write_begin, &(struct zero_op){ .unit = unit });
		r = nodes_wait(writer, 0);
		if (r)
			return r;
		fill(zero_param_staging(writer->rank)->region.base, 900 + unit,
		     model_elements[unit], train.config.param_dtype);
		r = nodes_all(&ranks, zero_param_write_end,
		              &(struct zero_op){ .unit = unit, .root = root });
		if (r)
			return r;
	}
	return nodes_all(&ranks, zero_commit, &(struct zero_op){ .blob = "zero", .blob_bytes = 4 });
}

/* Up to, and without, zero_step(), in a drawn order. Return: the first error. */
static inline int train_gradients(uint64_t step)
{
	uint32_t first_unit = net_draw(UNITS), first = net_draw(ranks.world);
	int r = nodes_all(&ranks, zero_step_begin, &(struct zero_op){ .options = model_options() });

	for (uint32_t k = 0; k < UNITS && !r; k++)
		for (uint32_t i = 0; i < ranks.world && !r; i++) {
			uint32_t unit = (first_unit + k) % UNITS;
			uint32_t rank = (first + i) % ranks.world;

			if (!(model_members(unit, ranks.world) >> rank & 1))
				continue;
			r = train_call(rank, zero_grad_acquire, unit);
			if (r)
				return r;
			model_fill_grad(&ranks.actors[rank], step, 0, unit);
			r = train_call(rank, zero_reduce, unit);
		}
	return r;
}

/* Tickets of zero_step(), which are open. */
static inline void train_step_start(uint64_t step)
{
	static char blob[32];

	(void)snprintf(blob, sizeof(blob), "blob %llu", (unsigned long long)step);
	for (uint32_t i = 0; i < ranks.world; i++)
		if (ranks.actors[i].rank)
			actor_start(&ranks.actors[i], 0, zero_step,
			            &(struct zero_op){ .blob = blob, .blob_bytes = strlen(blob) });
}

static inline int train_step_end(void)
{
	int error = 0;

	for (uint32_t i = 0; i < ranks.world; i++) {
		int r = ranks.actors[i].rank ? nodes_wait(&ranks.actors[i], 0) : 0;

		error = error ? error : r;
	}
	return error;
}

static inline void train_step(uint64_t step)
{
	cr_assert_eq(train_gradients(step), 0, "%s", ranks.actors[0].text.chars);
	train_step_start(step);
	cr_assert_eq(train_step_end(), 0, "%s", ranks.actors[0].text.chars);
}

static inline void train_leave(bool is_clean)
{
	nodes_leave(&ranks, is_clean);
	nodes_settle();
}

static inline void train_init(const struct train *wanted, uint64_t seed)
{
	train = *wanted;
	model_sets = train.sets;
	if (train.config.offload_optimizer == ZI_OFFLOAD_NVME && !train.config.staging_bytes)
		train.config.staging_bytes = 16 * MIB;
	nodes_init(train_node_count(), seed);
	nodes_start();
	train_plain(0);
}

static inline void train_deinit(void)
{
	nodes_settle();
	nodes_deinit();
	plain_deinit(&plain);
	plain = (struct plain){ .world = 0 };
	model_sets = NULL;
}

/* ---- a daemon that is killed ---- */

static inline void train_shell(const char *what, const char *directory)
{
	char command[512];

	(void)snprintf(command, sizeof(command), "cd %s && %s", directory, what);
	cr_assert_eq(system(command), 0);
}

/* The daemon of a node is killed, with its worker, and started again: its disk is as it is now (of
 * the catalog's journal maybe without the end of what is just being written). Its ranks hear
 * nothing more. What the process holds ends as it can; nobody hears of that either. */
static inline void train_kill(uint32_t place)
{
	struct node *node = &net.nodes[place];
	struct net_worker *worker = net.workers;

	train_shell("mkdir killed && cp catalog.db* killed && cp --sparse=always store killed",
	            node->directory);
	while (worker && worker->place != place)
		worker = worker->next;
	if (worker)
		nodes_crash(place);
	for (uint32_t i = 0; i < ranks.world; i++)
		if (ranks.places[i] == place && ranks.actors[i].rank)
			actor_leave(&ranks.actors[i], false);
	node_stop(node);
	train_shell("rm -f catalog.db* && mv killed/* . && rmdir killed", node->directory);
	node_start(node);
}

/* ---- trained, and lost ---- */

static inline struct train wanted(const char *places, uint32_t offload)
{
	return (struct train){ .places = places, .config = model_config(ZI_DTYPE_BF16, offload) };
}

/* What each seed trains with. */
static inline uint32_t strategy_of(uint64_t seed)
{
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO1, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO2, ZI_STRATEGY_ZERO3 };

	return strategies[seed % ZI_COUNT_OF(strategies)];
}

static inline void begin_train(const struct train *what, uint64_t seed)
{
	train_init(what, seed);
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), -1);
	cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
	train_check(0);
}

static inline void end_train(void)
{
	train_leave(true);
	train_deinit();
}

/* What rank @rank gave with @step. */
static inline void check_blob(uint32_t rank, int64_t step)
{
	char expected[32];
	uint64_t bytes = 0;
	const void *blob = zero_blob(ranks.actors[rank].rank, &bytes);

	(void)snprintf(expected, sizeof(expected), step ? "blob %lld" : "zero", (long long)step);
	cr_assert_eq(bytes, strlen(expected), "rank %u: %llu", rank, (unsigned long long)bytes);
	cr_assert_eq(memcmp(blob, expected, bytes), 0, "rank %u: %.*s", rank, (int)bytes,
	             (const char *)blob);
}

/* All of them with the step that is committed. */
static inline void check_blobs(int64_t step)
{
	for (uint32_t i = 0; i < ranks.world; i++)
		check_blob(i, step);
}

static inline void steps(uint64_t first, uint64_t last)
{
	for (uint64_t step = first; step <= last; step++) {
		train_step(step);
		plain_train(&plain, step, step);
		train_check((int64_t)step);
	}
}

enum loss { LOSS_RANK, LOSS_WORKER, LOSS_DAEMON, _LOSS_COUNT };

static inline void lose(enum loss loss, uint32_t place)
{
	const struct net_worker *worker = net.workers;

	while (worker && worker->place != place)
		worker = worker->next;
	if (loss == LOSS_DAEMON)
		train_kill(place);
	else if (loss == LOSS_WORKER && worker)
		nodes_crash(place);
	else
		for (uint32_t i = 0; i < ranks.world; i++)
			if (ranks.places[i] == place && ranks.actors[i].rank) {
				actor_leave(&ranks.actors[i], false);
				break;
			}
}

/* Whoever is left hears of it, and goes. */
static inline void all_go(void)
{
	for (uint32_t i = 0; i < ranks.world; i++) {
		uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

		while (ranks.actors[i].rank && !ranks.actors[i].is_broken) {
			nodes_turn();
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "rank %u hears nothing", i);
		}
	}
	train_leave(false);
}

/* From where on turns are counted: zero_step(); all nodes have what the step takes; the first one
 * writes its commit; or has it. */
enum anchor { ANCHOR_STEP, ANCHOR_CERTAIN, ANCHOR_COMMITTING, ANCHOR_COMMITTED, _ANCHOR_COUNT };

static inline bool has_come(enum anchor anchor, uint64_t step)
{
	bool has = anchor == ANCHOR_STEP;
	uint32_t certain_count = 0;

	for (uint32_t i = 0; i < net.count; i++) {
		const struct zero_job *job = node_job(&net.nodes[i], "train");
		bool has_it = job->committed_step == (int64_t)step;

		certain_count += has_it || job->step.phase > ZERO_STEP_STEPPING;
		has |= has_it && anchor != ANCHOR_CERTAIN;
		has |= anchor == ANCHOR_COMMITTING && job->step.phase == ZERO_STEP_COMMITTING;
	}
	return has || (anchor == ANCHOR_CERTAIN && certain_count == net.count);
}

static inline void resumed(int64_t step)
{
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), step);
	train_plain(step);
	check_blobs(step);
	train_check(step);
}

/* Who was lost in the newest step that somebody was lost in, how many turns behind its anchor. */
static struct {
	enum anchor anchor;
	enum loss loss;
	uint32_t place, turns;
} lost;

/* Somebody is lost in step @step, so many turns of all nodes behind @anchor, and whoever is left
 * goes. */
static inline void lose_in_step(uint64_t step, enum anchor anchor, uint32_t turns, enum loss loss,
                                uint32_t place)
{
	cr_assert_eq(train_gradients(step), 0, "%s", ranks.actors[0].text.chars);
	train_step_start(step);
	while (!has_come(anchor, step))
		nodes_turn();
	for (uint32_t i = 0; i < turns; i++)
		nodes_turn();
	lose(loss, place);
	lost.anchor = anchor;
	lost.loss = loss;
	lost.place = place;
	lost.turns = turns;
	all_go();
}

/* Then all come again, at that step or at the one before. Return: which. */
static inline int64_t go_on_from(uint64_t step)
{
	int64_t committed;

	cr_assert_eq(train_come(), 0, "'%s', step %llu, %u of node %u %u turns after %u: %s",
	             train.places, (unsigned long long)step, lost.loss, lost.place, lost.turns,
	             lost.anchor, ranks.actors[0].text.chars);
	committed = train_committed();
	cr_assert(committed == (int64_t)step || committed == (int64_t)step - 1,
	          "step %llu went to %lld", (unsigned long long)step, (long long)committed);
	train_plain(committed);
	check_blobs(committed);
	train_check(committed);
	return committed;
}
