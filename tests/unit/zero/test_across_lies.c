/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever another node's daemon says, at whatever moment, this one stays: no call hangs,
 * what fails says why, the jobs that have nothing to do with that node train on in their own bits,
 * and the daemon starts again with what it has committed. Method: lives of jobs over nodes of
 * drawn kinds, of which one lies from a drawn entry on (lies.h); under ASan it looks closer.
 */
#include "tests/unit/zero/lies.h"
#include "tests/unit/zero/moved.h"

TestSuite(across_lies, .timeout = 900);

#define LIES_TIMEOUT_NS patient_ns(400 * ZI_NS_PER_MS)

/* ---- a job of one rank on each node, whose affair none of it is ---- */

static struct actor near_ones[NODES_MAX];
static struct plain near_plains[NODES_MAX];

static void near_begin(uint32_t place)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	plain_init(&near_plains[place], &config, 1);
	model_begin(&net.nodes[place], &near_ones[place], 1,
	            &(struct attach_options){ .job = "near", .config = config });
}

static void near_step(uint32_t place)
{
	struct zi_step_options options = model_options();
	struct actor *actor = &near_ones[place];
	uint64_t step = (uint64_t)actor->rank->job->committed_step + 1;

	cr_assert_eq(model_step(actor, 1, step, &options), 0, "%s", actor->text.chars);
	plain_step(&near_plains[place], step, &options);
	cr_assert(plain_equals(&near_plains[place], actor));
}

static void near_end(uint32_t place)
{
	actor_leave(&near_ones[place], true);
	plain_deinit(&near_plains[place]);
}

/* ---- the job that one node lies about ---- */

/* Where planes lie, and what divides them. */
static struct train drawn(uint64_t seed)
{
	static const char *const places[] = { "01", "0012", "0123", "011", "0101", "00112" };
	static const uint32_t offloads[][2] = {
		{ ZI_OFFLOAD_CPU, ZI_OFFLOAD_NONE },
		{ ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU },
		{ ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME },
	};
	const uint32_t *offload = offloads[seed % 3];
	struct train train = { .places = places[seed % ZI_COUNT_OF(places)],
		               .config = model_config(seed % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
		                                      offload[0]) };

	train.config.offload_param = offload[1];
	train.training.strategy = strategy_of(seed / 3);
	train.training.flags = seed % 7 == 1   ? ZI_TRAINING_FORWARD_ONLY
	                       : seed % 7 == 2 ? ZI_TRAINING_FIND_UNUSED
	                                       : 0;
	if (offload[1] == ZI_OFFLOAD_NVME && train.training.strategy != ZI_STRATEGY_DDP)
		train.training.strategy = ZI_STRATEGY_ZERO3;
	return train;
}

/* Return: the first error. */
static int come(void)
{
	static char names[64][16];
	char *name = names[train.start % ZI_COUNT_OF(names)];
	struct attach_options options = { .incarnation = name,
		                          .timeout_ns = net.lie == lie ? LIES_TIMEOUT_NS : 0,
		                          .config = train.config,
		                          .training = train.training };
	int r = 0;

	(void)snprintf(name, sizeof(names[0]), "run.%u", train.start++);
	ranks.world = (uint32_t)strlen(train.places);
	for (uint32_t i = 0; i < ranks.world; i++) {
		ranks.places[i] = (uint8_t)(train.places[i] - '0');
		ranks.actors[i].rank = NULL;
	}
	for (uint32_t i = 0; i < ranks.world && !r; i++) {
		options.rank = i;
		options.world = ranks.world;
		options.local = nodes_local_size(&ranks, ranks.places[i]);
		r = actor_attach(&net.nodes[ranks.places[i]], &ranks.actors[i], &options);
		cr_assert(!r || ranks.actors[i].text.chars[0]);
	}
	if (r)
		return r;
	nodes_layout(&ranks);
	return nodes_materialize(&ranks);
}

static int look(void)
{
	int r = 0;

	for (uint32_t unit = 0; unit < UNITS && !r; unit++)
		for (uint32_t i = 0; i < ranks.world && !r; i++) {
			r = train_call(i, zero_unshard, unit);
			if (!r)
				r = train_call(i, zero_reshard, unit);
		}
	return r;
}

static int go_steps(uint32_t count)
{
	int r = look();

	for (uint32_t i = 0; i < count && !r; i++) {
		uint64_t step = (uint64_t)ranks.actors[0].rank->job->current_step + 1;

		r = train_gradients(step);
		if (r)
			return r;
		train_step_start(step);
		r = train_step_end();
		if (!r)
			r = look();
	}
	return r;
}

/* One start of the job, as far as it comes. */
static int go(void)
{
	bool trains = !(train.training.flags & ZI_TRAINING_FORWARD_ONLY);
	int r = come();

	if (!r && ranks.actors[0].memory.committed_step < 0)
		r = train_write();
	if (!r)
		r = trains ? go_steps(2) : look();
	/* Whoever has an error has a reason. */
	for (uint32_t i = 0; r && i < ranks.world; i++)
		cr_assert(!ranks.actors[i].is_broken || ranks.actors[i].broken_text.chars[0]);
	train_leave(!r);
	return r;
}

static void check_near(void)
{
	for (uint32_t i = 0; i < net.count; i++)
		near_step(i);
}

