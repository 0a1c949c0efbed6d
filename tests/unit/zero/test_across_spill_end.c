/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: sums of gradients that go to the stores of several nodes fail as one step of all: a write
 * or read that fails on one node, or damage, ends it on all nodes, which are told where, and stand
 * at the commit before; whoever dies while sums are made, written, given and read leaves the same.
 * What cannot be is refused. Method: several zeros in one process, carried in drawn orders
 * (nodes.h); the engine's faulty backend fails the k-th read or write of one of them, for every k;
 * daemons that are killed with what is on their disks (across_train.h).
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/grad/spill_space.h"
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/flip.h"

TestSuite(across_spill_end, .timeout = 600);

/* Of the longest unit: nothing is left for sums. */
#define BUDGET_BYTES (640ull << 10)

static struct train spilling(const char *places, uint32_t strategy, uint32_t shard_size)
{
	struct train what = wanted(places, ZI_OFFLOAD_NVME);

	model_elements[0] = 300000;
	model_elements[1] = 280000;
	model_elements[2] = 270000;
	model_is_flat = true;
	what.training.strategy = strategy;
	what.training.shard_size = shard_size;
	what.training.grad_budget_bytes = BUDGET_BYTES;
	return what;
}

static struct zero_job *job_at(uint32_t place)
{
	return node_job(&net.nodes[place], "train");
}

static void begin_spilling(const struct train *what, uint64_t seed)
{
	begin_train(what, seed);
	for (uint32_t i = 0; i < net.count; i++)
		cr_assert_gt(spill_bytes(job_at(i)), 0, "'%s': node %u", what->places, i);
}

static void free_bytes(uint64_t *ret_bytes)
{
	for (uint32_t i = 0; i < net.count; i++)
		ret_bytes[i] = tier_extent_free_bytes(&net.nodes[i].nvme);
}

/* What is reserved for a step is free when it has ended, however that was. */
static void expect_free(const uint64_t *bytes)
{
	for (uint32_t i = 0; i < net.count; i++)
		cr_assert_eq(tier_extent_free_bytes(&net.nodes[i].nvme), bytes[i], "node %u", i);
}

/* ---- a disk that fails ---- */

static void restart(uint32_t place, const char *backend)
{
	node_stop(&net.nodes[place]);
	net.nodes[place].backend = backend;
	node_start(&net.nodes[place]);
}

/* Return: of the step, on all ranks alike. */
static int try_step(uint64_t step)
{
	int r = train_gradients(step);

	train_step_start(step);
	return train_step_end() ? -EIO : r;
}

/* What ranks of both nodes hear of what befell @place. */
static void all_heard_of(uint32_t place, uint32_t k, uint32_t *sums)
{
	char where[32];

	(void)snprintf(where, sizeof(where), "(on node %u", place);
	for (uint32_t i = 0; i < ranks.world; i++) {
		const struct actor *actor = &ranks.actors[i];
		uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

		while (!actor->is_broken) {
			nodes_turn();
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "rank %u hears nothing", i);
		}
		cr_assert_eq(actor->broken_error, -EIO, "k = %u: %s", k, actor->broken_text.chars);
		cr_assert(strstr(actor->broken_text.chars, net.nodes[place].store_path), "%s",
		          actor->broken_text.chars);
		cr_assert(strstr(actor->broken_text.chars, "at offset "), "%s",
		          actor->broken_text.chars);
		if (ranks.places[i] != place)
			cr_expect(strstr(actor->broken_text.chars, where), "%s",
			          actor->broken_text.chars);
		*sums += strstr(actor->broken_text.chars, "ing gradients of unit") != NULL;
	}
}

