/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with commit_interval k only every k-th step is written whole and committed; the others are
 * in force all the same, with the same bits. Whatever ends the group, what is there is committed; a
 * daemon that is killed falls back to the committed step, and an error of the disk as well. No
 * space is lost or taken twice on the way. Method: a job beside the plain computation, and a second
 * one that stays at the committed step.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/step/commit.h"
#include "tests/unit/zero/gate.h"
#include "tests/unit/zero/warm.h"
#include "tests/unit/zero/world.h"

static struct zi_job_config config;

static void interval_begin(uint32_t world, uint32_t interval, uint64_t resident_bytes)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	config.commit_interval = interval;
	config.resident_bytes = resident_bytes;
	begin_with(world, &config);
}

static void step(uint32_t world, uint64_t number, const struct zi_step_options *options)
{
	cr_assert_eq(model_step(actors, world, number, options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, number, options);
	cr_assert(plain_equals(&plain, &actors[world - 1]), "step %llu",
	          (unsigned long long)number);
	cr_assert(warm_bytes(node_job(&node, "train")) || !node.zero->options.is_staging_kept);
}

static struct zero_job *job(void)
{
	return node_job(&node, "train");
}

static uint64_t padded_count(void)
{
	uint64_t padded = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		padded += zi_geometry_padded(model_elements[unit]);
	return padded;
}

/* All come back and find @committed, where @plain is too; one more step proves the state. */
static void come_back(uint32_t world, uint64_t committed)
{
	struct zi_step_options options = model_options();
	char wanted[32];
	uint64_t bytes;

	model_attach(&node, actors, world, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)committed);
	(void)snprintf(wanted, sizeof(wanted), "blob %llu", (unsigned long long)committed);
	cr_assert_eq(memcmp(zero_blob(actors[0].rank, &bytes), wanted, strlen(wanted)), 0);
	cr_assert(plain_equals(&plain, &actors[0]), "parameters");
	step(world, committed + 1, &options);
}

Test(zero_interval, every_kth_step_is_committed_and_the_others_write_what_streams)
{
	const struct zi_step_stats *stats = &actors[0].calls[0].op.stats;
	struct zi_step_options options = model_options();
	uint64_t resident, streamed, free_bytes;

	interval_begin(2, 3, 3 * MIB);
	node.zero->options.is_staging_kept = false;
	resident = job()->state->region.bytes;
	streamed = padded_count() * 10 - resident;
	cr_assert_gt(resident, 0);
	cr_assert_gt(streamed, 0);
	cr_assert_eq(job()->nvme_charge.bytes, 2 * padded_count() * 12 + streamed);
	for (uint64_t number = 1; number <= 7; number++) {
		bool is_due = number % 3 == 0;

		step(2, number, &options);
		cr_assert_eq(stats->step, number);
		cr_assert_eq(stats->committed_step, (int64_t)(number - number % 3));
		cr_assert_eq(job()->committed_step, (int64_t)(number - number % 3));
		cr_assert_eq(stats->write_bytes, is_due ? padded_count() * 12 : streamed);
		/* Resident state is never read: the share falls to what streams. */
		cr_assert_eq(stats->read_bytes, number == 1 ? 0 : streamed);
	}
	free_bytes = tier_extent_free_bytes(&node.nvme);
	cr_assert_eq(all_call(actors, 2, zero_commit,
	                      &(struct zero_op){ .blob = "blob 7", .blob_bytes = 6 }),
	             0, "%s", actors[0].text.chars);
	cr_assert_eq(job()->committed_step, 7);
	cr_assert_eq(actors[0].calls[0].op.stats.committed_step, 7);
	cr_assert_eq(actors[0].calls[0].op.stats.write_bytes, padded_count() * 2 + resident);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes + streamed,
	             "one set of extents");
	end(2);
}

static void leave_all(uint32_t world, bool is_clean)
{
	for (uint32_t i = 0; i < world; i++)
		actor_leave(&actors[i], is_clean);
	node_settle(&node);
}

static void group_ends(bool is_clean, uint32_t flags)
{
	struct zi_step_options options = model_options();
	uint64_t free_bytes;

	options.flags = flags;
	interval_begin(2, 4, 3 * MIB);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	for (uint64_t number = 1; number <= 2; number++)
		step(2, number, &options);
	cr_assert_eq(job()->committed_step, 0);
	leave_all(2, is_clean);
	cr_assert_eq(job()->committed_step, 2);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes - padded_count() * 10);
	come_back(2, 2);
	end(2);
}

