/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a step wrote last needs no read in the next one, and what it reads is said truly;
 * nothing of that survives what makes it void: a step that fails, in its writes or in its commit,
 * or is aborted, values written by a rank; and what is kept is believed no more than the disk.
 * Method: the fixture's model of five subgroups and staging of three slots, beside the plain
 * computation.
 */
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/warm.h"
#include "tests/unit/zero/warm.h"
#include "tests/unit/zero/world.h"

#define STATE_BYTES ((4096 + 532480 + 20480) * 10ull)

static struct zero_job *job(void)
{
	return node_job(&node, "train");
}

static const struct zi_step_stats *stats(void)
{
	return &actors[0].calls[0].op.stats;
}

static void warm_begin(uint64_t staging_bytes, const char *backend)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.staging_bytes = staging_bytes;
	node_init(&node);
	node.backend = backend;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void step(uint64_t number, uint32_t flags)
{
	struct zi_step_options options = model_options();

	options.flags = flags;
	cr_assert_eq(model_step(actors, 1, number, &options), 0, "%s", actors[0].text.chars);
	if (!stats()->is_skipped)
		plain_step(&plain, number, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "step %llu", (unsigned long long)number);
}

Test(zero_warm, steps_read_what_is_not_warm_and_say_so)
{
	uint64_t reads_before, bytes = 0;

	warm_begin(8 * MIB, "threads");
	for (uint64_t number = 1; number <= 6; number++) {
		reads_before = job()->read_bytes;
		step(number, 0);
		cr_assert_eq(stats()->read_bytes, number == 1 ? 0 : STATE_BYTES - bytes);
		cr_assert_eq(job()->read_bytes - reads_before, stats()->read_bytes);
		cr_assert_eq(stats()->write_bytes, (uint64_t)STATE_BYTES / 10 * 12);
		bytes = warm_bytes(job());
		cr_assert_eq(job()->staging->free_count, 0, "every slot is warm");
	}
	end(1);
}

/* An early step whose units become ready while the disk has nothing of what it writes. */
static void step_ahead_of_disk(uint64_t number)
{
	static const uint32_t order[] = { 2, 1, 0 };
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }), 0,
		"%s", actors[0].text.chars);
	node_settle(&node);
	node.is_disk_held = true;
	for (uint32_t i = 0; i < ZI_COUNT_OF(order); i++) {
		cr_assert_eq(actor_unit(&actors[0], zero_grad_acquire, order[i]), 0, "%s",
		             actors[0].text.chars);
		model_fill_grad(&actors[0], number, 0, order[i]);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, order[i]), 0, "%s",
		             actors[0].text.chars);
	}
	node.is_disk_held = false;
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0, "%s", actors[0].text.chars);
	plain_step(&plain, number, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "step %llu", (unsigned long long)number);
}

/* Staging holds the head and two of h.0's three subgroups. The third one is computed last. */
Test(zero_warm, rest_of_a_unit_that_was_begun_early_is_not_read_again)
{
	const uint64_t rest_bytes = (532480 - 2 * 262144) * 10ull;

	warm_begin(8 * MIB, "threads");
	cr_assert_eq(job()->staging->slot_count, 3);
	step_ahead_of_disk(1);
	cr_assert_not_null(job()->subgroups[3].warm);
	for (uint32_t i = 0; i < job()->subgroup_count; i++)
		if (i != 3)
			warm_drop(&job()->subgroups[i]);
	step_ahead_of_disk(2);
	cr_assert_eq(stats()->read_bytes, STATE_BYTES - rest_bytes);
	end(1);
}

Test(zero_warm, nothing_is_read_where_all_of_it_is_warm)
{
	warm_begin(64 * MIB, "threads");
	for (uint64_t number = 1; number <= 3; number++) {
		step(number, number == 2 ? ZI_STEP_UPDATE_EARLY : 0);
		cr_assert_eq(stats()->read_bytes, 0);
		cr_assert_eq(warm_bytes(job()), STATE_BYTES);
	}
	end(1);
}

Test(zero_warm, all_is_read_where_staging_is_not_to_be_kept)
{
	warm_begin(64 * MIB, "threads");
	node.zero->options.is_staging_kept = false;
	for (uint64_t number = 1; number <= 3; number++) {
		step(number, 0);
		cr_assert_eq(stats()->read_bytes, number == 1 ? 0 : STATE_BYTES);
		cr_assert(warm_is_none(job()));
	}
	end(1);
}

/* What was read for a step that is skipped is not read again. */
Test(zero_warm, skipped_step_keeps_what_it_read)
{
	warm_begin(64 * MIB, "threads");
	step(1, ZI_STEP_SKIP_NONFINITE);
	warm_drop_all(job());
	poison = (struct poison){ grad_what(2, 0, 0, 1), 7, INFINITY, 1 };
	step(2, ZI_STEP_SKIP_NONFINITE);
	cr_assert_eq(stats()->is_skipped, 1);
	cr_assert_eq(warm_bytes(job()), STATE_BYTES);
	poison.count = 0;
	step(3, ZI_STEP_SKIP_NONFINITE);
	cr_assert_eq(stats()->read_bytes, 0);
	end(1);
}

static bool are_warm(const uint32_t *subgroups, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!job()->subgroups[subgroups[i]].warm)
			return false;
	return true;
}