/* Each write, or read, of a step of one node. */
static void fail_each(const struct train *what, const char *kind, uint32_t place, uint64_t seed)
{
	uint32_t failed = 0, sums = 0;
	uint64_t bytes[NODES_MAX];
	bool is_sound = false;
	char backend[64];

	begin_spilling(what, seed);
	train_leave(true);
	for (uint32_t k = 1; k < 60 && !is_sound; k++) {
		(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s=%u", kind, k);
		restart(place, backend);
		if (train_come()) { /* Reading what is committed failed. */
			train_leave(false);
			continue;
		}
		cr_assert_eq(train_committed(), 0);
		nodes_settle();
		free_bytes(bytes);
		is_sound = try_step(1) == 0;
		if (is_sound)
			break;
		failed++;
		all_heard_of(place, k, &sums);
		nodes_settle();
		expect_free(bytes);
		train_leave(false);
	}
	cr_assert(is_sound, "one was sound");
	cr_assert_geq(failed, 2u);
	cr_assert_gt(sums, 0, "one of a sum");
	train_leave(true);
	restart(place, "threads");
	resumed(1);
	steps(2, 2);
	end_train();
}

Test(across_spill_end, any_write_that_fails_ends_the_step_on_all_nodes)
{
	struct train what = spilling("0011", ZI_STRATEGY_ZERO2, 0);

	fail_each(&what, "write_eio_at", 0, 1);
	what = spilling("0011", ZI_STRATEGY_ZERO3, 0);
	fail_each(&what, "write_eio_at", 1, 2);
	/* Replicas: what comes is written as well. */
	what = spilling("00011122", ZI_STRATEGY_ZERO2, 2);
	fail_each(&what, "write_eio_at", 1, 3);
}

Test(across_spill_end, any_read_that_fails_ends_the_step_on_all_nodes)
{
	struct train what = spilling("0011", ZI_STRATEGY_ZERO2, 0);

	fail_each(&what, "read_eio_at", 1, 4);
	what = spilling("00011122", ZI_STRATEGY_ZERO2, 2);
	fail_each(&what, "read_eio_at", 0, 5);
}

Test(across_spill_end, damage_is_named_on_all_nodes_and_the_step_undone)
{
	struct train what = spilling("0011", ZI_STRATEGY_ZERO2, 0);
	const struct zero_subgroup *subgroup = NULL;
	uint64_t bytes[NODES_MAX];

	begin_spilling(&what, 6);
	free_bytes(bytes);
	cr_assert_eq(train_gradients(1), 0);
	nodes_settle();
	for (uint32_t i = 0; i < job_at(1)->subgroup_count; i++)
		if (job_at(1)->subgroups[i].is_here)
			subgroup = &job_at(1)->subgroups[i];
	cr_assert_not_null(subgroup);
	flip(subgroup->sum_place.next.member->path, subgroup->sum_place.next.offset_bytes + 5);
	train_step_start(1);
	all_hear(-EBADMSG, "are damaged: ");
	nodes_settle();
	expect_free(bytes);
	train_leave(false);
	resumed(0);
	steps(1, 1);
	end_train();
}

/* ---- whoever dies ---- */

/* Gradients as train_gradients() hands them over, @count of them. */
static void hand_over_some(uint64_t step, uint32_t count)
{
	uint32_t first_unit = net_draw(UNITS), first = net_draw(ranks.world);

	cr_assert_eq(
		nodes_all(&ranks, zero_step_begin, &(struct zero_op){ .options = model_options() }),
		0, "%s", ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t unit = (first_unit + i / ranks.world) % UNITS;
		uint32_t rank = (first + i) % ranks.world;

		cr_assert_eq(train_call(rank, zero_grad_acquire, unit), 0, "%s",
		             ranks.actors[rank].text.chars);
		model_fill_grad(&ranks.actors[rank], step, 0, unit);
		cr_assert_eq(train_call(rank, zero_reduce, unit), 0);
	}
}

/* Return: the step that all go on from. */
static int64_t lose_while_sums_are_made(uint64_t step, enum loss loss, uint32_t place)
{
	uint32_t all = UNITS * ranks.world, count = ranks.world + net_draw(all - ranks.world + 1);
	int64_t committed;

	hand_over_some(step, count);
	if (count == all && net_draw(2))
		train_step_start(step);
	for (uint32_t turns = net_draw(60); turns > 0; turns--)
		nodes_turn();
	lose(loss, place);
	all_go();
	cr_assert_eq(train_come(), 0, "'%s', step %llu, %u of node %u: %s", train.places,
	             (unsigned long long)step, loss, place, ranks.actors[0].text.chars);
	committed = train_committed();
	cr_assert(committed == (int64_t)step || committed == (int64_t)step - 1);
	train_plain(committed);
	check_blobs(committed);
	train_check(committed);
	return committed;
}

Test(across_spill_end, a_death_at_any_moment_costs_a_step_at_most)
{
	static const struct {
		const char *places;
		uint32_t shard_size;
	} runs[] = {
		{ "0011", 0 }, { "01", 0 }, { "000111", 2 }, { "00112233", 2 }, { "0101", 2 }
	};

	for (uint64_t seed = 0; seed < 2 * ZI_COUNT_OF(runs); seed++) {
		uint32_t run = (uint32_t)seed % ZI_COUNT_OF(runs);
		struct train what =
			spilling(runs[run].places, seed % 2 ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_ZERO2,
		                 runs[run].shard_size);
		int64_t committed = 0;

		begin_spilling(&what, seed + 1);
		for (uint32_t i = 0; i < 4; i++)
			committed = lose_while_sums_are_made((uint64_t)committed + 1,
			                                     (enum loss)net_draw(_LOSS_COUNT),
			                                     net_draw(net.count));
		steps((uint64_t)committed + 1, (uint64_t)committed + 1);
		end_train();
	}
}

/* ---- a disk that is slow ---- */

static void hold_disks(bool are_held)
{
	for (uint32_t i = 0; i < net.count; i++)
		net.nodes[i].is_disk_held = are_held;
}

static bool all_slots_are_full(void)
{
	for (uint32_t i = 0; i < net.count; i++)
		if (job_at(i)->spill->used_count < ZERO_SPILL_SLOTS_MAX)
			return false;
	return true;
}

/* As many sums come as are made, though nothing is written: neither takes the other's slots. */
Test(across_spill_end, what_is_made_and_what_comes_keep_apart)
{
	struct train what = spilling("0011", ZI_STRATEGY_ZERO2, 2);
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	uint32_t next[4] = { 0 };

	begin_spilling(&what, 11);
	cr_assert_eq(
		nodes_all(&ranks, zero_step_begin, &(struct zero_op){ .options = model_options() }),
		0);
	hold_disks(true);
	for (uint32_t i = 0; i < ranks.world; i++)
		actor_start(&ranks.actors[i], 0, zero_grad_acquire, &(struct zero_op){ .unit = 0 });
	/* Each rank hands over unit after unit, as it gets its buckets. */
	while (!all_slots_are_full()) {
		nodes_turn();
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "%u and %u slots are full",
		             job_at(0)->spill->used_count, job_at(1)->spill->used_count);
		for (uint32_t i = 0; i < ranks.world; i++) {
			struct actor *actor = &ranks.actors[i];

			if (next[i] == UNITS || !actor->calls[0].is_done)
				continue;
			cr_assert_eq(actor->calls[0].op.result, 0);
			model_fill_grad(actor, 1, 0, next[i]);
			cr_assert_eq(train_call(i, zero_reduce, next[i]), 0);
			if (++next[i] < UNITS)
				actor_start(actor, 0, zero_grad_acquire,
				            &(struct zero_op){ .unit = next[i] });
		}
	}
	hold_disks(false);
	for (uint32_t i = 0; i < ranks.world; i++)
		for (; next[i] < UNITS; next[i]++) {
			cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0);
			model_fill_grad(&ranks.actors[i], 1, 0, next[i]);
			cr_assert_eq(train_call(i, zero_reduce, next[i]), 0);
			if (next[i] + 1 < UNITS)
				actor_start(&ranks.actors[i], 0, zero_grad_acquire,
				            &(struct zero_op){ .unit = next[i] + 1 });
		}
	train_step_start(1);
	cr_assert_eq(train_step_end(), 0, "%s", ranks.actors[0].text.chars);
	plain_train(&plain, 1, 1);
	train_check(1);
	end_train();
}

