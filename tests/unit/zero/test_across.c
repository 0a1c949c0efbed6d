/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks on several nodes come to calls together, and what differs is told by name on all
 * nodes. Method: several zeros in one process, whose workers are doubles, with what they say
 * carried in drawn orders (nodes.h).
 */
#include "daemon/zero/across/bytes/pull.h"
#include "tests/unit/zero/across.h"
#include "tests/unit/zero/ballot.h"

Test(across, ranks_of_all_nodes_come_together)
{
	static const char *const places[] = { "01", "0011", "0101", "0112", "0120301" };

	for (uint64_t seed = 1; seed <= 10; seed++) {
		made(4, seed, places[seed % ZI_COUNT_OF(places)]);
		for (uint32_t i = 0; i < 5; i++)
			cr_assert_eq(nodes_all(&ranks, zero_barrier, NULL), 0, "seed %llu: %s",
			             (unsigned long long)seed, ranks.actors[0].text.chars);
		end(true);
	}
}

/* Nobody passes before the last one of the other node has come. */
Test(across, a_barrier_waits_for_every_node)
{
	made(2, 3, "001");
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	actor_start(&ranks.actors[1], 0, zero_barrier, NULL);
	for (uint32_t i = 0; i < 200; i++)
		nodes_turn();
	cr_expect(!ranks.actors[0].calls[0].is_done);
	actor_start(&ranks.actors[2], 0, zero_barrier, NULL);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(nodes_wait(&ranks.actors[i], 0), 0);
	end(true);
}

/* A worker that takes one entry at a time is given the others when it can. */
Test(across, a_slow_worker_is_waited_for)
{
	made(3, 5, "012");
	net.room = 1;
	for (uint32_t i = 0; i < 20; i++)
		cr_assert_eq(nodes_all(&ranks, zero_barrier, NULL), 0);
	net.room = 0;
	end(true);
}

/* ---- what differs ---- */

Test(across, a_configuration_that_differs_is_named_on_all_nodes)
{
	struct attach_options options = { .incarnation = "run.0",
		                          .rank = 1,
		                          .world = 2,
		                          .local = 1,
		                          .config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU) };

	nodes_init(2, 1);
	nodes_start();
	ranks = (struct nodes_ranks){ .world = 2, .places = { 0, 1 } };
	cr_assert_eq(actor_attach(&net.nodes[1], &ranks.actors[1], &options), 0);
	options.rank = 0;
	options.config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	cr_assert_eq(actor_attach(&net.nodes[0], &ranks.actors[0], &options), 0);
	nodes_layout(&ranks);
	cr_expect_eq(nodes_materialize(&ranks), -EINVAL);
	all_hear(-EINVAL, "param_dtype is f32, but bf16 in rank 0");
	/* Who sees it first tells the others, but for the number. */
	cr_expect(ranks.actors[0].broken_culprit == 1 || ranks.actors[1].broken_culprit == 1);
	end(true);
}

Test(across, a_strategy_that_differs_is_named_on_all_nodes)
{
	struct attach_options options = { .incarnation = "run.0",
		                          .world = 2,
		                          .local = 1,
		                          .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) };

	nodes_init(2, 1);
	nodes_start();
	ranks = (struct nodes_ranks){ .world = 2, .places = { 0, 1 } };
	for (options.rank = 0; options.rank < 2; options.rank++) {
		options.training.strategy = options.rank ? ZI_STRATEGY_ZERO1 : ZI_STRATEGY_ZERO2;
		cr_assert_eq(actor_attach(&net.nodes[options.rank], &ranks.actors[options.rank],
		                          &options),
		             0, "%s", ranks.actors[options.rank].text.chars);
	}
	nodes_layout(&ranks);
	cr_expect_eq(nodes_materialize(&ranks), -EINVAL);
	all_hear(-EINVAL, "zero1");
	all_hear(-EINVAL, "rank 1 (on node 1");
	end(true);
}

/* What node 1 has said first, before node 0 hears it. */
static struct talk_entry *first_vote(void)
{
	struct net_worker *worker;

