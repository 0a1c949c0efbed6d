/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a commit of a job with votes asks the other nodes before the catalog is told and after it,
 * keeps the former commit until all have said that they have the new one, and then, not before, the
 * step ends and the next may begin; twice the state suffices all the same, and the bits are those
 * of a job without. What the others refuse is undone, or left open. Method: a double of the other
 * nodes that answers when and what the test says, beside the plain computation.
 */
#include "daemon/catalog/catalog_private.h"
#include "daemon/tier/stripe.h"
#include "tests/unit/zero/voted.h"

Test(zero_votes, step_asks_before_the_catalog_and_after_it_and_ends_then)
{
	struct zi_step_options options = model_options();
	uint64_t number;

	votes_begin_nvme(2);
	step(2, 1);
	number = job()->committed.number;
	ballot->held = 1u << BALLOT_PREPARED | 1u << BALLOT_COMMITTED;
	step_call(2, 2, options);
	plain_step(&plain, 2, &options);
	ballot_await(&node, ballot, BALLOT_PREPARED);
	cr_assert_eq(job()->committed_step, 1);
	cr_assert_eq(job()->record.number, number + 1);
	cr_assert_eq(job()->record.line, job()->group.line);
	cr_assert_not(job()->former.is_kept);
	ballot_answer(ballot);
	ballot_await(&node, ballot, BALLOT_COMMITTED);
	cr_assert_eq(job()->committed_step, 2);
	cr_assert_eq(job()->committed.number, number + 1);
	cr_assert(job()->former.is_kept);
	cr_assert_eq(job()->former.step, 1);
	cr_assert_eq(job()->former.marks.number, number);
	cr_assert_eq(held_bytes(), 2 * state_bytes());
	cr_assert_not(actors[0].calls[0].is_done, "not before all have it");
	actor_start(&actors[0], 1, zero_step_begin, &(struct zero_op){ .options = options });
	for (uint32_t i = 0; i < 8; i++)
		node_turn(&node);
	cr_assert_not(actors[0].calls[1].is_done, "nothing is reserved before");
	ballot_answer(ballot);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_wait(&actors[i], 0), 0, "%s", actors[i].text.chars);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_not(job()->former.is_kept);
	actors_leave(actors, 2, true);
	node_settle(&node);
	cr_assert_eq(held_bytes(), state_bytes());
	come_back(2, 2);
	end(2);
}

/* Nothing is asked, and one set is all there is. */
Test(zero_votes, job_without_them_keeps_nothing)
{
	begin(1, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	config = plain.config;
	step(1, 1);
	cr_assert_not(former_is_open(job()));
	cr_assert_eq(held_bytes(), state_bytes());
	end(1);
}

Test(zero_votes, twice_the_state_suffices_for_twenty_steps)
{
	uint64_t bytes;

	votes_begin_nvme(1);
	bytes = node.store_bytes - node.nvme.capacity_bytes + 2 * state_bytes();
	end(1);
	ballots_forget();
	node_init(&node);
	node.store_bytes = bytes;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(node.nvme.capacity_bytes, 2 * state_bytes());
	ballot = ballot_give(job());
	for (uint64_t number = 1; number <= 20; number++)
		step(1, number);
	cr_assert_eq(ballot->counts[BALLOT_COMMITTED], 20);
	ballot->held = 1u << BALLOT_COMMITTED;
	step_call(1, 21, model_options());
	ballot_await(&node, ballot, BALLOT_COMMITTED);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), 0, "both are there");
	ballot_answer(ballot);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	end(1);
}

/* Steps ahead of their commit, a resident share, parameters in a pool: one after the other. */
static void kinds(struct zi_job_config drawn)
{
	struct zi_step_options options = model_options();

	votes_begin(2, &drawn);
	for (uint64_t number = 1; number <= 7; number++)
		step(2, number);
	cr_assert_eq(ballot->counts[BALLOT_PREPARED], ballot->counts[BALLOT_COMMITTED]);
	/* Skipped: a commit that leaves all extents as they were. */
	options.flags = ZI_STEP_SKIP_NONFINITE;
	poison = (struct poison){ .what = grad_what(8, 0, 0, 1), .value = INFINITY, .count = 1 };
	cr_assert_eq(model_step(actors, 2, 8, &options), 0, "%s", actors[0].text.chars);
	poison.count = 0;
	leave_all(2);
	cr_assert_eq(held_bytes(), state_bytes());
	node_check_space(&node);
	come_back(2, 8);
	step(2, 9);
	leave_all(2);
	node_stop(&node);
	ballots_forget();
	node_start(&node);
	come_back(2, 9);
	step(2, 10);
	end(2);
}

