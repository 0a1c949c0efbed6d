/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: in one node every strategy trains 2 to 8 ranks, also such as divide no shape, to the same
 * bits, zctl tells for each of them what the table of strategies says, to the byte, and holds the
 * same for all of them; a job moves from one to another between two starts, and its ranks may be
 * killed on the way. Method: ranks as processes, compared with the plain computation; shares by the
 * rule of common/wire/owner.h, the table of planes written down here.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

#include "common/wire/geometry.h"
#include "common/wire/owner.h"
#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 20];

static void start(void)
{
	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
}

static void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
}

TestSuite(strategy, .init = start, .fini = stop, .timeout = 300);

static struct trainer_settings settings_of(const char *job, uint32_t world, uint32_t strategy)
{
	struct trainer_settings settings = ranks_settings(&harness, job, world);

	settings.options.strategy = strategy;
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 12 << 20;
	return settings;
}

/* What zctl says of the job; the caller's. */
static json_t *job_json(const char *job)
{
	int code = harness_zctl(harness.socket_path,
	                        (const char *const[]){ "--json", "jobs", job, NULL }, words,
	                        sizeof(words));
	json_t *jobs, *first;

	cr_assert_eq(code, 0, "%s", words);
	jobs = json_loads(words, 0, NULL);
	cr_assert_not_null(jobs, "%s", words);
	first = json_incref(json_array_get(jobs, 0));
	json_decref(jobs);
	cr_assert_not_null(first);
	return first;
}