/* Who waits for a bucket meanwhile hears what it waits for. */
Test(across_spill_end, a_disk_that_does_not_write_is_named_as_the_reason)
{
	struct train what = spilling("01", ZI_STRATEGY_ZERO2, 0);
	struct attach_options options = { .incarnation = "run.0",
		                          .timeout_ns = 3 * ZI_NS_PER_S,
		                          .config = what.config,
		                          .training = what.training };
	int r = 0;

	/* More subgroups of two units on a node than it has slots. */
	model_elements[0] = model_elements[1] = 560000;
	model_elements[2] = 100000;
	options.training.grad_budget_bytes = 1160ull << 10;
	train_init(&what, 12);
	options.config = train.config;
	nodes_attach(&ranks, what.places, &options);
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(
		nodes_all(&ranks, zero_step_begin, &(struct zero_op){ .options = model_options() }),
		0);
	hold_disks(true);
	for (uint32_t unit = 0; unit < UNITS && !r; unit++)
		for (uint32_t i = 0; i < ranks.world && !r; i++) {
			r = train_call(i, zero_grad_acquire, unit);
			if (r)
				cr_expect(strstr(ranks.actors[i].text.chars,
				                 "sums of gradients are still being written to "
				                 "the store"),
				          "%s", ranks.actors[i].text.chars);
			if (!r)
				r = train_call(i, zero_reduce, unit);
		}
	cr_expect_eq(r, -ETIMEDOUT, "the disk takes nothing: %d", r);
	hold_disks(false);
	train_leave(false);
	train_deinit();
}