/* The last unit comes first there, and of a unit what is warm. */
Test(zero_warm, early_update_reads_ahead_in_its_own_order)
{
	static const uint32_t first[] = { 4, 2, 3 }, last[] = { 2, 3, 4 };
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	/* The engine's threads may end two writes in another order than they were begun in. */
	for (uint32_t attempt = 0;; attempt++) {
		warm_begin(8 * MIB, "threads");
		step(1, 0);
		if (are_warm(last, 3))
			break;
		cr_assert_lt(attempt, 20, "written last");
		end(1);
	}
	/* The first of them: by its age alone it would give way. */
	zi_list_remove(&job()->subgroups[2].warm_link);
	zi_list_push_front(&job()->warm, &job()->subgroups[2].warm_link);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(job()->queue.places[i], first[i]);
	node_settle(&node);
	cr_assert_eq(job()->queue.begun_count, 3);
	cr_assert_eq(job()->pipeline.read_bytes, 0, "all three were warm");
	cr_assert(zi_list_is_empty(&job()->warm));
	end(1);
}

Test(zero_warm, values_written_by_a_rank_void_what_is_warm_of_their_unit)
{
	uint64_t padded = zi_geometry_padded(model_elements[1]);

	warm_begin(64 * MIB, "threads");
	step(1, 0);
	model_write_unit(actors, 1, 1, 500);
	cr_assert_eq(warm_bytes(job()), STATE_BYTES - 532480 * 10);
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), 0);
	fill(plain.param[1], 501, model_elements[1], ZI_DTYPE_BF16);
	memset(plain.remainder[1], 0, padded * 4);
	memset(plain.exp_avg[1], 0, padded * 4);
	memset(plain.exp_avg_sq[1], 0, padded * 4);
	step(2, 0);
	cr_assert_eq(stats()->read_bytes, 0, "zero, and warm");
	step(3, 0);
	end(1);
}

/* ---- what makes it void ---- */

/* One write of the second step fails, each in turn. Return: false when it came after that step. */
static bool write_fails(uint32_t k, uint32_t *failed_count)
{
	static char backend[64];
	struct zi_step_options options = model_options();
	int r;

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,write_eio_at=%u", k);
	warm_begin(8 * MIB, backend);
	r = model_step(actors, 1, 1, &options);
	if (!r) {
		cr_assert_gt(warm_bytes(job()), 0);
		r = model_step(actors, 1, 2, &options);
		*failed_count += r != 0;
		cr_assert_eq(!r, warm_bytes(job()) > 0);
	}
	cr_assert(!r || r == -EIO, "%s", actors[0].text.chars);
	node_settle(&node);
	cr_assert(!r || warm_is_none(job()), "write %u", k);
	end(1);
	return r;
}

Test(zero_warm, nothing_is_warm_after_a_step_whose_write_failed)
{
	uint32_t failed_count = 0, k = 10; /* The values take fewer. */

	while (write_fails(k, &failed_count))
		cr_assert_lt(k++, 100);
	cr_assert_geq(failed_count, 10);
}

static void forgotten(struct catalog_request *request)
{
	zi_loop_stop(request->loop);
}

/* The catalog no longer knows the job, behind zero's back. */
static void forget(void)
{
	struct catalog_job row = { .name = "train" };
	struct catalog_request request = {
		.kind = CATALOG_JOB_DELETE, .job = &row, .done = forgotten, .loop = node.loop
	};

	catalog_submit(node.catalog, &request);
	cr_assert_eq(zi_loop_run(node.loop), 0);
	cr_assert_eq(request.result, 0);
}

Test(zero_warm, nothing_is_warm_after_a_commit_that_failed)
{
	struct zi_step_options options = model_options();

	warm_begin(64 * MIB, "threads");
	step(1, 0);
	forget();
	cr_assert_eq(model_step(actors, 1, 2, &options), -ENOENT, "%s", actors[0].text.chars);
	node_settle(&node);
	cr_assert(warm_is_none(job()));
	end(1);
}

/* A rank dies when units were updated early and written; with @is_held the disk alone knows. */
static void die(uint32_t flags, bool is_held)
{
	struct zi_step_options options = model_options();

	options.flags = flags;
	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	node.is_disk_held = is_held;
	model_gradients(actors, 2, 1, &options);
	while (is_held && job()->pipeline.writing_count < 3)
		node_turn(&node);
	if (!is_held)
		node_settle(&node);
	cr_assert_eq(!zi_list_is_empty(&job()->warm), flags && !is_held);
	actor_leave(&actors[1], false);
	node.is_disk_held = false;
	(void)nvme_engine_reap(node.engine);
	node_settle(&node);
	cr_assert(actors[0].is_broken);
	cr_assert(warm_is_none(job()));
	end(1);
}

Test(zero_warm, nothing_is_warm_after_a_step_that_was_aborted)
{
	die(0, false);
	die(ZI_STEP_UPDATE_EARLY, false);
	die(ZI_STEP_UPDATE_EARLY, true);
}

Test(zero_warm, memory_that_changed_meanwhile_is_found)
{
	struct zi_step_options options = model_options();
	const struct zero_subgroup *subgroup;

	warm_begin(64 * MIB, "threads");
	step(1, 0);
	subgroup = container_of(job()->warm.next, struct zero_subgroup, warm_link);
	((char *)subgroup->warm)[12345] ^= 1;
	refused(&actors[0], -EBADMSG, "do not match their checksum",
	        model_step(actors, 1, 2, &options));
	actor_leave(&actors[0], true);
	node_settle(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = plain.config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, 1);
	step(2, 0);
	cr_assert_eq(stats()->read_bytes, STATE_BYTES, "what is on the disk is sound");
	end(1);
}
