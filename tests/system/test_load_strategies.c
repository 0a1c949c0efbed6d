/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what one strategy exported goes on under each other one, and under other numbers of ranks,
 * with the same bits: nothing is converted, for what is stored does not know how ranks divided it.
 * Method: each pair of strategies, against the reference where the ranks stay as many, and against
 * each other where they do not (fewer ranks have other gradients). Over several nodes:
 * test_far_snapshot.c.
 */
#include "common/base/cleanup.h"
#include "tests/harness/ranks.h"
#include "tests/system/files.h"

#define RANKS 4u

TestSuite(load_strategies, .init = files_start, .fini = files_stop, .timeout = 300);

static const struct way {
	uint32_t strategy, shard_size;
} ways[] = {
	{ ZINF_DDP, 0 },   { ZINF_ZERO1, 0 }, { ZINF_ZERO1, 2 },
	{ ZINF_ZERO2, 0 }, { ZINF_ZERO3, 0 }, { ZINF_ZERO3, 2 },
};

static struct trainer_settings settings_of(const char *job, const struct way *way, uint32_t world)
{
	struct trainer_settings settings = ranks_settings(&harness, job, world);

	settings.options.strategy = way->strategy;
	settings.options.shard_size = way->shard_size;
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 12 << 20;
	return settings;
}

/* By one rank, which shares its planes with nobody. */
static void destroy(struct trainer_settings *settings)
{
	settings->options.shard_size = 0;
	cr_assert_eq(system_destroy_job(settings), 0);
}

/* To step 4, from the export of step 2. The caller frees it. */
static struct ranks go_on(const struct way *way, uint32_t world)
{
	struct trainer_settings settings = settings_of("new", way, world);
	struct ranks ranks;

	settings.load = "new/two";
	settings.steps = 4;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], 2);
	destroy(&settings);
	return ranks;
}

Test(load_strategies, every_pair_gives_the_same_bits)
{
	struct ranks first = { .world = 0 }, other;
	char command[300];

	for (size_t i = 0; i < ZI_COUNT_OF(ways); i++) {
		struct trainer_settings settings = settings_of("base", &ways[i], RANKS);

		settings.steps = 2;
		cr_assert_eq(ranks_train(&other, &settings), 0);
		ranks_free(&other);
		RUN(0, "export", "base", path_of("all"), "--format", "zinf");
		RUN(0, "load", path_of("all"), "new/two");
		destroy(&settings);
		for (size_t k = 0; k < ZI_COUNT_OF(ways); k++) {
			other = go_on(&ways[k], RANKS);
			cr_assert(ranks_are_right(&other), "from %zu to %zu", i, k);
			ranks_free(&other);
			other = go_on(&ways[k], 2);
			if (!first.world) {
				first = other;
				continue;
			}
			cr_assert_eq(memcmp(first.reports[0]->dump, other.reports[0]->dump,
			                    trainer_dump_bytes(&first.settings)),
			             0, "from %zu to %zu with fewer ranks", i, k);
			ranks_free(&other);
		}
		RUN(0, "snapshot", "rm", "new/two");
		(void)snprintf(command, sizeof(command), "rm -r %s", path_of("all"));
		cr_assert_eq(system(command), 0);
	}
	ranks_free(&first);
}
