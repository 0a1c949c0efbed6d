/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: `zinf-gpt --device gpu` trains to the bits of the CPU, and says in one sentence what it
 * lacks. Method: the program with an image that the fake driver takes (tests/gpu/gpu.mk), on a fake
 * GPU with a fake cuBLAS, as --reference, which needs no daemon. test_gpt_gpu_units.c is the same
 * over zinfd.
 */
#include <stdlib.h>

#include "tests/gpu/fake_gpu.h"
#include "tests/system/gpt.h"

#define FAKE_GPT "../tests/gpu/bin/zinf-gpt" /* from bin */
#define TINY                                                                                  \
	"--layers 2 --heads 2 --d-model 16 --seq-len 70 --batch-size 2 --warmup 1 --steps 3 " \
	"--eval-every 2 --eval-batches 1 --json --reference "
/* As the program finds both from the folder of the test. */
#define ON_GPU                                                           \
	"--device gpu --gpu-driver $(dirname $program)/../libcuda.so.1 " \
	"--cublas $(dirname $program)/../libcublas.so.12 "

static void start_fake(void)
{
	folder_make(&folder, "gpu");
	gpt_needs_program();
}

static void stop_fake(void)
{
	folder_remove(&folder);
}

TestSuite(gpt_gpu, .init = start_fake, .fini = stop_fake, .timeout = 60);

/* The losses of a run: its lines without times. */
#define LOSSES(name) "| grep -o '\"loss\":[^,}]*' >" name " && test -s " name

static void expect_same(const char *words, const char *flags)
{
	char line[700];

	cr_assert_eq(setenv(FAKE_GPU_ENV, words, 1), 0);
	(void)snprintf(line, sizeof(line), TINY "%s --dump cpu --dump-state cpu_state " LOSSES("c"),
	               flags);
	gpt_run(0, "zinf-gpt", line);
	(void)snprintf(line, sizeof(line),
	               TINY "%s " ON_GPU "--dump gpu --dump-state gpu_state " LOSSES("g"), flags);
	gpt_run(0, FAKE_GPT, line);
	gpt_expect_equal_dumps("c", "g");
	gpt_expect_equal_dumps("cpu", "gpu");
	gpt_expect_equal_dumps("cpu_state", "gpu_state");
}

Test(gpt_gpu, two_ranks_have_the_bits_of_the_cpu)
{
	expect_same("order=eager", "--ranks 2");
}

Test(gpt_gpu, streams_that_run_late_change_no_bit)
{
	expect_same("order=late", "--grad-accum 2");
}

Test(gpt_gpu, streams_in_a_drawn_order_change_no_bit)
{
	expect_same("order=shuffled:11",
	            "--ranks 2 --grad-reduction per_micro_batch --grad-accum 2 "
	            "--activations recompute");
}

Test(gpt_gpu, bf16_trains)
{
	cr_assert_eq(setenv(FAKE_GPU_ENV, "", 1), 0);
	gpt_run(0, FAKE_GPT, TINY ON_GPU "--bf16");
	system_expect_text(words, "\"loss\":");
}

/* ---- bad input ---- */

static void expect_refused(int code, const char *program, const char *flags, const char *sentence)
{
	char line[700];

	(void)snprintf(line, sizeof(line), TINY "%s", flags);
	gpt_run(code, program, line);
	system_expect_text(words, sentence);
}

Test(gpt_gpu, an_unknown_device_is_a_wrong_option)
{
	expect_refused(2, "zinf-gpt", "--device tpu",
	               "--device tpu: allowed are cpu, gpu, or the UUID of a GPU");
}

Test(gpt_gpu, options_that_do_not_go_together_are_wrong)
{
	expect_refused(2, "zinf-gpt", "--gpu-param-budget 1G", "need --device gpu");
	expect_refused(2, "zinf-gpt", "--device gpu --fp16", "give --bf16 instead of --fp16");
	expect_refused(2, "zinf-gpt", "--device cpu --cublas x", "need --device gpu");
}

/* With --reference they are refused for its sake. */
Test(gpt_gpu, activations_stay_on_the_gpu)
{
	gpt_run(2, "zinf-gpt", "--device gpu --activations nvme");
	system_expect_text(words, "give --activations keep or recompute");
}

Test(gpt_gpu, without_a_driver_it_is_an_error)
{
	expect_refused(1, FAKE_GPT, "--device gpu --gpu-driver /nonexistent/libcuda.so.1",
	               "--device gpu needs the NVIDIA driver");
}

Test(gpt_gpu, without_cublas_it_is_an_error)
{
	cr_assert_eq(setenv(FAKE_GPU_ENV, "", 1), 0);
	expect_refused(1, FAKE_GPT, ON_GPU "--cublas /nonexistent/libcublas.so",
	               "--device gpu needs cuBLAS");
}

Test(gpt_gpu, a_gpu_that_is_not_there_is_named)
{
	cr_assert_eq(setenv(FAKE_GPU_ENV, "gpus=1", 1), 0);
	expect_refused(
		1, FAKE_GPT, ON_GPU "--device GPU-12345678-0000-0000-0000-000000000000",
		"this process sees no such GPU among 1, of which the first is " FAKE_GPU_UUID_0);
}

/* A build with nvcc has them, and looks for the driver first. */
Test(gpt_gpu, a_program_without_kernels_or_driver_says_so)
{
	gpt_run(1, "zinf-gpt", TINY "--device gpu --gpu-driver /nonexistent/libcuda.so.1");
	cr_expect(strstr(words, "this build of zinf-gpt has no kernels") ||
	                  strstr(words, "--device gpu needs the NVIDIA driver"),
	          "%s", words);
}

Test(gpt_gpu, a_gpu_that_fails_amid_a_step_ends_the_run)
{
	cr_assert_eq(setenv(FAKE_GPU_ENV, "fail=kernel:40:700", 1), 0);
	expect_refused(1, FAKE_GPT, ON_GPU, "failed with code 700 (CUDA_ERROR_ILLEGAL_ADDRESS");
}
