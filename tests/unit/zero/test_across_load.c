/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job over several nodes begins with a snapshot: with what each node kept of one commit, or
 * with what all have whole; and never with different steps. Method: nodes in one process, beside
 * the plain computation.
 */
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/kept.h"

TestSuite(across_load, .timeout = 60);

/* As begin_train(), with stores for snapshots and a second job. */
static void begin_large(const struct train *what, uint64_t seed)
{
	train = *what;
	if (train.config.offload_optimizer == ZI_OFFLOAD_NVME)
		train.config.staging_bytes = 16 * MIB;
	nodes_init(train_node_count(), seed);
	for (uint32_t i = 0; i < net.count; i++)
		net.nodes[i].store_bytes = 64 * MIB;
	nodes_start();
	train_plain(0);
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
}

/* Job "other" on both nodes, whose ranks have asked for @names. Return: what materialize says. */
static int load_other(const char *const names[2])
{
	nodes_attach(&ranks, "01",
	             &(struct attach_options){ .job = "other",
	                                       .incarnation = "run.0",
	                                       .config = train.config,
	                                       .training = train.training });
	for (uint32_t i = 0; i < 2; i++)
		if (names[i])
			cr_assert_eq(zero_load(ranks.actors[i].rank, "train", names[i],
			                       &ranks.actors[i].text),
			             0, "%s", ranks.actors[i].text.chars);
	nodes_layout(&ranks);
	return nodes_materialize(&ranks);
}

static void keep(const char *name)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	struct kept kept = { .op.done = NULL };

	kept_start(&net.nodes[1], &kept, zero_snapshot_create, "train", name);
	while (!kept.is_done) {
		nodes_turn();
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the snapshot never ends");
	}
	cr_assert_eq(kept.op.result, 0, "%s", kept.op.text.chars);
	nodes_settle();
}

/* What each node kept of one commit, and began with; parameters lie in @after then. */
static void load_parts(uint32_t strategy, enum zi_offload offload, enum zi_offload offload_param,
                       enum zi_offload after)
{
	static const char *const names[2] = { "two", "two" }, *const again[2] = { "two", NULL };
	struct train what = wanted("01", offload);

