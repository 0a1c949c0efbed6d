/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a measurement finds figures of every combination that the store is fast enough for, chooses
 * among them, disturbs neither data nor requests beside it, and ends once, whatever happens.
 * Method: small stores, the shortest time; the fault injector. Figures are not judged. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "nvme/tune.h"
#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES  (48 * MIB)
#define EXTENT_BEGIN (16 * MIB)
#define EXTENT_BYTES (16 * MIB)

static struct nvme_store *store;
static unsigned char *buffer;

static void set_up(void)
{
	test_make_directory();
	store = test_open("tune", STORE_BYTES);
	buffer = test_buffer(NVME_TUNE_BUFFER_BYTES);
}

static void tear_down(void)
{
	store = nvme_store_close(store);
	test_remove_directory();
}

struct variant {
	char backend[64];
};

static struct variant variants[] = { { "auto" }, { "threads" } };

#define TUNE_TEST(name)                                                  \
	ParameterizedTestParameters(tune, name)                          \
	{                                                                \
		return cr_make_param_array(struct variant, variants, 2); \
	}                                                                \
	ParameterizedTest(struct variant *variant, tune, name, .init = set_up, .fini = tear_down)

struct run {
	struct nvme_tune *tune;
	struct nvme_tune_report report;
	unsigned done_count;
};

/* As its users do: copies the report and frees it, from inside. */
static void run_done(void *arg)
{
	struct run *run = arg;

	run->done_count++;
	run->report = *nvme_tune_report(run->tune);
	run->tune = nvme_tune_free(run->tune);
}

static void start_for(struct run *run, struct nvme_engine *engine, uint64_t duration_ns)
{
	const struct nvme_tune_options options = {
		.engine = engine,
		.store = store,
		.extent = { .offset_bytes = EXTENT_BEGIN, .bytes = EXTENT_BYTES },
		.buffer = buffer,
		.duration_ns = duration_ns,
		.done = run_done,
		.arg = run,
	};

	*run = (struct run){ 0 };
	cr_assert_eq(nvme_tune_start(&options, &run->tune), 0);
	cr_assert_eq(run->done_count, 0, "done is never called from start");
}

static void start(struct run *run, struct nvme_engine *engine)
{
	start_for(run, engine, NVME_TUNE_NS_MIN);
}

static void check_choice(const struct nvme_tune_report *report, enum nvme_direction direction,
                         uint32_t block_bytes, uint32_t depth, uint64_t bytes_per_s)
{
	uint64_t best = 0;
	unsigned chosen_count = 0;

	for (uint32_t i = 0; i < report->row_count; i++) {
		const struct nvme_tune_row *row = &report->rows[i];

		if (row->direction != direction)
			continue;
		best = row->bytes_per_s > best ? row->bytes_per_s : best;
		if (!row->is_chosen)
			continue;
		chosen_count++;
		cr_assert_eq(row->block_bytes, block_bytes);
		cr_assert_eq(row->depth, depth);
		cr_assert_eq(row->bytes_per_s, bytes_per_s);
	}
	cr_assert_eq(chosen_count, 1);
	cr_assert_geq(bytes_per_s, best / 100 * 97);
	cr_assert_gt(bytes_per_s, 0);
}

TUNE_TEST(finds_figures_and_chooses)
{
	struct nvme_engine *engine = test_engine(variant->backend, 128, MIB);
	const struct nvme_tuning before = store->tuning;
	struct run run;

	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	start(&run, engine);
	nvme_engine_drain(engine);
	cr_assert_eq(run.done_count, 1);
	cr_assert_eq(run.report.result, 0, "%s", run.report.text.chars);
	cr_assert_eq(run.report.row_count, 20);
	check_choice(&run.report, NVME_READ, run.report.chosen.read_block_bytes,
	             run.report.chosen.read_depth, run.report.chosen.read_bytes_per_s);
	check_choice(&run.report, NVME_WRITE, run.report.chosen.write_block_bytes,
	             run.report.chosen.write_depth, run.report.chosen.write_bytes_per_s);
	cr_assert_eq(run.report.other_bytes, 0);
	cr_assert_gt(run.report.own_bytes, 0);
	cr_assert_gt(run.report.duration_ns, 0);
	cr_assert_eq(memcmp(&before, &store->tuning, sizeof(before)), 0, "choosing is not using");
	engine = nvme_engine_free(engine);
}

TUNE_TEST(leaves_data_and_other_requests_alone)
{
	struct nvme_engine *engine = test_engine(variant->backend, 128, MIB);
	unsigned char *data = test_buffer(EXTENT_BEGIN);
	struct test_io beside;
	struct run run;

	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	test_fill(data, 8 * MIB, 5);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, EXTENT_BEGIN - 8 * MIB, data, 8 * MIB), 0);
	cr_assert_eq(
		test_run(engine, NVME_WRITE, store, EXTENT_BEGIN + EXTENT_BYTES, data, 8 * MIB), 0);
	start_for(&run, engine, 3600ull * 1000000000); /* It ends by the cancel alone. */
	test_io_set(&beside, NVME_READ, store, EXTENT_BEGIN - 8 * MIB, data, 8 * MIB);
	memset(data, 0, 8 * MIB);
	cr_assert_eq(nvme_engine_submit(engine, &beside.io), 0);
	while (!beside.done_count)
		(void)nvme_engine_wait(engine);
	cr_assert_eq(run.done_count, 0, "the request did not wait for the measurement");
	cr_assert_eq(beside.io.result, 0);
	cr_assert(test_is_filled(data, 8 * MIB, 5));
	nvme_tune_cancel(run.tune);
	nvme_engine_drain(engine);
	cr_assert_eq(run.report.result, -ECANCELED);
	/* First in the queue, and so at its end before the measurement. */
	test_io_set(&beside, NVME_READ, store, EXTENT_BEGIN - 8 * MIB, data, 8 * MIB);
	memset(data, 0, 8 * MIB);
	cr_assert_eq(nvme_engine_submit(engine, &beside.io), 0);
	start(&run, engine);
	nvme_engine_drain(engine);
	cr_assert_eq(run.report.result, 0);
	cr_assert_eq(run.report.other_bytes, 8 * MIB);
	cr_assert_eq(beside.io.result, 0);
	cr_assert(test_is_filled(data, 8 * MIB, 5));
	memset(data, 0, 8 * MIB);
	cr_assert_eq(test_run(engine, NVME_READ, store, EXTENT_BEGIN + EXTENT_BYTES, data, 8 * MIB),
	             0);
	cr_assert(test_is_filled(data, 8 * MIB, 5));
	engine = nvme_engine_free(engine);
}