static void live(uint64_t seed)
{
	struct train what = drawn(seed);
	static const char *const elsewhere[] = { "10", "2100", "3012", "100", "1010", "21001" };
	static const uint8_t pulls[] = { PULL_WRITTEN, PULL_PARTIAL, PULL_SUM, PULL_PARAM };
	static const uint8_t rounds[] = { ROUND_WRITE_END, ROUND_COMMIT, ROUND_STEP_BEGIN,
		                          ROUND_STEP,      ROUND_SUMMED, ROUND_PREPARED,
		                          ROUND_COMMITTED, ROUND_LAYOUT, ROUND_MADE,
		                          ROUND_RESUME };

	train_init(&what, seed);
	for (uint32_t i = 0; i < net.count; i++)
		near_begin(i);
	lies.node = net_draw(net.count);
	lies.is_single = seed % 4;
	lies.kind = seed % 4 == 1 ? TALK_CAME : TALK_ROUND;
	lies.what = seed % 4 == 1 ? pulls[net_draw(ZI_COUNT_OF(pulls))]
	                          : rounds[net_draw(ZI_COUNT_OF(rounds))];
	lies.from = lies.is_single ? 0 : net_draw(1200);
	lies.often = lies.is_single ? 1 + net_draw(4) : 10;
	net.lie = lie;
	for (uint32_t i = 0; i < 4; i++) {
		(void)go();
		check_near();
		if (i == 1)
			move_to(elsewhere[seed % ZI_COUNT_OF(elsewhere)], train.training.strategy,
			        0);
	}
	net.lie = NULL;
	for (uint32_t i = 0; i < net.count; i++)
		near_end(i);
	nodes_settle();
	/* They start again, with what they have, and what cannot go on says why. */
	for (uint32_t i = 0; i < net.count; i++) {
		node_settle(&net.nodes[i]);
		node_stop(&net.nodes[i]);
		node_start(&net.nodes[i]);
		if (job_at(i) && job_at(i)->refusal)
			cr_assert(job_at(i)->refusal_text.chars[0]);
	}
	(void)go();
	train_deinit();
}

/* LIES_SEED=n LIES_COUNT=n: more of them, by hand. */
static uint64_t seed_at(uint64_t index, uint64_t count)
{
	const char *first = getenv("LIES_SEED"), *most = getenv("LIES_COUNT");

	if (index >= (most ? strtoull(most, NULL, 10) : count))
		return 0;
	return (first ? strtoull(first, NULL, 10) : 1) + index;
}

Test(across_lies, nobody_falls_by_what_another_node_says)
{
	for (uint64_t i = 0, seed; (seed = seed_at(i, 4)); i++)
		live(seed);
	cr_assert_gt(lies.count, 0);
}

/* ---- lies while nodes look for what they go on from ---- */

static void lie_at_start(void)
{
	static const uint8_t rounds[] = { ROUND_RESUME, ROUND_MODEL,  ROUND_LAYOUT, ROUND_RESUME,
		                          ROUND_HEAL,   ROUND_HEALED, ROUND_MADE };
	static const uint8_t pulls[] = { PULL_OFFER, PULL_HEAL };
	bool is_pull = net_draw(3) == 0;

	lies.node = net_draw(net.count);
	lies.from = 0;
	lies.is_single = true;
	lies.kind = TALK_ROUND;
	if (is_pull)
		lies.kind = net_draw(4) ? TALK_CAME : TALK_PULL;
	lies.what = is_pull ? pulls[net_draw(2)] : rounds[net_draw(ZI_COUNT_OF(rounds))];
	lies.often = 1 + net_draw(3);
	net.lie = lie;
}

/* Once nobody lies any more it begins. */
Test(across_lies, a_job_that_is_new)
{
	for (uint64_t i = 0, seed; (seed = seed_at(i, 2)); i++) {
		struct train what = drawn(seed);

		train_init(&what, seed);
		for (uint32_t k = 0; k < 30; k++) {
			lie_at_start();
			train_leave(!come());
		}
		net.lie = NULL;
		cr_assert_eq(come(), 0, "%s", ranks.actors[0].text.chars);
		train_leave(true);
		train_deinit();
	}
}

/* Whatever was said while it was healed, it goes on where it was. */
Test(across_lies, a_job_that_moves)
{
	static const char *const elsewhere[] = { "1230", "2103", "30121", "10233" };

	for (uint64_t i = 0, seed; (seed = seed_at(i, 2)); i++) {
		struct train what = wanted("0012", ZI_OFFLOAD_NVME);

		what.training.strategy = strategy_of(seed);
		begin_train(&what, seed);
		steps(1, 1);
		train_leave(true);
		for (uint32_t k = 0; k < 12; k++) {
			move_to(elsewhere[net_draw(ZI_COUNT_OF(elsewhere))],
			        strategy_of(net_draw(4)), 0);
			lie_at_start();
			train_leave(!come());
			net.lie = NULL;
			if (k % 3 != 2)
				continue;
			cr_assert_eq(come(), 0, "%s", ranks.actors[0].text.chars);
			cr_assert_eq(train_committed(), 1);
			train_check(1);
			train_leave(true);
			restart_nodes();
		}
		train_deinit();
	}
}

/* ---- a start that has failed ---- */

/* Node 1 says to node 0 alone that it could not make its memory, and goes on as if it could. */
static uint32_t lie_not_made(struct net_worker *worker, struct talk_entry *entry)
{
	if (entry->node == 1 && entry->kind == TALK_ROUND && entry->what == ROUND_MADE &&
	    worker->join.node == 0)
		entry->error = -ENOMEM;
	return 1;
}

/* What it says of that start then is of none. */
Test(across_lies, a_start_that_failed_is_not_gone_on_with)
{
	struct train what = wanted("001", ZI_OFFLOAD_NVME);

	what.training.strategy = ZI_STRATEGY_ZERO1;
	for (uint64_t seed = 1; seed <= 2; seed++) {
		train_init(&what, seed);
		net.lie = lie_not_made;
		cr_expect_lt(come(), 0);
		net.lie = NULL;
		train_leave(false);
		cr_assert_eq(come(), 0, "%s", ranks.actors[0].text.chars);
		train_leave(true);
		train_deinit();
	}
}
