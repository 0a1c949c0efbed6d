/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with snapshot_interval the daemon keeps the steps it should, as the steps they are, and no
 * more of them than it should; what cannot be kept is told and stops nobody. Method: a job trains
 * beside the plain computation; another one begins with what was kept.
 */
#include "daemon/zero/param/fetch.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[2], others[2];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;

static void begin(uint32_t offload, uint32_t interval, uint32_t keep)
{
	config = model_config(ZI_DTYPE_BF16, offload);
	config.snapshot_interval = interval;
	config.snapshot_keep = keep;
	node_init(&node);
	node.store_bytes = 96 * MIB;
}

static void go(void)
{
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void end(void)
{
	if (actors[0].rank)
		actor_leave(&actors[0], true);
	if (others[0].rank)
		actor_leave(&others[0], true);
	plain_deinit(&plain);
	node_deinit(&node);
}

static void rest(void)
{
	node_settle(&node);
	while (node.zero->snapshot_busy_count)
		node_turn(&node);
}

static void train(uint64_t first, uint64_t last)
{
	struct zi_step_options options = model_options();

	for (uint64_t step = first; step <= last; step++) {
		cr_assert_eq(model_step(actors, 1, step, &options), 0, "%s", actors[0].text.chars);
		rest();
	}
}

struct listing {
	char words[512];
};

static void list_one(void *arg, const struct zero_snapshot_report *report)
{
	struct listing *listing = arg;
	size_t used = strlen(listing->words);

	cr_assert(report->is_automatic || strncmp(report->name, "auto-", 5) != 0);
	(void)snprintf(listing->words + used, sizeof(listing->words) - used, "%s:%lld ",
	               report->name, (long long)report->step);
}

/* Names and steps, oldest first. */
static void expect(const char *wanted)
{
	struct listing listing = { "" };

	zero_snapshot_each(node.zero, "train", list_one, &listing);
	cr_assert_str_eq(listing.words, wanted);
	node_check_space(&node);
}

static struct listing at_once;
static uint32_t busy_count;

/* In the moment in which who asked is told. */
static void list_at_once(struct zero_snapshot_op *op)
{
	at_once.words[0] = '\0';
	zero_snapshot_each(node.zero, "train", list_one, &at_once);
	busy_count = node.zero->snapshot_busy_count;
	kept_done(op);
}

static void load(const char *name, uint32_t offload)
{
	struct zi_job_config mine = config;
	struct zi_text text;

	mine.offload_optimizer = offload;
	mine.snapshot_interval = mine.snapshot_keep = 0;
	model_attach(&node, others, 1, &(struct attach_options){ .job = "other", .config = mine });
	cr_assert_eq(zero_load(others[0].rank, "train", name, &text), 0, "%s", text.chars);
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
}

Test(zero_snapshot_auto, every_kth_step_is_kept_and_of_them_the_newest)
{
	begin(ZI_OFFLOAD_NVME, 2, 2);
	go();
	expect("");
	train(1, 1);
	expect("");
	train(2, 3);
	expect("auto-000002:2 ");
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "mine"), 0);
	train(4, 9);
	expect("mine:3 auto-000006:6 auto-000008:8 ");
	plain_train(&plain, 1, 6);
	load("auto-000006", ZI_OFFLOAD_NVME);
	cr_assert(plain_equals(&plain, &others[0]));
	end();
}

Test(zero_snapshot_auto, without_a_number_all_stay)
{
	begin(ZI_OFFLOAD_NVME, 1, 0);
	go();
	train(1, 4);
	expect("auto-000001:1 auto-000002:2 auto-000003:3 auto-000004:4 ");
	end();
}

