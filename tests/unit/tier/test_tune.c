/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a measurement takes is charged before and returned after, however it ends, and what it
 * cannot have is refused with figures. Method: a small store over blocking threads.
 */
#include <stdio.h>

#include "daemon/tier/account.h"
#include "daemon/tier/member.h"
#include "daemon/tier/tier.h"
#include "daemon/tier/tune.h"
#include "tests/guard/guard.h"
#include "tests/unit/tier/fixture.h"

struct bench {
	char directory[64], path[96];
	struct nvme_store *store;
	struct nvme_engine *engine;
	struct tier disk, memory;
	struct tier_account account;
	struct tier_tune *tune;
	struct zi_text text;
	uint32_t done_count;
	int result;
};

static void bench_init(struct bench *bench, uint64_t store_bytes, uint64_t memory_bytes)
{
	*bench = (struct bench){ .done_count = 0 };
	cr_assert_not_null(mkdtemp(guard_path(bench->directory, sizeof(bench->directory), "tier")));
	(void)snprintf(bench->path, sizeof(bench->path), "%s/store", bench->directory);
	cr_assert_eq(nvme_store_open(&(struct nvme_store_options){ .name = "fast",
	                                                           .path = bench->path,
	                                                           .bytes = store_bytes },
	                             &bench->text, &bench->store),
	             0, "%s", bench->text.chars);
	cr_assert_eq(
		nvme_engine_new(&(struct nvme_engine_options){ .backend = "threads", .depth = 64 },
	                        &bench->text, &bench->engine),
		0);
	cr_assert_eq(nvme_engine_register_store(bench->engine, bench->store), 0);
	cr_assert_eq(tier_init_nvme(&bench->disk, bench->store->name, 0), 0);
	cr_assert_eq(tier_member_add_store(&bench->disk, bench->store), 0);
	tier_init_cpu(&bench->memory, 0, memory_bytes, NULL, false);
	tier_account_init(&bench->account, "uid 0", NULL);
}

/* Asserts that nothing is charged. */
static void bench_deinit(struct bench *bench)
{
	tier_account_deinit(&bench->account);
	tier_deinit(&bench->memory);
	cr_assert_eq(nvme_space_free_bytes(bench->disk.members[0].space),
	             nvme_space_total_bytes(bench->disk.members[0].space));
	tier_deinit(&bench->disk);
	bench->engine = nvme_engine_free(bench->engine);
	bench->store = nvme_store_close(bench->store);
	cr_assert_eq(unlink(bench->path), 0);
	cr_assert_eq(rmdir(bench->directory), 0);
}

static void on_done(void *arg, const struct nvme_tune_report *report)
{
	struct bench *bench = arg;

	bench->done_count++;
	bench->result = report->result;
	bench->tune = NULL;
}

static int start(struct bench *bench)
{
	const struct tier_tune_options options = { .engine = bench->engine,
		                                   .member = &bench->disk.members[0],
		                                   .cpu_tier = &bench->memory,
		                                   .account = &bench->account,
		                                   .duration_ns = 3600ull * 1000000000,
		                                   .done = on_done,
		                                   .arg = bench };

	return tier_tune_start(&options, &bench->text, &bench->tune);
}

Test(tune, takes_what_there_is_and_gives_it_back)
{
	struct bench bench;

	bench_init(&bench, 40 * MIB, 64 * MIB);
	cr_assert_eq(start(&bench), 0, "%s", bench.text.chars);
	cr_assert_eq(bench.disk.used_bytes, 32 * MIB, "halved until it fits");
	cr_assert_eq(bench.memory.used_bytes, 8 * MIB);
	(void)nvme_engine_wait(bench.engine);
	tier_tune_cancel(bench.tune);
	nvme_engine_drain(bench.engine);
	cr_assert_eq(bench.done_count, 1);
	cr_assert_eq(bench.result, -ECANCELED);
	bench_deinit(&bench);
}

Test(tune, full_store_is_refused_with_figures)
{
	struct bench bench;

	bench_init(&bench, 12 * MIB, 64 * MIB);
	cr_assert_eq(start(&bench), -ENOSPC);
	cr_assert(strstr(bench.text.chars, "16 MiB"), "%s", bench.text.chars);
	bench_deinit(&bench);
}

Test(tune, store_in_pieces_is_refused_with_figures)
{
	struct zi_extent middle = { .offset_bytes = 12 * MIB, .bytes = MIB };
	struct bench bench;

	bench_init(&bench, 24 * MIB, 64 * MIB);
	cr_assert_eq(nvme_space_claim(bench.disk.members[0].space, &middle), 0);
	cr_assert_eq(start(&bench), -ENOSPC);
	cr_assert(strstr(bench.text.chars, "in pieces"), "%s", bench.text.chars);
	nvme_space_release(bench.disk.members[0].space, &middle);
	bench_deinit(&bench);
}

Test(tune, quota_is_kept)
{
	struct bench bench;

	bench_init(&bench, 40 * MIB, 64 * MIB);
	bench.account.limit_bytes[TIER_NVME] = MIB;
	cr_assert_eq(start(&bench), -EDQUOT);
	bench_deinit(&bench);
}

Test(tune, no_memory_is_refused_and_the_extent_returned)
{
	struct bench bench;

	bench_init(&bench, 40 * MIB, 4 * MIB);
	cr_assert_eq(start(&bench), -ENOSPC);
	cr_assert_null(bench.tune);
	bench_deinit(&bench);
}