Test(zero_interval, last_rank_that_leaves_commits_what_is_there)
{
	group_ends(true, 0);
	group_ends(false, ZI_STEP_UPDATE_EARLY);
}

/* It is nobody's of those who are there: they cannot know of it, nor wait for it. */
Test(zero_interval, job_is_destroyed_while_it_commits_what_others_left)
{
	struct zi_step_options options = model_options();

	interval_begin(2, 4, 3 * MIB);
	step(2, 1, &options);
	gate_close(&node);
	actor_leave(&actors[0], true);
	actor_leave(&actors[1], true);
	while (job()->pipeline.kind != ZERO_PIPELINE_NONE)
		node_turn(&node);
	cr_assert_eq(job()->step.phase, ZERO_STEP_COMMITTING);
	cr_assert_eq(actor_attach(&node, &actors[0],
	                          &(struct attach_options){ .world = 1, .config = config }),
	             0, "%s", actors[0].text.chars);
	actor_start(&actors[0], 0, zero_job_destroy, NULL);
	gate_open();
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	actors[0].rank = NULL;
	node_settle(&node);
	cr_assert_null(job());
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), node.nvme.capacity_bytes);
	plain_deinit(&plain);
	node_deinit(&node);
	gate_end();
}

Test(zero_interval, step_that_is_aborted_costs_nothing_of_those_before)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	interval_begin(2, 4, 3 * MIB);
	for (uint64_t number = 1; number <= 2; number++)
		step(2, number, &options);
	model_gradients(actors, 2, 3, &options);
	node_settle(&node);
	cr_assert(plain_equals(&plain, &actors[0]), "nothing changes in place before every step");
	actor_leave(&actors[1], false);
	cr_assert(actors[0].is_broken);
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_eq(job()->committed_step, 2);
	come_back(2, 2);
	end(2);
}

Test(zero_interval, newer_incarnation_finds_what_the_former_one_left)
{
	struct zi_step_options options = model_options();
	struct actor former[2];

	interval_begin(2, 4, 0);
	for (uint64_t number = 1; number <= 2; number++)
		step(2, number, &options);
	memcpy(former, actors, sizeof(former));
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_attach(&node, &actors[i],
		                          &(struct attach_options){ .incarnation = "next",
		                                                    .config = config,
		                                                    .rank = i,
		                                                    .world = 2 }),
		             0);
	zero_rank_leave(former[0].rank, false, NULL);
	zero_rank_leave(former[1].rank, false, NULL);
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, 2);
	cr_assert(plain_equals(&plain, &actors[0]));
	step(2, 3, &options);
	end(2);
}

static void quiesced(void *arg)
{
	((struct node *)arg)->is_quiesced = true;
}

/* A daemon that stops commits; one that is killed falls back. */
static void daemon_ends(bool is_stopped)
{
	struct zi_step_options options = model_options();
	uint64_t free_bytes;

	interval_begin(1, 3, 3 * MIB);
	for (uint64_t number = 1; number <= 3; number++)
		step(1, number, &options);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	for (uint64_t number = 4; number <= 5; number++) {
		if (is_stopped)
			step(1, number, &options);
		else
			cr_assert_eq(model_step(actors, 1, number, &options), 0);
	}
	if (is_stopped) {
		zero_quiesce(node.zero, quiesced, &node);
		node_settle(&node);
		cr_assert(node.is_quiesced);
	} else {
		/* Nothing is written after this moment, as far as the catalog knows. */
		node.zero->frozen = -EIO;
	}
	leave_all(1, false);
	node_stop(&node);
	node_start(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes,
	             "what no commit names is free");
	come_back(1, is_stopped ? 5 : 3);
	end(1);
}

Test(zero_interval, daemon_that_stops_commits_what_is_there)
{
	daemon_ends(true);
}

Test(zero_interval, daemon_that_is_killed_falls_back_to_the_commit)
{
	daemon_ends(false);
}

static struct zi_text fallen;

static void fell_back(void *arg, const struct zi_text *text)
{
	*(struct zi_text *)arg = *text;
}