static uint64_t count_of(const json_t *object, const char *key)
{
	cr_assert(json_is_integer(json_object_get(object, key)), "no %s", key);
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Units of trainer_small with padding. Return: the longest. */
static uint64_t units_of(uint64_t *ret_padded)
{
	const uint64_t *elements = trainer_small.elements;
	uint64_t longest = 0;

	for (uint32_t i = 0; i < trainer_small.unit_count; i++) {
		uint64_t count = 0;

		for (uint32_t k = 0; k < trainer_small.unit_params[i]; k++)
			count += *elements++;
		ret_padded[i] = zi_geometry_padded(count);
		longest = ret_padded[i] > longest ? ret_padded[i] : longest;
	}
	return longest;
}

/* Of bf16 with AdamW: 2, 2 and 10 bytes. @shard: ranks that share a plane. */
static void expect_table(const json_t *job, uint32_t strategy, uint32_t world, uint32_t shard)
{
	const json_t *logical = json_object_get(job, "logical");
	uint64_t all = trainer_padded_elements(&trainer_small);
	uint64_t padded[TRAINER_UNITS_MAX];
	uint64_t longest = units_of(padded);
	struct zi_owners owners;

	zi_owners_init(&owners, shard);
	zi_owners_deal_units(&owners, padded, trainer_small.unit_count);
	cr_assert_eq(json_array_size(logical), world);
	for (uint32_t i = 0; i < world; i++) {
		const json_t *rank = json_array_get(logical, i);
		uint64_t mine = owners.element_counts[i % shard], rest = all - mine;
		bool is_zero3 = strategy == ZINF_ZERO3;
		bool is_zero2 = is_zero3 || strategy == ZINF_ZERO2;
		bool is_zero1 = is_zero2 || strategy == ZINF_ZERO1;

		cr_expect_eq(count_of(rank, "rank"), i);
		cr_expect_eq(count_of(rank, "param"), 2 * (is_zero3 ? mine : all));
		cr_expect_eq(count_of(rank, "param_live"),
		             is_zero3 ? 2 * least(3 * longest, rest) : 0);
		cr_expect_eq(count_of(rank, "grad"), 2 * (is_zero2 ? mine : all));
		cr_expect_eq(count_of(rank, "grad_buckets"),
		             is_zero2 ? 2 * least(2 * longest, rest) : 0);
		cr_expect_eq(count_of(rank, "state"), 10 * (is_zero1 ? mine : all));
		cr_expect_eq(count_of(rank, "reduced_grad"), 0);
	}
}

static uint64_t stored_bytes(const json_t *job)
{
	const json_t *held = json_object_get(job, "held");

	return count_of(json_object_get(held, "param"), "nvme_bytes") +
	       count_of(json_object_get(held, "state"), "nvme_bytes");
}

Test(strategy, each_trains_every_number_of_ranks_to_the_same_bits)
{
	static const uint32_t worlds[] = { 2, 3, 4, 5, 7, 8 };
	static const uint32_t strategies[] = { ZINF_DDP, ZINF_ZERO1, ZINF_ZERO2, ZINF_ZERO3 };

	for (uint32_t i = 0; i < 6; i++)
		for (uint32_t k = 0; k < 4; k++) {
			struct trainer_settings settings =
				settings_of("each", worlds[i], strategies[k]);
			json_t *job;

			system_train(&settings);
			job = job_json("each");
			cr_expect_str_eq(json_string_value(json_object_get(job, "strategy")),
			                 zi_strategy_name(strategies[k]));
			expect_table(job, strategies[k], worlds[i], worlds[i]);
			cr_expect_eq(stored_bytes(job),
			             12 * trainer_padded_elements(&trainer_small),
			             "a node holds all of it, once");
			json_decref(job);
			cr_assert_eq(system_destroy_job(&settings), 0);
		}
}

Test(strategy, a_shard_size_divides_within_replicas)
{
	struct trainer_settings settings = settings_of("hybrid", 4, ZINF_ZERO3);
	json_t *job;

	settings.options.shard_size = 2;
	system_train(&settings);
	job = job_json("hybrid");
	cr_expect_eq(count_of(job, "shard_size"), 2);
	expect_table(job, ZINF_ZERO3, 4, 2);
	json_decref(job);
}

/* The same job, again and again, by another strategy each time, is one training. */
Test(strategy, a_job_moves_from_one_to_another_between_starts)
{
	static const uint32_t order[] = { ZINF_ZERO1, ZINF_ZERO3, ZINF_DDP, ZINF_ZERO2 };
	json_t *job;

	for (uint32_t i = 0; i < 4; i++) {
		struct trainer_settings settings = settings_of("moves", 3, order[i]);
		char incarnation[16];

		(void)snprintf(incarnation, sizeof(incarnation), "start.%u", i);
		settings.options.incarnation = incarnation;
		settings.steps = 2 * (i + 1);
		system_train(&settings);
		job = job_json("moves");
		cr_expect_eq(count_of(job, "committed_step"), 2 * (i + 1));
		expect_table(job, order[i], 3, 3);
		json_decref(job);
	}
}

static void kill_at_step_2(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	(void)arg;
	if (point == TRAINER_REDUCED && trainer->rank == 1 && trainer->step == 2)
		(void)raise(SIGKILL);
}

/* The survivors' daemon has the job; those that come next divide it in another way. */
Test(strategy, ranks_that_were_killed_go_on_by_another_one)
{
	struct trainer_settings settings = settings_of("killed", 3, ZINF_ZERO2);
	struct ranks ranks;

	settings.hook = kill_at_step_2;
	settings.options.incarnation = "first";
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 1), 1000 + SIGKILL);
	cr_assert_eq(ranks_wait(&ranks, 0), 1);
	cr_assert_eq(ranks_wait(&ranks, 2), 1);
	ranks_free(&ranks);
	settings = settings_of("killed", 3, ZINF_ZERO3);
	settings.options.incarnation = "second";
	system_train(&settings);
}

/* With parameters on NVMe, a resident share and steps that are not committed. */
Test(strategy, none_depends_on_where_the_planes_lie)
{
	struct trainer_settings settings = settings_of("placed", 2, ZINF_ZERO3);
	json_t *job;

	settings.options.offload_param = ZINF_OFFLOAD_NVME;
	settings.options.param_budget_bytes = 4 << 20;
	settings.options.resident_bytes = 1 << 20;
	settings.options.commit_interval = 2;
	system_train(&settings);
	job = job_json("placed");
	cr_expect_eq(count_of(job, "committed_step"), settings.steps);
	json_decref(job);
}
