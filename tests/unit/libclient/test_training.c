/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: programs of every former version of struct zinf_options go on, and what a version adds says
 * to the daemon what was set, in words that an older daemon need not know. Method: a struct cut to
 * its former size, at the end of a page with nothing behind it; what the fake daemon received. */
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "tests/fake/fake_job.h"

static struct fake_daemon *fake;
static struct zinf_options options;

static void start(uint64_t features)
{
	fake = fake_daemon_start(&(struct fake_daemon_options){ .features = features });
	options = fake_job_options(fake);
	options.rank = 0;
	options.world_size = 8;
}

/* Attaches and leaves; the tail that the daemon saw. */
static const struct zi_job_training *attach(void)
{
	struct zinf *zinf;

	cr_assert_eq(zinf_attach(&options, &zinf), 0, "%s", zinf_attach_error());
	zinf_detach(zinf);
	return fake_daemon_training(fake);
}

static void expect_refused(int error, const char *words)
{
	struct zinf *zinf;

	cr_expect_eq(zinf_attach(&options, &zinf), error, "%s", words);
	expect_attach_text(words);
}

Test(training, program_of_a_former_size_attaches_and_nothing_behind_it_is_read)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *base =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct zi_job_training zero = { 0 };

	cr_assert_neq(base, MAP_FAILED);
	cr_assert_eq(mprotect(base + page, page, PROT_NONE), 0);
	start(UINT64_MAX);
	options.strategy = (enum zinf_strategy)77; /* behind what it says it has */
	for (uint32_t bytes = 128; bytes <= sizeof(options); bytes += 8) {
		struct zinf_options *former = (void *)(base + page - bytes);
		struct zinf *zinf;

		options.bytes = bytes;
		if (bytes > offsetof(struct zinf_options, strategy))
			options.strategy = ZINF_STRATEGY_DEFAULT;
		memcpy(former, &options, bytes);
		cr_assert_eq(zinf_attach(former, &zinf), 0, "%u: %s", bytes, zinf_attach_error());
		zinf_detach(zinf);
		cr_assert_eq(memcmp(fake_daemon_training(fake), &zero, sizeof(zero)), 0);
	}
	fake_daemon_stop(fake);
	munmap(base, 2 * page);
}

Test(training, all_that_is_set_is_sent)
{
	const struct zi_job_training *seen;

	start(UINT64_MAX);
	options.strategy = ZINF_ZERO2;
	options.shard_size = 4;
	options.accumulation = 3;
	options.reduce_dtype = ZINF_F32;
	options.group_count = 2;
	options.is_forward_only = options.finds_unused = true;
	seen = attach();
	cr_assert_eq(seen->strategy, ZI_STRATEGY_ZERO2);
	cr_assert_eq(seen->shard_size, 4);
	cr_assert_eq(seen->accumulation, 3);
	cr_assert_eq(seen->reduce_dtype, ZI_DTYPE_F32);
	cr_assert_eq(seen->group_count, 2);
	cr_assert_eq(seen->flags, ZI_TRAINING_FORWARD_ONLY | ZI_TRAINING_FIND_UNUSED);
	options.accumulation = options.group_count = 1; /* are 0 */
	options.grad_budget_bytes = 1 << 20;
	seen = attach();
	cr_assert_eq(seen->grad_budget_bytes, 1 << 20);
	cr_assert_eq(seen->accumulation, 0);
	cr_assert_eq(seen->group_count, 0);
	options.reserved_end[0] = 1;
	expect_refused(-EINVAL, "reserved options");
	fake_daemon_stop(fake);
}

Test(training, what_does_not_go_together_is_refused_before_anything_is_sent)
{
	start(UINT64_MAX);
	options.strategy = (enum zinf_strategy)6;
	expect_refused(-EINVAL, "strategy is 6: 0 to 5");
	options.strategy = ZINF_ZERO3;
	options.shard_size = 3;
	expect_refused(-EINVAL, "shard_size is 3: it must divide the 8 ranks");
	options.strategy = ZINF_DDP;
	options.shard_size = 8;
	expect_refused(-EINVAL, "strategy ddp shards nothing");
	options.shard_size = 0;
	options.grad_reduction = ZINF_REDUCE_PER_MICRO_BATCH;
	options.accumulation = 2;
	expect_refused(-EINVAL, "accumulation is 2");
	cr_expect_eq(fake_daemon_count(fake, FAKE_ON_MESSAGE(ZI_MESSAGE_HELLO)), 0);
	fake_daemon_stop(fake);
}

