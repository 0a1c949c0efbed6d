/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks on several nodes that attach forward only see the parameters that were trained or
 * given, bit by bit, wherever these lie and whatever the strategy divides; they hold neither
 * gradients nor state, nothing changes by them, and whoever dies is told of. Method: several zeros
 * in one process (nodes.h), beside the plain computation.
 */
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"

TestSuite(across_forward, .timeout = 300);

static struct zero_job_report report;

static void take_report(void *arg, const struct zero_job_report *given)
{
	(void)arg;
	report = *given;
}

/* Where planes lie, and what divides them. */
static struct train drawn(uint64_t seed, uint32_t flags)
{
	static const char *const places[] = { "01", "0012", "0123", "011", "0101", "00112233" };
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
	train.training.flags = flags;
	return train;
}

static void expect_no_steps(void)
{
	struct zero_op begun = { .options = model_options() };

	cr_expect_eq(nodes_all(&ranks, zero_step_begin, &begun), -EPERM);
	cr_expect_eq(train_call(0, zero_grad_acquire, 0), -EPERM);
	cr_expect_eq(train_call(0, zero_reduce, 0), -EPERM);
	cr_expect_eq(nodes_all(&ranks, zero_step, NULL), -EPERM);
}

/* Of each node. */
static void expect_light(bool is_stateless)
{
	for (uint32_t i = 0; i < net.count; i++) {
		cr_assert(zero_report(net.nodes[i].zero, "train", take_report, NULL));
		cr_expect_eq(report.is_stateless, is_stateless);
		cr_expect_eq(report.grad_cpu_bytes + report.accum_cpu_bytes, 0);
		cr_expect(!is_stateless || report.state_cpu_bytes + report.state_nvme_bytes == 0);
		cr_expect_null(node_job(&net.nodes[i], "train")->across->grads);
	}
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_expect_null(ranks.actors[i].memory.grad);
}

/* ---- a job of its own ---- */

Test(across_forward, values_that_are_given_are_seen_on_all_nodes)
{
	each_draw(seed, 24) {
		struct train train = drawn(seed, ZI_TRAINING_FORWARD_ONLY);

		begin_train(&train, seed);
		expect_light(true);
		expect_no_steps();
		for (int round = 0; round < 3; round++)
			train_check(0);
		cr_assert_eq(nodes_all(&ranks, zero_barrier, NULL), 0);
		end_train();
	}
}

/* Others, between uses: of one unit, on top of what was given. */
Test(across_forward, values_are_given_anew)
{
	each_draw(seed, 12) {
		struct train train = drawn(seed, ZI_TRAINING_FORWARD_ONLY);
		uint32_t root;

		begin_train(&train, seed);
		root = net_draw(ranks.world);
		cr_assert_eq(train_call(root, zero_param_write_begin, 1), 0);
		fill(zero_param_staging(ranks.actors[root].rank)->region.base, 77,
		     model_elements[1], train.config.param_dtype);
		cr_assert_eq(nodes_all(&ranks, zero_param_write_end,
		                       &(struct zero_op){ .unit = 1, .root = root }),
		             0, "%s", ranks.actors[0].text.chars);
		cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s",
		             ranks.actors[0].text.chars);
		fill(plain.param[1], 77, model_elements[1], train.config.param_dtype);
		train_check(0);
		end_train();
	}
}

/* The daemons of all nodes are stopped, and started again. */
Test(across_forward, what_is_on_the_stores_outlives_the_daemons)
{
	each_draw(seed, 12) {
		struct train train = drawn(3 * (seed / 2) + 1 + seed % 2, ZI_TRAINING_FORWARD_ONLY);

		begin_train(&train, seed);
		train_leave(true);
		for (uint32_t i = 0; i < net.count; i++) {
			node_stop(&net.nodes[i]);
			node_start(&net.nodes[i]);
		}
		cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
		cr_assert_eq(train_committed(), 0);
		expect_light(true);
		check_blobs(0);
		train_check(0);
		end_train();
	}
}

/* ---- a job that trains ---- */

/* It is used in between, by ranks where those that train were, and goes on in the same bits. */
Test(across_forward, what_trains_is_used_as_it_stands_and_goes_on)
{
	each_draw(seed, 24) {
		struct train wanted_train = drawn(seed, 0);

		begin_train(&wanted_train, seed);
		steps(1, 2);
		train_leave(true);
		train.training.flags = ZI_TRAINING_FORWARD_ONLY;
		for (int start = 0; start < 2; start++) {
			cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
			cr_assert_eq(train_committed(), 2);
			expect_light(false);
			expect_no_steps();
			cr_expect_eq(train_call(0, zero_param_write_begin, 0), -EPERM);
			cr_expect_eq(nodes_all(&ranks, zero_commit, NULL), -EPERM);
			train_check(2);
			train_check(2);
			train_leave(true);
		}
		train.training.flags = 0;
		resumed(2);
		steps(3, 4);
		end_train();
	}
}