/* The k-th write after two steps fails: in a step, or in the commit that nobody asked for. */
Test(zero_interval, failed_writes_fall_back_to_the_commit_and_are_told)
{
	static char backend[64];
	bool is_sound = false;
	uint32_t k = 1, told_count = 0, broken_count = 0;

	for (; !is_sound; k++) {
		struct zi_step_options options = model_options();
		int r = 0;

		cr_assert_lt(k, 60);
		fallen.chars[0] = '\0';
		interval_begin(1, 3, 3 * MIB);
		for (uint64_t number = 1; number <= 3; number++)
			step(1, number, &options);
		leave_all(1, true);
		node_stop(&node);
		(void)snprintf(backend, sizeof(backend), "faulty:over=threads,write_eio_at=%u", k);
		node.backend = backend;
		node_start(&node);
		node.zero->options.fell_back = fell_back;
		node.zero->options.fell_back_arg = &fallen;
		model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
		cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
		for (uint64_t number = 4; number <= 5 && !r; number++)
			r = model_step(actors, 1, number, &options);
		broken_count += r != 0;
		cr_assert(!r || r == -EIO);
		leave_all(1, true);
		told_count += fallen.chars[0] != '\0';
		is_sound = !r && !fallen.chars[0];
		if (fallen.chars[0])
			cr_assert_not_null(strstr(fallen.chars, "from step 5 to 3"), "%s",
			                   fallen.chars);
		for (uint64_t number = 4; number <= 5 && is_sound; number++)
			plain_step(&plain, number, &options);
		node_stop(&node);
		node.backend = "threads";
		node_start(&node);
		come_back(1, is_sound ? 5 : 3);
		end(1);
	}
	cr_assert_gt(broken_count, 2);
	cr_assert_gt(told_count, 2);
}

/* A step that is skipped counts, and when it is due it commits those before it. */
Test(zero_interval, skipped_step_that_is_due_commits_those_before)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_SKIP_NONFINITE;
	interval_begin(1, 2, 3 * MIB);
	for (uint64_t number = 1; number <= 6; number++) {
		bool is_skipped = number == 2 || number == 3 || number == 6;

		poison = (struct poison){ .what = grad_what(number, 0, 0, 1),
			                  .value = INFINITY,
			                  .count = is_skipped };
		cr_assert_eq(model_step(actors, 1, number, &options), 0, "%s",
		             actors[0].text.chars);
		cr_assert_eq(actors[0].calls[0].op.stats.is_skipped, is_skipped);
		poison.count = 0;
		if (!is_skipped)
			plain_step(&plain, number, &options);
		cr_assert_eq(job()->committed_step, (int64_t)(number - number % 2));
		cr_assert(plain_equals(&plain, &actors[0]));
	}
	leave_all(1, false);
	node_stop(&node);
	node_start(&node);
	come_back(1, 6);
	end(1);
}

Test(zero_interval, parameters_are_written_only_where_all_is_committed)
{
	struct zi_step_options options = model_options();

	interval_begin(1, 3, 3 * MIB);
	step(1, 1, &options);
	refused(&actors[0], -EBUSY, "steps 1 to 1 are not committed",
	        actor_unit(&actors[0], zero_param_write_begin, 0));
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), 0);
	model_write_unit(actors, 1, 0, 500);
	/* Written, and part of a step that is not committed: committed with it. */
	cr_assert_eq(model_step(actors, 1, 2, &options), 0, "%s", actors[0].text.chars);
	cr_assert_eq(job()->committed_step, 1);
	leave_all(1, true);
	cr_assert_eq(job()->committed_step, 2);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	end(1);
}

Test(zero_interval, third_set_is_charged_and_refused_with_its_figure)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_bytes = 14 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	config.commit_interval = 2;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), -ENOSPC);
	cr_assert_not_null(strstr(actors[0].text.chars, "and 5.3 MiB (commit_interval 2)"), "%s",
	                   actors[0].text.chars);
	actor_leave(&actors[0], true);
	node_settle(&node);
	config.commit_interval = 1;
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	actor_leave(&actors[0], true);
	/* A job that is stored keeps what it has when more is refused. */
	config.commit_interval = 2;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), -ENOSPC);
	cr_assert_eq(job()->nvme_charge.bytes, 2 * padded_count() * 12);
	end(1);
}

Test(zero_interval, ranks_must_agree)
{
	struct zi_job_config other;

	interval_begin(2, 3, 0);
	leave_all(2, true);
	other = config;
	other.commit_interval = 4;
	cr_assert_eq(actor_attach(&node, &actors[0],
	                          &(struct attach_options){ .config = config, .world = 2 }),
	             0);
	refused(&actors[1], -EINVAL, "commit_interval is 4, but 3 in the other ranks",
	        actor_attach(&node, &actors[1],
	                     &(struct attach_options){ .config = other, .world = 2, .rank = 1 }));
	end(2);
}