Test(training, an_older_daemon_gets_no_tail_and_what_needs_one_is_refused_by_name)
{
	start(UINT64_MAX & ~ZI_FEATURE_TRAINING);
	cr_assert_null(attach());
	options.strategy = ZINF_DDP; /* what it does anyway */
	options.reduce_dtype = options.grad_dtype;
	cr_assert_null(attach());
	options.strategy = ZINF_ZERO1;
	expect_refused(-EOPNOTSUPP, "strategy is zero1, but ddp in every job of zinfd 9.9.9 at ");
	expect_attach_text("use a newer zinfd");
	cr_expect_eq(fake_daemon_count(fake, FAKE_ON_MESSAGE(ZI_MESSAGE_ATTACH)), 2);
	fake_daemon_stop(fake);
}

/* ---- names ---- */

Test(training, every_strategy_has_its_names)
{
	static const struct {
		const char *name;
		enum zinf_strategy strategy;
		uint32_t shard_size;
	} words[] = {
		{ "dp", ZINF_DP, 0 },
		{ "ddp", ZINF_DDP, 0 },
		{ "no_shard", ZINF_DDP, 0 },
		{ "zero1", ZINF_ZERO1, 0 },
		{ "zero2", ZINF_ZERO2, 0 },
		{ "shard_grad_op", ZINF_ZERO2, 0 },
		{ "zero3", ZINF_ZERO3, 0 },
		{ "fsdp", ZINF_ZERO3, 0 },
		{ "full_shard", ZINF_ZERO3, 0 },
		{ "hybrid_shard", ZINF_ZERO3, ZINF_SHARD_NODE },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(words); i++) {
		struct zinf_options named = ZINF_OPTIONS_INIT;

		named.shard_size = 5; /* of another name before */
		cr_expect_eq(zinf_strategy_by_name(words[i].name, &named), 0);
		cr_expect_eq(named.strategy, words[i].strategy, "%s", words[i].name);
		cr_expect_eq(named.shard_size, words[i].shard_size, "%s", words[i].name);
	}
}

Test(training, an_unknown_strategy_is_answered_with_the_nearest)
{
	static const struct {
		const char *name, *nearest;
	} words[] = {
		{ "zero4", "'zero1'" },
		{ "ZERO3", "'zero" },
		{ "fulshard", "full_shard" },
		{ "hybrid-shard", "hybrid_shard" },
		{ "fsdb", "fsdp" },
		{ "FSDP", "did you mean 'fsdp'" },
		{ "foo", "no strategy 'foo': allowed are dp, ddp, zero1" },
		{ "", "allowed are dp" },
	};
	struct zinf_options named = ZINF_OPTIONS_INIT;

	named.strategy = ZINF_ZERO1;
	for (size_t i = 0; i < ZI_COUNT_OF(words); i++) {
		cr_expect_eq(zinf_strategy_by_name(words[i].name, &named), -EINVAL);
		expect_attach_text(words[i].nearest);
		cr_expect_eq(named.strategy, ZINF_ZERO1, "untouched on failure");
	}
	named.bytes = 128;
	cr_expect_eq(zinf_strategy_by_name("ddp", &named), -EINVAL);
	expect_attach_text("options of 128 bytes have no strategy");
	named.bytes = sizeof(named);
	cr_expect_eq(zinf_strategy_by_name("ddp", &named), 0);
	cr_expect_str_eq(zinf_attach_error(), "");
}

Test(training, hybrid_means_the_ranks_of_this_node)
{
	start(UINT64_MAX);
	cr_assert_eq(zinf_strategy_by_name("hybrid_shard", &options), 0);
	cr_assert_eq(attach()->shard_size, 8, "all of them are here");
	setenv("RANK", "3", 1);
	setenv("WORLD_SIZE", "8", 1);
	setenv("LOCAL_RANK", "1", 1);
	setenv("LOCAL_WORLD_SIZE", "2", 1);
	options.rank = options.world_size = -1;
	cr_assert_eq(attach()->shard_size, 2);
	setenv("LOCAL_WORLD_SIZE", "3", 1);
	expect_refused(-EINVAL, "shard_size is 3: it must divide the 8 ranks");
	fake_daemon_stop(fake);
}