	what.training.strategy = strategy;
	what.config.offload_param = offload_param;
	begin_large(&what, 4);
	steps(1, 2);
	keep("two");
	steps(3, 3);
	train_leave(true);
	nodes_settle();
	train.config.offload_param = after;
	cr_assert_eq(load_other(names), 0, "%s", ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < 2; i++) {
		const struct zero_job *job = node_job(&net.nodes[i], "other");

		cr_expect_eq(job->committed_step, 2);
		cr_expect_eq(job->committed.placement.node_count, 2);
		cr_expect_eq(job->committed.placement.node, i);
	}
	train_plain(2);
	train_check(2);
	steps(3, 4);
	/* Started again it has a step of its own, whoever asks for whatever. */
	train_leave(true);
	cr_assert_eq(load_other(again), 0, "%s", ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(node_job(&net.nodes[i], "other")->committed_step, 4);
	train_check(4);
	end_train();
}

Test(across_load, each_node_begins_with_its_part_of_a_snapshot)
{
	enum zi_offload none = ZI_OFFLOAD_NONE, cpu = ZI_OFFLOAD_CPU, nvme = ZI_OFFLOAD_NVME;

	load_parts(ZI_STRATEGY_ZERO1, nvme, cpu, cpu);
	load_parts(ZI_STRATEGY_ZERO3, cpu, none, none);
	load_parts(ZI_STRATEGY_DDP, nvme, nvme, nvme);
	load_parts(ZI_STRATEGY_ZERO3, nvme, cpu, nvme);
	/* Parameters of what the other node holds are here, and stay; or are not taken. */
	load_parts(ZI_STRATEGY_ZERO1, nvme, nvme, nvme);
	load_parts(ZI_STRATEGY_ZERO2, nvme, nvme, nvme);
	load_parts(ZI_STRATEGY_ZERO2, nvme, nvme, cpu);
}

/* A node that ends between two nodes' CREATE leaves the job on some alone: on node 0 here. */
Test(across_load, what_a_start_that_failed_left_is_told_how_to_end)
{
	static const char *const names[2] = { "two", "two" };
	struct train what = wanted("01", ZI_OFFLOAD_NVME);
	struct kept kept = { .op.done = NULL };
	const char *text;

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_large(&what, 4);
	steps(1, 2);
	keep("two");
	train_leave(true);
	nodes_settle();
	cr_assert_eq(load_other(names), 0, "%s", ranks.actors[0].text.chars);
	nodes_leave(&ranks, true);
	nodes_settle();
	cr_assert_eq(kept_call(&net.nodes[1], &kept, zero_job_delete, "other", ""), 0, "%s",
	             kept.op.text.chars);
	cr_assert_eq(load_other(names), -ENODATA);
	text = ranks.actors[0].text.chars;
	cr_expect_not_null(strstr(text, "which rank 1 on node 1 had"), "%s", text);
	cr_expect_not_null(strstr(text, "or zctl delete it"), "%s", text);
	nodes_leave(&ranks, false);
	nodes_settle();
	cr_assert_eq(kept_call(&net.nodes[0], &kept, zero_job_delete, "other", ""), 0, "%s",
	             kept.op.text.chars);
	cr_assert_eq(load_other(names), 0, "%s", ranks.actors[0].text.chars);
	train_plain(2);
	train_check(2);
	steps(3, 4);
	end_train();
}

/* Each has all of it; the daemon of one of them began anew since it was kept. */
Test(across_load, a_snapshot_is_the_same_after_a_daemon_began_anew)
{
	static const char *const names[2] = { "two", "two" };
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	begin_large(&what, 6);
	steps(1, 2);
	keep("two");
	train_leave(true);
	nodes_settle();
	node_stop(&net.nodes[1]);
	node_start(&net.nodes[1]);
	cr_assert_eq(load_other(names), 0, "%s", ranks.actors[0].text.chars);
	train_plain(2);
	train_check(2);
	steps(3, 4);
	end_train();
}

/* Nodes that would begin with different steps, or only one of them with any. */
Test(across_load, nodes_begin_with_the_same_snapshot_or_with_none)
{
	static const char *const names[][2] = { { "one", "two" },
		                                { "one", NULL },
		                                { NULL, "two" } };
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_large(&what, 4);
	steps(1, 1);
	keep("one");
	steps(2, 2);
	keep("two");
	train_leave(true);
	nodes_settle();
	for (size_t i = 0; i < ZI_COUNT_OF(names); i++) {
		cr_expect_eq(load_other(names[i]), -EINVAL);
		cr_expect_not_null(strstr(ranks.actors[0].text.chars, "load the same on all nodes"),
		                   "%s", ranks.actors[0].text.chars);
		nodes_leave(&ranks, false);
		nodes_settle();
	}
	/* With all parameters on its store, or by another strategy, each would need what the other
	 * has. */
	train.config.offload_param = ZI_OFFLOAD_NVME;
	cr_expect_eq(load_other((const char *const[]){ "two", "two" }), -EOPNOTSUPP);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "same strategy and offload_param"),
	                   "%s", ranks.actors[0].text.chars);
	nodes_leave(&ranks, false);
	nodes_settle();
	train.config.offload_param = ZI_OFFLOAD_NONE;
	train.training.strategy = ZI_STRATEGY_ZERO3;
	cr_expect_eq(load_other((const char *const[]){ "two", "two" }), -EOPNOTSUPP);
	cr_expect_not_null(strstr(ranks.actors[1].text.chars, "would begin with one node's part"),
	                   "%s", ranks.actors[1].text.chars);
	end_train();
}