/* Its state is written once, and the next update waits for that. */
Test(zero_snapshot_auto, state_in_memory_alone_is_kept_too)
{
	struct zi_step_options options = model_options();

	begin(ZI_OFFLOAD_CPU, 3, 1);
	go();
	for (uint64_t step = 1; step <= 4; step++)
		cr_assert_eq(model_step(actors, 1, step, &options), 0, "%s", actors[0].text.chars);
	rest();
	expect("auto-000003:3 ");
	plain_train(&plain, 1, 3);
	load("auto-000003", ZI_OFFLOAD_CPU);
	cr_assert(plain_equals(&plain, &others[0]));
	plain_train(&plain, 4, 4);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

/* Steps 3 and 6 are commits; 8 is what was there when the group ended. */
Test(zero_snapshot_auto, with_commit_interval_it_is_the_first_commit_at_or_after)
{
	begin(ZI_OFFLOAD_NVME, 2, 0);
	config.commit_interval = 3;
	go();
	train(1, 8);
	expect("auto-000003:3 auto-000006:6 ");
	actor_leave(&actors[0], true);
	rest();
	expect("auto-000003:3 auto-000006:6 auto-000008:8 ");
	plain_train(&plain, 1, 8);
	load("auto-000008", ZI_OFFLOAD_NVME);
	cr_assert(plain_equals(&plain, &others[0]));
	end();
}

/* The present one, and the two sets that a job takes; a third one is too much. */
Test(zero_snapshot_auto, one_that_finds_no_room_is_told_and_training_goes_on)
{
	const struct zero_job *job;

	begin(ZI_OFFLOAD_NVME, 1, 1);
	node.uid_nvme_bytes = 15 * MIB;
	go();
	job = actors[0].rank->job;
	train(1, 2);
	plain_train(&plain, 1, 2);
	cr_assert(plain_equals(&plain, &actors[0]));
	expect("");
	cr_assert_eq(job->unkept_count, 2);
	cr_assert_not_null(strstr(job->unkept_text.chars, "a snapshot of job 'train' keeps"), "%s",
	                   job->unkept_text.chars);
	zero_account_of(node.zero, 0)->account.limit_bytes[TIER_NVME] = UINT64_MAX;
	train(3, 3);
	expect("auto-000003:3 ");
	cr_assert_eq(job->unkept_count, 0);
	end();
}

/* It comes by step 2 a second time, with another past. */
Test(zero_snapshot_auto, of_a_job_that_was_put_back_stands_beside_the_former_one)
{
	begin(ZI_OFFLOAD_NVME, 2, 2);
	go();
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "first"), 0);
	train(1, 2);
	expect("first:0 auto-000002:2 ");
	actor_leave(&actors[0], true);
	rest();
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", "first"), 0, "%s",
	             kept.op.text.chars);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	train(1, 2);
	expect("first:0 auto-000002:2 auto-000002.2:2 ");
	train(3, 4);
	expect("first:0 auto-000002.2:2 auto-000004:4 ");
	end();
}

/* What was kept is there after a restart, and still counted. */
Test(zero_snapshot_auto, a_restart_knows_which_are_automatic)
{
	begin(ZI_OFFLOAD_NVME, 1, 2);
	go();
	train(1, 2);
	actor_leave(&actors[0], false);
	rest();
	node_stop(&node);
	node_start(&node);
	expect("auto-000001:1 auto-000002:2 ");
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	train(3, 3);
	expect("auto-000002:2 auto-000003:3 ");
	end();
}

Test(zero_snapshot_auto, without_a_store_it_is_refused_at_attach)
{
	int r;

	begin(ZI_OFFLOAD_CPU, 10, 0);
	node.is_dumb = true;
	node_start(&node);
	plain_init(&plain, &config, 1);
	r = actor_attach(&node, &actors[0],
	                 &(struct attach_options){ .world = 1, .config = config });
	cr_assert_eq(r, -EINVAL, "%d", r);
	cr_assert_not_null(strstr(actors[0].text.chars, "snapshot_interval is 10"), "%s",
	                   actors[0].text.chars);
	end();
}

/* The catalog has yet to forget those that gave way. */
Test(zero_snapshot_auto, who_is_told_of_a_new_one_finds_no_more_than_are_kept)
{
	begin(ZI_OFFLOAD_NVME, 0, 0);
	go();
	for (uint64_t step = 1; step <= 3; step++) {
		train(step, step);
		kept.op.is_automatic = true;
		kept.op.keep_count = 1;
		kept_start(&node, &kept, zero_snapshot_create, "train", "");
		kept.op.done = list_at_once;
		cr_assert_eq(kept_wait(&node, &kept), 0, "%s", kept.op.text.chars);
		cr_assert_eq(busy_count, step > 1, "it forgets one");
		cr_assert_eq(strchr(at_once.words, ' ')[1], '\0', "%s", at_once.words);
		rest();
		expect(at_once.words);
	}
	end();
}
