/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl estimate says what GPU memory a rank needs: the least that works, what holds all
 * units, and what the rank takes of the room there is. Method: models of known units, and answers
 * of a daemon by hand.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/zctl/estimate.h"
#include "zctl/estimate/gpu.h"

#define MIB (1ull << 20)

static struct estimate_options options;
static struct zi_plan_options plan;
static struct estimate_gpu gpu;

/* Eight units of 1 M parameters in f32: 4 MiB each, but for the padding of 10^6. */
static void start(void)
{
	cr_assert_eq(read_word("8M", 8), 0, "%s", text.chars);
	options = (struct estimate_options){ .device = "gpu" };
	plan = (struct zi_plan_options){ .config = { .param_dtype = ZI_DTYPE_F32,
		                                     .grad_dtype = ZI_DTYPE_F32,
		                                     .schedule = ZI_SCHEDULE_LOCAL } };
	gpu = (struct estimate_gpu){ .is_wanted = true,
		                     .granularity_bytes = ESTIMATE_GPU_GRANULARITY_BYTES,
		                     .room_bytes = ESTIMATE_GPU_NO_ROOM };
}

TestSuite(estimate_gpu, .init = start, .fini = stop, .timeout = 20);

static int ask(void)
{
	return estimate_gpu(&options, &model, &plan, &gpu, &text);
}

Test(estimate_gpu, without_a_room_all_parameters_and_two_gradients_are_taken)
{
	cr_assert_eq(ask(), 0, "%s", text.chars);
	cr_expect(gpu.fits);
	cr_expect_eq(gpu.chunk_bytes, 2 * MIB);
	/* Two neighbours of two chunks. */
	cr_expect_eq(gpu.params.least_bytes, 8 * MIB);
	cr_expect_eq(gpu.params.all_bytes, 32 * MIB);
	cr_expect_eq(gpu.params.chosen_bytes, 32 * MIB);
	cr_expect_eq(gpu.grads.least_bytes, 8 * MIB);
	cr_expect_eq(gpu.grads.all_bytes, 32 * MIB);
	cr_expect_eq(gpu.grads.chosen_bytes, 8 * MIB);
}

Test(estimate_gpu, less_room_leaves_less_for_parameters_down_to_the_least)
{
	gpu.room_bytes = 20 * MIB;
	cr_assert_eq(ask(), 0);
	cr_expect(gpu.fits);
	cr_expect_eq(gpu.params.chosen_bytes, 12 * MIB);
	gpu.room_bytes = 16 * MIB;
	cr_assert_eq(ask(), 0);
	cr_expect(gpu.fits);
	cr_expect_eq(gpu.params.chosen_bytes, 8 * MIB);
	gpu.room_bytes = 16 * MIB - 1;
	cr_assert_eq(ask(), 0);
	cr_expect_not(gpu.fits);
	cr_expect(strstr(gpu.text.chars, "the GPU has room for 16"), "%s", gpu.text.chars);
	cr_expect_eq(gpu.params.least_bytes, 8 * MIB, "the figures are there all the same");
}

Test(estimate_gpu, budgets_are_kept_or_refused_with_the_least)
{
	options.gpu_param_budget_bytes = 10 * MIB;
	options.gpu_grad_budget_bytes = 1000 * MIB;
	cr_assert_eq(ask(), 0);
	cr_expect(gpu.fits);
	cr_expect_eq(gpu.params.chosen_bytes, 10 * MIB);
	cr_expect_eq(gpu.grads.chosen_bytes, 32 * MIB, "no more than all units need");
	options.gpu_param_budget_bytes = 6 * MIB;
	cr_assert_eq(ask(), 0);
	cr_expect_not(gpu.fits);
	cr_expect(
		strstr(gpu.text.chars, "raise the budget from 6 MiB (3 chunks) to at least 8 MiB"),
		"%s", gpu.text.chars);
}

Test(estimate_gpu, micro_batches_need_gradients_of_all_units)
{
	plan.training.accumulation = 4;
	cr_assert_eq(ask(), 0);
	cr_expect_eq(gpu.grads.chosen_bytes, 32 * MIB);
	options.gpu_grad_budget_bytes = 8 * MIB;
	cr_assert_eq(ask(), 0);
	cr_expect_not(gpu.fits);
	cr_expect(strstr(gpu.text.chars, "gradients of 4 micro-batches"), "%s", gpu.text.chars);
}

Test(estimate_gpu, a_job_without_training_has_no_gradients_there)
{
	plan.training.flags = ZI_TRAINING_FORWARD_ONLY;
	cr_assert_eq(ask(), 0);
	cr_expect(gpu.fits);
	cr_expect_eq(gpu.grads.all_bytes, 0);
	cr_expect_eq(gpu.params.chosen_bytes, 32 * MIB);
}

Test(estimate_gpu, a_unit_that_no_gpu_memory_holds_is_an_error)
{
	cr_assert_eq(read_word("2T", 1), 0);
	cr_expect_eq(ask(), -EINVAL);
	expect_words("unit 'one of many' has 8000000000000 bytes");
}

Test(estimate_gpu, the_gpu_of_a_daemon_is_the_one_named_or_the_one_with_most_room)
{
	json_t *tiers = json_pack("[{s:s},{s:s,s:s,s:i,s:i},{s:s,s:s,s:i,s:i}]", "kind", "cpu",
	                          "kind", "gpu", "uuid", "GPU-a", "free_bytes", 100,
	                          "granularity_bytes", 4096, "kind", "gpu", "uuid", "GPU-b",
	                          "free_bytes", 200, "granularity_bytes", 8192);

	cr_assert(tiers);
	cr_expect_not(estimate_gpu_find(NULL, "gpu", &gpu));
	cr_expect_not(estimate_gpu_find(tiers, "GPU-c", &gpu));
	cr_expect_eq(gpu.room_bytes, ESTIMATE_GPU_NO_ROOM);
	cr_assert(estimate_gpu_find(tiers, "gpu", &gpu));
	cr_expect_str_eq(gpu.name, "GPU-b");
	cr_expect_eq(gpu.room_bytes, 200);
	cr_expect_eq(gpu.granularity_bytes, 8192);
	cr_assert(estimate_gpu_find(tiers, "gpu-A", &gpu));
	cr_expect_str_eq(gpu.name, "GPU-a");
	cr_expect_eq(gpu.room_bytes, 100);
	json_decref(tiers);
}