/* By who would have it elsewhere, or divided otherwise, it is not used: both are told. */
Test(across_forward, what_is_not_as_it_was_trained_is_named)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);
	const char *text = ranks.actors[0].text.chars;

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_train(&what, 2);
	steps(1, 1);
	train_leave(true);
	train.training.flags = ZI_TRAINING_FORWARD_ONLY;
	train.training.strategy = ZI_STRATEGY_DDP;
	train.places = "011";
	cr_assert_eq(train_come(), -EOPNOTSUPP, "%s", text);
	cr_expect_not_null(strstr(text, "come as it was trained, 2 ranks on 2 nodes with zero1, "
	                                "each where it was, and not as 3 ranks on 2 nodes with "
	                                "ddp"),
	                   "%s", text);
	train_leave(false);
	train.training.strategy = ZI_STRATEGY_ZERO1;
	train.training.flags = 0;
	train.places = "01";
	resumed(1);
	end_train();
}

/* Which nodes meet for what is not the same. */
Test(across_forward, nodes_that_differ_are_named)
{
	const struct train ours = wanted("01", ZI_OFFLOAD_CPU);
	struct attach_options options = { .world = 2, .local = 1, .incarnation = "run.0" };

	train_init(&ours, 3);
	options.config = train.config;
	ranks.world = 2;
	for (uint32_t i = 0; i < 2; i++) {
		ranks.places[i] = (uint8_t)i;
		options.rank = i;
		options.training.flags = i ? ZI_TRAINING_FORWARD_ONLY : 0;
		cr_assert_eq(actor_attach(&net.nodes[i], &ranks.actors[i], &options), 0);
	}
	nodes_layout(&ranks);
	cr_expect_eq(nodes_materialize(&ranks), -EINVAL);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "is_forward_only"), "%s",
	                   ranks.actors[0].text.chars);
	train_leave(false);
	train_deinit();
}

/* ---- who goes, and who lies ---- */

/* Whoever is lost at whatever moment of a use, or of values that come: the others hear of it, what
 * was committed is there for the next start, and nothing is left of this one. */
Test(across_forward, a_loss_at_any_moment_leaves_what_was_committed)
{
	each_draw(seed, 36) {
		struct train train = drawn(seed, ZI_TRAINING_FORWARD_ONLY);
		bool is_nvme = train.config.offload_optimizer == ZI_OFFLOAD_NVME;
		enum loss loss = (enum loss)(seed / 4 % (is_nvme ? _LOSS_COUNT : LOSS_DAEMON));

		begin_train(&train, seed);
		if (seed % 2) {
			for (uint32_t i = 0; i < ranks.world; i++)
				actor_start(
					&ranks.actors[i], 0, zero_unshard,
					&(struct zero_op){ .unit = (i + (uint32_t)seed) % UNITS });
		} else {
			cr_assert_eq(train_call(0, zero_param_write_begin, 1), 0);
			for (uint32_t i = 0; i < ranks.world; i++)
				actor_start(&ranks.actors[i], 1, zero_param_write_end,
				            &(struct zero_op){ .unit = 1 });
		}
		for (uint64_t i = 0; i < seed * seed / 6; i++)
			nodes_turn();
		lose(loss, (uint32_t)(seed % net.count));
		all_go();
		if (is_nvme)
			resumed(0);
		train_leave(true);
		train_deinit();
	}
}

/* What nodes say while they train cannot be said here. */
Test(across_forward, words_of_a_step_end_the_talk)
{
	static const struct talk_entry bad[] = {
		{ .kind = TALK_READY, .what = 1, .unit = 1, .micro = 1 },
		{ .kind = TALK_READY, .what = 2, .unit = 1, .micro = 1 },
		{ .kind = TALK_PULL, .what = PULL_PARTIAL, .unit = 1, .micro = 1, .bytes = 4096 },
		{ .kind = TALK_PULL, .what = PULL_SUM, .unit = 1, .micro = 1, .bytes = 4096 },
		{ .kind = TALK_PULL, .what = PULL_NORM, .micro = 1, .bytes = 16 },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		struct train train = wanted("01", ZI_OFFLOAD_CPU);
		struct talk_entry entry = bad[i];
		struct net_worker *worker;

		train.training = (struct zi_job_training){ .strategy = strategy_of(i),
			                                   .flags = ZI_TRAINING_FORWARD_ONLY };
		begin_train(&train, 20 + i);
		nodes_settle();
		for (worker = net.workers; worker->place != 1;)
			worker = worker->next;
		entry.slab = NET_SLAB_TALK;
		entry.tag = 1;
		net_put(worker, 0, &(struct net_event){ .what = NET_EVENT_ENTRY, .entry = entry });
		all_hear(-EPROTO, "node 0");
		train_leave(false);
		train_deinit();
	}
}