Test(zero_votes, bits_are_those_of_a_job_without_in_every_kind)
{
	struct zi_job_config drawn = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	kinds(drawn);
	drawn.resident_bytes = 3 * MIB;
	drawn.commit_interval = 3;
	kinds(drawn);
	drawn.offload_param = ZI_OFFLOAD_NVME;
	drawn.staging_bytes = 12 * MIB;
	kinds(drawn);
	drawn.commit_interval = 1;
	drawn.durability = ZI_DURABILITY_POWER;
	kinds(drawn);
}

/* State in memory alone is one copy: asked about, and nothing of it can be kept. */
Test(zero_votes, state_in_memory_alone_is_asked_about_and_not_kept)
{
	struct zi_job_config drawn = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	votes_begin(2, &drawn);
	for (uint64_t number = 1; number <= 3; number++)
		step(2, number);
	cr_assert_eq(ballot->counts[BALLOT_PREPARED], 3);
	cr_assert_eq(ballot->counts[BALLOT_COMMITTED], 3);
	cr_assert_not(former_is_open(job()));
	end(2);
}

/* A node died before all were prepared: none of them has it. */
Test(zero_votes, commit_that_is_refused_before_the_catalog_never_was)
{
	votes_begin_nvme(2);
	step(2, 1);
	ballot->errors[BALLOT_PREPARED] = -EPIPE;
	step_call(2, 2, model_options());
	cr_assert_eq(actor_wait(&actors[0], 0), -EPIPE);
	cr_assert_not_null(strstr(actors[0].text.chars, "another node died"));
	cr_assert(actors[0].is_broken);
	leave_all(2);
	cr_assert_eq(ballot->counts[BALLOT_COMMITTED], 1);
	cr_assert_eq(held_bytes(), state_bytes());
	ballot->errors[BALLOT_PREPARED] = 0;
	come_back(2, 1);
	step(2, 2);
	leave_all(2);
	node_stop(&node);
	ballots_forget();
	node_start(&node);
	come_back(2, 2);
	end(2);
}

/* A node died and nobody knows whether it has the commit: both are kept until ranks come. */
static void left_open(bool is_restarted, bool is_back)
{
	struct zi_step_options options = model_options();

	votes_begin_nvme(2);
	for (uint64_t number = 1; number <= 2; number++)
		step(2, number);
	ballot->errors[BALLOT_COMMITTED] = -EPIPE;
	step_call(2, 3, options);
	cr_assert_eq(actor_wait(&actors[0], 0), -EPIPE);
	cr_assert(actors[1].is_broken);
	leave_all(2);
	cr_assert_eq(job()->committed_step, 3);
	cr_assert_eq(held_bytes(), 2 * state_bytes());
	node_check_space(&node);
	if (is_restarted) {
		node_stop(&node);
		ballots_forget();
		node_start(&node);
		cr_assert_eq(job()->committed_step, 3);
		cr_assert_eq(job()->former.step, 2);
		cr_assert_eq(held_bytes(), 2 * state_bytes());
		ballot = ballot_give(job());
	}
	cr_assert(job()->former.is_kept);
	node_check_space(&node);
	ballot->errors[BALLOT_COMMITTED] = 0;
	ballot->is_back = is_back;
	if (!is_back)
		plain_step(&plain, 3, &options);
	come_back(2, is_back ? 2 : 3);
	cr_assert_eq(ballot->counts[BALLOT_RESUME], 1);
	cr_assert_not(former_is_open(job()));
	cr_assert_eq(held_bytes(), state_bytes());
	for (uint64_t number = is_back ? 3 : 4; number <= 5; number++)
		step(2, number);
	leave_all(2);
	node_check_space(&node);
	node_stop(&node);
	ballots_forget();
	node_start(&node);
	come_back(2, 5);
	end(2);
}

Test(zero_votes, commit_that_is_left_open_is_gone_on_with_or_gone_back_from)
{
	left_open(false, false);
	left_open(false, true);
	left_open(true, false);
	left_open(true, true);
}

/* Ranks hear why, both commits stay, and the next ones may be told better. */
Test(zero_votes, resume_that_is_refused_changes_nothing)
{
	votes_begin_nvme(1);
	step(1, 1);
	ballot->errors[BALLOT_COMMITTED] = -EPIPE;
	step_call(1, 2, model_options());
	cr_assert_eq(actor_wait(&actors[0], 0), -EPIPE);
	leave_all(1);
	ballot->errors[BALLOT_COMMITTED] = 0;
	ballot->errors[BALLOT_RESUME] = -ENODATA;
	/* The refusal comes at the deadline, which a busy machine is not to move. */
	model_attach(&node, actors, 1,
	             &(struct attach_options){ .config = config, .timeout_ns = 20 * ZI_NS_PER_S });
	cr_assert_eq(model_materialize(actors, 1), -ENODATA);
	cr_assert_not_null(strstr(actors[0].text.chars, "another node died"));
	leave_all(1);
	cr_assert(job()->former.is_kept);
	node_check_space(&node);
	ballot->errors[BALLOT_RESUME] = 0;
	ballot->is_back = true;
	come_back(1, 1);
	step(1, 2);
	end(1);
}