	for (;;) {
		for (worker = net.workers; worker && worker->place != 0;)
			worker = worker->next;
		if (worker && worker->from[1].put)
			break;
		nodes_turn();
	}
	cr_assert_eq(worker->from[1].events[0].entry.kind, TALK_ROUND);
	return &worker->from[1].events[0].entry;
}

/* As a build before rounds had a version says it, or one whose vote is longer. */
Test(across, daemons_of_two_builds_are_told_apart)
{
	for (uint32_t i = 0; i < 2; i++) {
		const uint32_t former = 0;
		struct talk_entry *entry;

		begin(2, i + 1, "01");
		nodes_layout(&ranks);
		nodes_hold(1, 0, true);
		actor_start(&ranks.actors[0], 0, zero_materialize, &nodes_place);
		actor_start(&ranks.actors[1], 0, zero_materialize, &nodes_place);
		entry = first_vote();
		entry->data_bytes += i ? 8 : 0;
		memcpy(entry->data + entry->data_bytes - sizeof(former), &former, sizeof(former));
		nodes_hold(1, 0, false);
		all_hear(-EPROTONOSUPPORT, "zinfd of node 1 (ranks 1) is of another build");
		all_hear(-EPROTONOSUPPORT, "(rounds of version 0 and 6): install the same zinf");
		end(true);
	}
}

/* Of 60 units one parameter has another shape, or one more is there; wherever it is. */
Test(across, where_models_differ_is_found)
{
	for (uint32_t odd = 0; odd < 60; odd += 13) {
		char name[32], words[64];

		begin(3, odd + 1, "012");
		for (uint32_t i = 0; i < 3; i++)
			for (uint32_t k = 0; k < 60; k++) {
				bool is_odd = i == 1 && k == odd;

				(void)snprintf(name, sizeof(name), "h.%u", k);
				layout_unit(&ranks.actors[i], name);
				(void)snprintf(name, sizeof(name), "h.%u.w", k);
				layout_param(&ranks.actors[i], name, is_odd ? 11 : 10, 80);
			}
		cr_expect_eq(nodes_materialize(&ranks), -EINVAL);
		(void)snprintf(words, sizeof(words), "'h.%u.w' (10,80) of unit %u in node 0", odd,
		               odd);
		all_hear(-EINVAL, words);
		all_hear(-EINVAL, "(11,80)");
		all_hear(-EINVAL, "node 1 (ranks 1");
		end(true);
	}
}

Test(across, a_model_that_ends_before_is_named)
{
	begin(2, 9, "01");
	for (uint32_t i = 0; i < 2; i++) {
		layout_unit(&ranks.actors[i], "a");
		layout_param(&ranks.actors[i], "a.w", 10, 80);
		if (i)
			continue;
		layout_unit(&ranks.actors[i], "b");
		layout_param(&ranks.actors[i], "b.w", 10, 80);
	}
	cr_expect_eq(nodes_materialize(&ranks), -EINVAL);
	all_hear(-EINVAL, "unit 1 is 'b' in node 0, but missing in node 1");
	end(true);
}

