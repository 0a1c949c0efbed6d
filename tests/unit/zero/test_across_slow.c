/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a step over nodes whose time is over while all nodes answer says who is slow: another node
 * that has yet to write its part, by name, or this node's own path, with what it has to do. Method:
 * as in test_across_votes.c; of one node what the disk has done is not looked at.
 */
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"

TestSuite(across_slow, .timeout = 300);

#define SLOW_NS (300 * ZI_NS_PER_MS)

static struct zero_job *job_at(uint32_t place)
{
	return node_job(&net.nodes[place], "train");
}

/* Step 1 is called, and the disk of node @place takes nothing. */
static void begin_slow(uint32_t place, uint64_t timeout_ns)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_train(&what, 3);
	cr_assert_eq(train_gradients(1), 0, "%s", ranks.actors[0].text.chars);
	net.nodes[place].is_disk_held = true;
	for (uint32_t i = 0; i < 2; i++)
		ranks.actors[i].rank->timeout_ns = i ? 60 * ZI_NS_PER_S : timeout_ns;
	train_step_start(1);
}

static void end_slow(uint32_t place)
{
	net.nodes[place].is_disk_held = false;
	(void)nvme_engine_reap(net.nodes[place].engine);
	(void)nodes_wait(&ranks.actors[1], 0);
	train_leave(false);
	nodes_settle();
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	train_plain(train_committed());
	train_check(train_committed());
	end_train();
}

/* Node 0 has written its part, and asks whether the others have. */
static bool has_prepared(void)
{
	const struct rounds *rounds = &job_at(0)->across->rounds;
	uint64_t number;

	return rounds_silent(rounds, &number) &&
	       rounds_kind_of(rounds, 0, number) == ROUND_PREPARED;
}

Test(across_slow, the_own_disk_is_named)
{
	const char *text = ranks.actors[0].text.chars;

	begin_slow(0, SLOW_NS);
	/* Its own 0.3 s, and the second in which the other node is asked. */
	cr_assert_eq(nodes_wait(&ranks.actors[0], 0), -ETIMEDOUT);
	cr_expect_not_null(strstr(text, "step timed out after 1."), "%s", text);
	cr_expect_not_null(strstr(text, "s: step 1 is still being written here: "), "%s", text);
	cr_expect_not_null(strstr(text, "updates"), "%s", text);
	cr_expect_not_null(strstr(text, node_store_names[0]), "%s", text);
	cr_expect_not_null(strstr(text, " requests"), "%s", text);
	end_slow(0);
}

/* The next step waits for the former one's commit. */
Test(across_slow, a_node_that_has_yet_to_write_is_named)
{
	struct actor *actor = &ranks.actors[0];

	begin_slow(1, 60 * ZI_NS_PER_S);
	while (!has_prepared())
		nodes_turn();
	actor_start(actor, 1, zero_step_begin,
	            &(struct zero_op){ .options = model_options(), .timeout_ns = SLOW_NS });
	cr_assert_eq(nodes_wait(actor, 1), -ETIMEDOUT);
	cr_expect_not_null(strstr(actor->text.chars, ": node 1 (ranks 1"), "%s", actor->text.chars);
	cr_expect_not_null(strstr(actor->text.chars,
	                          ") has yet to write what it has of step 1, as this node has"),
	                   "%s", actor->text.chars);
	end_slow(1);
}

/* A ticket's end is all nodes': who is slow says what it does. */
Test(across_slow, what_another_node_does_is_told)
{
	const char *text = ranks.actors[0].text.chars;

	begin_slow(1, 2 * ZI_NS_PER_S);
	while (!has_prepared())
		nodes_turn();
	cr_assert_eq(nodes_wait(&ranks.actors[0], 0), -ETIMEDOUT);
	cr_expect_not_null(strstr(text, "its ranks have come, and step 1 is still being written "
	                                "here: "),
	                   "%s", text);
	cr_expect_not_null(strstr(text, "(on node 1, "), "%s", text);
	end_slow(1);
}