/* Who is asked before a commit is asked after it, whatever becomes of the job's votes meanwhile. */
Test(zero_votes, commit_that_has_asked_asks_again)
{
	votes_begin_nvme(1);
	step(1, 1);
	ballot->held = 1u << BALLOT_PREPARED;
	step_call(1, 2, model_options());
	ballot_await(&node, ballot, BALLOT_PREPARED);
	job()->votes = NULL;
	ballot_answer(ballot);
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	cr_assert_eq(ballot->counts[BALLOT_COMMITTED], 2);
	cr_assert(job()->former.is_stored);
	end(1);
}

/* The commit of what a group left behind, and zero_commit(), ask as well. */
Test(zero_votes, commits_without_a_step_ask_as_well)
{
	struct zi_job_config drawn = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	drawn.commit_interval = 4;
	votes_begin(2, &drawn);
	step(2, 1);
	step(2, 2);
	cr_assert_eq(ballot->counts[BALLOT_PREPARED], 0);
	leave_all(2);
	cr_assert_eq(ballot->counts[BALLOT_COMMITTED], 1);
	come_back(2, 2);
	cr_assert_eq(all_call(actors, 2, zero_commit,
	                      &(struct zero_op){ .blob = "blob 2", .blob_bytes = 6 }),
	             0);
	cr_assert_eq(ballot->counts[BALLOT_COMMITTED], 2);
	step(2, 3);
	/* What is ahead is given up, as after any commit that failed. */
	ballot->errors[BALLOT_PREPARED] = -EPIPE;
	leave_all(2);
	cr_assert_eq(job()->committed_step, 2);
	cr_assert_eq(job()->current_step, 2);
	node_check_space(&node);
	end(2);
}

/* A former commit of another strategy leaves the catalog before its space is anybody's. */
Test(zero_votes, former_commit_that_was_divided_otherwise_is_forgotten_first)
{
	votes_begin_nvme(2);
	step(2, 1);
	leave_all(2);
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .config = config,
	                                       .training.strategy = ZI_STRATEGY_ZERO1 });
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	cr_assert_not(former_is_open(job()), "as ranks have come");
	step(2, 2);
	cr_assert_not(former_is_open(job()));
	step(2, 3);
	cr_assert(job()->former.is_stored);
	cr_assert_not(job()->former.is_kept);
	leave_untidily(2);
	restart();
	cr_assert_eq(job()->former.step, 2);
	come_back(2, 3);
	end(2);
}

/* What cannot be forgotten stays, and the group does not go on. */
Test(zero_votes, former_commit_that_cannot_be_forgotten_is_kept)
{
	votes_begin_nvme(1);
	step(1, 1);
	leave_all(1);
	model_attach(&node, actors, 1,
	             &(struct attach_options){ .config = config,
	                                       .training.strategy = ZI_STRATEGY_ZERO1 });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	ballot->held = 1u << BALLOT_COMMITTED;
	step_call(1, 2, model_options());
	ballot_await(&node, ballot, BALLOT_COMMITTED);
	cr_assert_eq(sqlite3_exec(node.catalog->db,
	                          "CREATE TEMP TRIGGER full BEFORE DELETE ON main.stand BEGIN "
	                          "SELECT RAISE(ABORT, 'full'); END",
	                          NULL, NULL, NULL),
	             SQLITE_OK);
	ballot_answer(ballot);
	cr_assert_lt(actor_wait(&actors[0], 0), 0);
	cr_assert(actors[0].is_broken);
	leave_all(1);
	cr_assert(job()->former.is_kept);
	cr_assert_eq(held_bytes(), 2 * state_bytes());
	cr_assert_eq(sqlite3_exec(node.catalog->db, "DROP TRIGGER full", NULL, NULL, NULL),
	             SQLITE_OK);
	plain_train(&plain, 2, 2);
	come_back(1, 2);
	end(1);
}

/* Its ranks die, and others come, before it is over: it has the name of those who made it. */
Test(zero_votes, commit_keeps_its_name_though_another_group_has_come)
{
	struct zi_step_options options = model_options();
	uint64_t line;

	votes_begin_nvme(1);
	step(1, 1);
	ballot->held = 1u << BALLOT_PREPARED;
	step_call(1, 2, options);
	ballot_await(&node, ballot, BALLOT_PREPARED);
	line = job()->record.line;
	actor_leave(&actors[0], false);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	model_layout(&actors[0]);
	actor_start(&actors[0], 0, zero_materialize, NULL);
	cr_assert_neq(job()->group.line, line);
	ballot_answer(ballot);
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	cr_assert_eq(job()->committed.line, line);
	cr_assert_eq(job()->committed_step, 2);
	zero_materialized(actors[0].rank, &actors[0].memory);
	plain_step(&plain, 2, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	ballot->held = 0;
	step(1, 3);
	end(1);
}