/* One node has no room: the others hear so, and all may try again. */
Test(across, memory_that_is_not_there_on_one_node_is_there_on_none)
{
	nodes_init(2, 4);
	net.nodes[1].cpu_bytes = 2 * PULL_NODE_SLOTS * PULL_SLOT_BYTES + MIB;
	nodes_start();
	nodes_attach(
		&ranks, "01",
		&(struct attach_options){ .incarnation = "run.0",
	                                  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
	nodes_layout(&ranks);
	cr_expect_eq(nodes_materialize(&ranks), -ENOSPC);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(ranks.actors[i].calls[0].op.result, -ENOSPC);
		cr_expect_str_eq(ranks.actors[i].text.chars, ranks.actors[0].text.chars);
		cr_expect(!ranks.actors[i].is_broken);
	}
	cr_expect_eq(strncmp(ranks.actors[0].text.chars, "node 1 (ranks 1", 15), 0, "%s",
	             ranks.actors[0].text.chars);
	cr_expect_eq(nodes_materialize(&ranks), -ENOSPC, "again, by the same talk");
	cr_expect_eq(net.worker_count, 2);
	end(true);
}

/* Where bytes would come and go there is no room on one node: nowhere can it be. */
Test(across, a_slab_that_does_not_fit_on_one_node_ends_the_start)
{
	nodes_init(2, 4);
	net.nodes[1].cpu_bytes = MIB;
	nodes_start();
	nodes_attach(
		&ranks, "01",
		&(struct attach_options){ .incarnation = "run.0",
	                                  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
	nodes_layout(&ranks);
	cr_expect_eq(nodes_materialize(&ranks), -ENOSPC);
	all_hear(-ENOSPC, "16 MiB");
	end(true);
}

Test(across, a_job_that_stands_elsewhere_on_another_node_is_refused)
{
	made(2, 2, "01");
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", ranks.actors[0].text.chars);
	nodes_leave(&ranks, true);
	nodes_settle();
	node_job(&net.nodes[1], "train")->committed_step = 7;
	node_job(&net.nodes[1], "train")->current_step = 7;
	node_job(&net.nodes[1], "train")->committed.number = 8;
	node_job(&net.nodes[1], "train")->former.is_named = false;
	nodes_attach(
		&ranks, "01",
		&(struct attach_options){ .incarnation = "run.1",
	                                  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
	nodes_layout(&ranks);
	cr_expect_eq(nodes_materialize(&ranks), -ENODATA);
	for (uint32_t i = 0; i < 2; i++) {
		const char *text = ranks.actors[i].text.chars;

		cr_expect_not_null(strstr(text, "node 1 (ranks 1"), "%s", text);
		cr_expect_not_null(strstr(text, "is at step 7, but node 0"), "%s", text);
	}
	end(true);
}

Test(across, ranks_that_call_different_things_are_told_both)
{
	made(2, 8, "01");
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	actor_start(&ranks.actors[1], 0, zero_commit, NULL);
	(void)nodes_wait(&ranks.actors[0], 0);
	(void)nodes_wait(&ranks.actors[1], 0);
	all_hear(-EINVAL, "barrier");
	all_hear(-EINVAL, "commit");
	end(false);
}

/* ---- steps ---- */

static void hand_over(struct actor *actor)
{
	for (uint32_t unit = UNITS; unit-- > 0;) {
		cr_assert_eq(actor_unit(actor, zero_grad_acquire, unit), 0);
		model_fill_grad(actor, 1, 0, unit);
		cr_assert_eq(actor_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
	}
}

/* Who has begun goes on at once; who has ended waits for all nodes. */
Test(across, a_step_ends_when_the_ranks_of_all_nodes_have_ended_it)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct zero_op options = { .options = model_options() };
		uint32_t last = (uint32_t)seed % 3;

		trained(2, seed, "001");
		for (uint32_t i = 0; i < 3; i++) {
			cr_assert_eq(actor_call(&ranks.actors[i], zero_step_begin, &options), 0,
			             "%s", ranks.actors[i].text.chars);
			hand_over(&ranks.actors[i]);
		}
		for (uint32_t i = 0; i < 3; i++)
			if (i != last)
				actor_start(&ranks.actors[i], 0, zero_step, NULL);
		for (uint32_t i = 0; i < 100; i++)
			nodes_turn();
		for (uint32_t i = 0; i < 2; i++)
			cr_expect_eq(node_job(&net.nodes[i], "train")->step.phase,
			             ZERO_STEP_STEPPING);
		actor_start(&ranks.actors[last], 0, zero_step, NULL);
		for (uint32_t i = 0; i < 3; i++)
			cr_expect_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s",
			             ranks.actors[i].text.chars);
		for (uint32_t i = 0; i < 2; i++)
			cr_expect_eq(node_job(&net.nodes[i], "train")->committed_step, 1);
		end(true);
	}
}

Test(across, options_of_a_step_that_differ_are_named_on_all_nodes)
{
	struct zero_op options = { .options = model_options() };

	trained(2, 1, "01");
	cr_assert_eq(actor_call(&ranks.actors[0], zero_step_begin, &options), 0);
	options.options.lr = 3;
	cr_assert_eq(actor_call(&ranks.actors[1], zero_step_begin, &options), 0);
	all_hear(-EINVAL, "lr is 3 in rank 1, but 0.01");
	end(false);
}

/* A rank that dies before all nodes have ended it: nowhere is anything of it left. */
Test(across, a_step_that_a_rank_does_not_end_is_undone_everywhere)
{
	struct zero_op options = { .options = model_options() };

	trained(2, 5, "01");
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(actor_call(&ranks.actors[i], zero_step_begin, &options), 0);
		hand_over(&ranks.actors[i]);
	}
	actor_start(&ranks.actors[0], 0, zero_step, NULL);
	for (uint32_t i = 0; i < 100; i++)
		nodes_turn();
	actor_leave(&ranks.actors[1], false);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -EPIPE);
	all_hear(-EPIPE, "rank 1 (pid");
	nodes_settle();
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(node_job(&net.nodes[i], "train")->committed_step, 0);
	end(false);
}

/* What another thread of a rank calls while a commit, or the end of a write, is asked of all nodes:
 * it waits, or is told to. */
Test(across, nothing_begins_within_what_all_nodes_are_asked_for)
{
	struct zero_op options = { .options = model_options() };
	struct actor *first;

	made(2, 31, "01");
	first = &ranks.actors[0];
	cr_assert_eq(actor_unit(first, zero_param_write_begin, 0), 0);
	nodes_hold(1, 0, true);
	actor_start(&ranks.actors[1], 0, zero_param_write_end, &(struct zero_op){ .root = 0 });
	actor_start(first, 0, zero_param_write_end, &(struct zero_op){ .root = 0 });
	actor_start(&ranks.actors[1], 1, zero_commit, NULL);
	cr_expect_eq(nodes_wait(&ranks.actors[1], 1), -EBUSY);
	cr_expect_not_null(strstr(ranks.actors[1].text.chars, "param_write_end: it ends first"));
	nodes_hold(1, 0, false);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", first->text.chars);

	nodes_hold(1, 0, true);
	actor_start(first, 0, zero_commit, NULL);
	actor_start(first, 1, zero_step_begin, &options);
	actor_start(first, 2, zero_param_write_begin, &(struct zero_op){ .unit = 0 });
	cr_expect_eq(nodes_wait(first, 2), -EBUSY);
	cr_expect_not_null(strstr(first->text.chars, "a commit is under way"));
	actor_start(first, 2, zero_param_write_end, &(struct zero_op){ .root = 1 });
	cr_expect_eq(nodes_wait(first, 2), -EBUSY);
	actor_start(&ranks.actors[1], 0, zero_commit, NULL);
	for (uint32_t i = 0; i < 64; i++)
		nodes_turn();
	cr_assert_not(first->calls[1].is_done, "the commit comes first");
	nodes_hold(1, 0, false);
	cr_assert_eq(nodes_wait(first, 1), 0, "%s", first->text.chars);
	/* Its node may be behind: a call that is pending is not made anew. */
	cr_assert_eq(nodes_wait(&ranks.actors[1], 0), 0, "%s", ranks.actors[1].text.chars);
	cr_assert_eq(actor_call(&ranks.actors[1], zero_step_begin, &options), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
		hand_over(&ranks.actors[i]);
	}
	cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s", first->text.chars);
	end(true);
}

/* Rank @root's values of @unit are those of all nodes. */
static void write_unit(uint32_t unit, uint32_t root, uint64_t what)
{
	struct actor *writer = &ranks.actors[root];
	uint32_t width = zi_dtype_bytes((enum zi_dtype)writer->rank->job->config.param_dtype);
	uint64_t bytes = zi_geometry_padded(model_elements[unit]) * width;
	char *expected = calloc(1, bytes);

	cr_assert_eq(actor_unit(writer, zero_param_write_begin, unit), 0, "%s", writer->text.chars);
	fill(zero_param_staging(writer->rank)->region.base, what, model_elements[unit],
	     writer->rank->job->config.param_dtype);
	fill(expected, what, model_elements[unit], writer->rank->job->config.param_dtype);
	cr_assert_eq(nodes_all(&ranks, zero_param_write_end,
	                       &(struct zero_op){ .unit = unit, .root = root }),
	             0, "%s", ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_eq(memcmp(unit_of(&ranks.actors[i], ranks.actors[i].memory.param, unit),
		                    expected, bytes),
		             0, "unit %u of rank %u", unit, i);
	free(expected);
}

/* Of one piece and of several, by any rank, again and again; then they are committed. */
Test(across, values_that_a_rank_wrote_are_those_of_all_nodes)
{
	static const char *const places[] = { "01", "0012", "0123" };

	for (uint64_t seed = 1; seed <= 6; seed++) {
		made(4, seed, places[seed % ZI_COUNT_OF(places)]);
		for (uint32_t round = 0; round < 2; round++)
			for (uint32_t unit = 0; unit < UNITS; unit++)
				write_unit(unit, net_draw(ranks.world), 900 + unit + round * 10);
		cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0);
		end(true);
	}
}

/* The root must have begun, but which unit and root is said by all. */
Test(across, ends_of_writes_that_differ_are_named_on_all_nodes)
{
	made(2, 1, "01");
	cr_assert_eq(actor_unit(&ranks.actors[0], zero_param_write_begin, 0), 0);
	actor_start(&ranks.actors[0], 0, zero_param_write_end, NULL);
	actor_start(&ranks.actors[1], 0, zero_param_write_end, &(struct zero_op){ .unit = 2 });
	all_hear(-EINVAL, "unit 2, root 0 in node 1 (ranks 1");
	end(false);
}

/* What two nodes committed, each its part, they go on with where all is as it was. */
static void go_on(uint64_t seed, const char *places, uint32_t strategy, int error)
{
	trained(2, seed, "0101");
	nodes_leave(&ranks, true);
	nodes_settle();
	nodes_attach(
		&ranks, places,
		&(struct attach_options){ .incarnation = "run.1",
	                                  .training.strategy = strategy,
	                                  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), error, "%s", ranks.actors[0].text.chars);
	if (error)
		cr_assert_not_null(strstr(ranks.actors[0].text.chars, "by 4 ranks on 2 nodes"),
		                   "%s", ranks.actors[0].text.chars);
	end(true);
}

Test(across, a_job_of_several_nodes_goes_on_where_it_was)
{
	go_on(51, "0101", 0, 0);
	go_on(52, "0011", 0, -EOPNOTSUPP);
	go_on(53, "0101", ZI_STRATEGY_ZERO1, -EOPNOTSUPP);
}

/* A step that all nodes have ended, and whose commit takes long, is nobody's to come to; even while
 * ranks elsewhere do not come to something else. */
Test(across, a_commit_that_takes_long_is_no_ranks_fault)
{
	struct ballot *given[2];

	made(2, 63, "01");
	for (uint32_t i = 0; i < 2; i++) {
		given[i] = ballot_give(node_job(&net.nodes[i], "train"));
		given[i]->held = 1u << BALLOT_COMMITTED;
		actor_start(&ranks.actors[i], 0, zero_commit,
		            &(struct zero_op){ .timeout_ns = 200 * ZI_NS_PER_MS });
	}
	for (uint32_t i = 0; i < 2; i++)
		while (given[i]->asked != BALLOT_COMMITTED)
			nodes_turn();
	actor_start(&ranks.actors[0], 1, zero_barrier, NULL);
	(void)nodes_wait(&ranks.actors[0], 0);
	for (uint32_t i = 0; i < 64; i++)
		nodes_turn();
	cr_expect_not(ranks.actors[0].is_broken, "%s", ranks.actors[0].broken_text.chars);
	for (uint32_t i = 0; i < 2; i++)
		ballot_answer(given[i]);
	actor_start(&ranks.actors[1], 1, zero_barrier, NULL);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(nodes_wait(&ranks.actors[i], 1), 0, "%s", ranks.actors[i].text.chars);
	end(true);
	ballots_forget();
}