/* ---- what cannot be ---- */

Test(across_spill_end, f32_never_goes_there)
{
	struct train what = spilling("0011", ZI_STRATEGY_ZERO2, 0);

	what.config.param_dtype = what.config.grad_dtype = ZI_DTYPE_F32;
	what.training.grad_budget_bytes *= 2;
	begin_spilling(&what, 8);
	actor_start(&ranks.actors[0], 0, zero_step_begin,
	            &(struct zero_op){ .options = model_options() });
	cr_assert_eq(nodes_wait(&ranks.actors[0], 0), -EINVAL);
	cr_expect(strstr(ranks.actors[0].text.chars, "gradients never go to NVMe in f32: "), "%s",
	          ranks.actors[0].text.chars);
	cr_expect(strstr(ranks.actors[0].text.chars, "or use grad_dtype bf16"));
	cr_expect_not(strstr(ranks.actors[0].text.chars, "update_early"), "none over nodes");
	train_leave(false);
	train_deinit();
}

/* A store that has no room for them is told of when the step begins. */
Test(across_spill_end, store_without_room_is_told_when_the_step_begins)
{
	struct train what = spilling("0011", ZI_STRATEGY_ZERO2, 0);
	struct tier_extent fill[64] = { { 0 } };
	uint64_t left, needed;

	begin_spilling(&what, 9);
	needed = job_at(1)->here_elements * 12;
	for (uint32_t i = 0; i < 64; i++) {
		left = tier_extent_free_bytes(&net.nodes[1].nvme);
		if (left < needed + 4096)
			break;
		cr_assert_eq(tier_extent_reserve(&net.nodes[1].nvme, 0,
		                                 ZI_MIN(left - needed, 1ull << 20), &fill[i]),
		             0);
	}
	actor_start(&ranks.actors[2], 0, zero_step_begin,
	            &(struct zero_op){ .options = model_options() });
	cr_assert_eq(nodes_wait(&ranks.actors[2], 0), -ENOSPC);
	cr_expect(strstr(ranks.actors[2].text.chars, "gradients of a step of job 'train' need "),
	          "%s", ranks.actors[2].text.chars);
	for (uint32_t i = 0; i < 64; i++)
		tier_extent_release(&fill[i]);
	steps(1, 1);
	end_train();
}
