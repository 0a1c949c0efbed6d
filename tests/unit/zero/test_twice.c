/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what jobs are charged on NVMe is what they need: on a store of exactly that no step is
 * refused for room that lies in pieces, also after a restart, and the bits are those of a large
 * one. Method: the charge is taken from a large store, then the same jobs on one that has just
 * that, in drawn turns.
 */
#include "tests/unit/zero/plain.h"

#define JOBS_MAX 2u

static struct node node;
static struct actor actors[JOBS_MAX];
static struct plain plains[JOBS_MAX];
static struct zi_job_config configs[JOBS_MAX];
static uint64_t counts[JOBS_MAX]; /* steps */
static uint32_t job_count;

TestSuite(zero_twice, .timeout = 300);

static int attach(uint32_t index)
{
	static const char *const names[JOBS_MAX] = { "train", "other" };

	cr_assert_eq(actor_attach(&node, &actors[index],
	                          &(struct attach_options){ .config = configs[index],
	                                                    .world = 1,
	                                                    .job = names[index] }),
	             0, "%s", actors[index].text.chars);
	return model_materialize(&actors[index], 1);
}

static void begin_in(uint64_t store_bytes)
{
	node_init(&node);
	node.store_bytes = store_bytes;
	node_start(&node);
	for (uint32_t i = 0; i < job_count; i++) {
		plain_init(&plains[i], &configs[i], 1);
		counts[i] = 0;
		cr_assert_eq(attach(i), 0, "%s", actors[i].text.chars);
		model_write(&actors[i], 1);
	}
}

static void end(void)
{
	for (uint32_t i = 0; i < job_count; i++) {
		actor_leave(&actors[i], true);
		plain_deinit(&plains[i]);
	}
	node_deinit(&node);
}

/* On a store that has what all of them are charged, and not a block more. */
static void begin_exactly(void)
{
	uint64_t bytes;

	begin_in(128 * MIB);
	bytes = node.store_bytes - node.nvme.capacity_bytes + node.nvme.used_bytes;
	end();
	begin_in(bytes);
	cr_assert_eq(node.nvme.capacity_bytes, node.nvme.used_bytes);
}

static void step(uint32_t index)
{
	struct zi_step_options options = model_options();
	struct actor *actor = &actors[index];
	uint64_t number = ++counts[index];

	cr_assert_eq(model_step(actor, 1, number, &options), 0, "job %u, step %llu: %s", index,
	             (unsigned long long)number, actor->text.chars);
	plain_step(&plains[index], number, &options);
	cr_assert(plain_equals(&plains[index], actor), "job %u, step %llu", index,
	          (unsigned long long)number);
}

/* All are committed where they stand. */
static void restart(void)
{
	for (uint32_t i = 0; i < job_count; i++) {
		cr_assert_eq(actor_call(&actors[i], zero_commit,
		                        &(struct zero_op){ .blob = "", .blob_bytes = 0 }),
		             0, "%s", actors[i].text.chars);
		actor_leave(&actors[i], true);
	}
	node_settle(&node);
	node_stop(&node);
	node_start(&node);
	for (uint32_t i = 0; i < job_count; i++)
		cr_assert_eq(attach(i), 0, "%s", actors[i].text.chars);
}

static void train(uint64_t seed)
{
	begin_exactly();
	for (uint32_t i = 0; i < 24 * job_count; i++) {
		step((uint32_t)(test_noise(seed + i) % job_count));
		if (i % 9 == 8)
			restart();
	}
	end();
}

static void train_alone(struct zi_job_config config)
{
	job_count = 1;
	configs[0] = config;
	train(0);
}

Test(zero_twice, state_on_nvme_is_written_anew_beside_itself)
{
	train_alone(model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME));
	train_alone(model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME));
}

Test(zero_twice, resident_share_is_too)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.resident_bytes = 3 * MIB;
	train_alone(config);
}

Test(zero_twice, parameters_in_a_pool_are_too)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.offload_param = ZI_OFFLOAD_NVME;
	config.staging_bytes = 16 * MIB;
	train_alone(config);
}

Test(zero_twice, steps_between_commits_have_their_third)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.commit_interval = 3;
	train_alone(config);
	config.resident_bytes = 3 * MIB;
	config.staging_bytes = 16 * MIB;
	train_alone(config);
	config.offload_param = ZI_OFFLOAD_NVME;
	train_alone(config);
}

/* Neither takes the other's half, whoever steps how often. */
Test(zero_twice, two_jobs_fill_a_store)
{
	job_count = 2;
	configs[0] = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	configs[1] = configs[0];
	configs[1].optimizer = ZI_OPTIMIZER_LION;
	for (uint64_t seed = 1; seed <= 3; seed++)
		train(100 * seed);
}