/* Where a slot ends is the disk's affair: at many paces, each in other places. */
Test(tune, keeps_to_its_extent, .init = set_up, .fini = tear_down)
{
	for (unsigned mb_per_s = 700; mb_per_s < 1300; mb_per_s += 29) {
		struct nvme_engine *engine;
		char backend[192];
		struct run run;

		(void)snprintf(backend, sizeof(backend),
		               "faulty:over=threads,bytes_per_s=%u000000,EIO=any@1+@0-%llu,"
		               "EIO=any@1+@%llu-%llu",
		               mb_per_s, EXTENT_BEGIN, EXTENT_BEGIN + EXTENT_BYTES, STORE_BYTES);
		engine = test_engine(backend, 128, MIB);
		start(&run, engine);
		nvme_engine_drain(engine);
		cr_assert_eq(run.report.result, 0, "at %u MB/s: %s", mb_per_s,
		             run.report.text.chars);
		engine = nvme_engine_free(engine);
	}
}

TUNE_TEST(cancelled_ends_once)
{
	struct nvme_engine *engine = test_engine(variant->backend, 128, MIB);
	struct run run;

	for (unsigned turns = 0; turns < 40; turns += 13) {
		start_for(&run, engine, 3600ull * 1000000000); /* It will not be over. */
		for (unsigned i = 0; i < turns; i++)
			(void)nvme_engine_wait(engine);
		nvme_tune_cancel(run.tune);
		nvme_tune_cancel(run.tune);
		cr_assert_eq(run.done_count, 0, "done is never called from cancel");
		nvme_engine_drain(engine);
		cr_assert_eq(run.done_count, 1);
		cr_assert_eq(run.report.result, -ECANCELED);
		cr_assert_not_null(strstr(run.report.text.chars, "cancelled"));
		cr_assert_eq(run.report.chosen.read_depth, 0);
	}
	engine = nvme_engine_free(engine);
}

Test(tune_faults, error_ends_it_with_its_place, .init = set_up, .fini = tear_down)
{
	static const char *const faults[] = { "faulty:write_eio_at=5", "faulty:read_eio_at=5" };

	for (unsigned i = 0; i < 2; i++) {
		struct nvme_engine *engine = test_engine(faults[i], 128, MIB);
		struct run run;

		start(&run, engine);
		nvme_engine_drain(engine);
		cr_assert_eq(run.done_count, 1);
		cr_assert_eq(run.report.result, -EIO);
		cr_assert_not_null(strstr(run.report.text.chars, i ? "read of" : "write of"));
		cr_assert_not_null(strstr(run.report.text.chars, store->path));
		engine = nvme_engine_free(engine);
	}
}

/* 50 MB/s: 64 MiB in flight would take the time of the whole measurement six times. */
Test(tune_faults, slow_store_is_spared_what_it_cannot_turn_over, .init = set_up, .fini = tear_down)
{
	struct nvme_engine *engine = test_engine("faulty:bytes_per_s=50000000", 128, MIB);
	struct run run;

	start(&run, engine);
	nvme_engine_drain(engine);
	cr_assert_eq(run.report.result, 0, "%s", run.report.text.chars);
	for (uint32_t i = 0; i < run.report.row_count; i++) {
		const struct nvme_tune_row *row = &run.report.rows[i];

		if ((uint64_t)row->block_bytes * row->depth >= 16 * MIB)
			cr_assert_eq(row->bytes_per_s, 0, "row %u", i);
	}
	check_choice(&run.report, NVME_WRITE, run.report.chosen.write_block_bytes,
	             run.report.chosen.write_depth, run.report.chosen.write_bytes_per_s);
	check_choice(&run.report, NVME_READ, run.report.chosen.read_block_bytes,
	             run.report.chosen.read_depth, run.report.chosen.read_bytes_per_s);
	engine = nvme_engine_free(engine);
}

Test(tune_faults, engine_without_a_place_refuses, .init = set_up, .fini = tear_down)
{
	static struct nvme_store stores[NVME_ENGINE_STORES_MAX];
	struct nvme_engine *engine = test_engine("threads", 8, MIB);
	const struct nvme_tune_options options = {
		.engine = engine,
		.store = store,
		.extent = { .offset_bytes = EXTENT_BEGIN, .bytes = EXTENT_BYTES },
		.buffer = buffer,
		.duration_ns = NVME_TUNE_NS_MIN,
		.done = run_done,
	};
	struct nvme_tune *tune = NULL;

	for (unsigned i = 0; i < NVME_ENGINE_STORES_MAX; i++)
		cr_assert_eq(nvme_engine_register_store(engine, &stores[i]), 0);
	cr_assert_eq(nvme_tune_start(&options, &tune), -ENOSPC);
	cr_assert_null(tune);
	engine = nvme_engine_free(engine);
}
