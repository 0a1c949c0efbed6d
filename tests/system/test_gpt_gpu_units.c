/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: `zinf-gpt --device gpu` over zinfd has the losses and parameters of the CPU's run, bit by
 * bit, with units in GPU memory of any budget; what trained on a GPU continues on the CPU, and
 * back.
 * Method: zinfd with a zinf-gpu for each fake GPU; ranks as processes on the same fake.
 */
#include <limits.h>
#include <stdlib.h>

#include "tests/gpu/fake_gpu.h"
#include "tests/system/gpt.h"

#define FAKE_GPT "../tests/gpu/bin/zinf-gpt" /* from bin */
#define TINY                                                                                  \
	"--layers 3 --heads 2 --d-model 32 --seq-len 70 --batch-size 2 --warmup 1 --steps 3 " \
	"--lr 1e-3 --min-lr 1e-3 --staging 4M --json "
#define ON_GPU                                                           \
	"--device gpu --gpu-driver $(dirname $program)/../libcuda.so.1 " \
	"--cublas $(dirname $program)/../libcublas.so.12 "
/* Of all ranks, whose lines come in any order. */
#define LOSSES(name) "| grep -o '\"loss\":[^,}]*' | sort >" name " && test -s " name

static void start_gpus(void)
{
	static char section[PATH_MAX + 60];
	char path[FAKE_GPU_PATH_BYTES], whole[PATH_MAX];

	/* Of the daemon's workers and of the ranks. A test that wants other words sets them anew
	 * for the ranks. */
	cr_assert_eq(setenv(FAKE_GPU_ENV, "gpus=2", 1), 0);
	cr_assert(realpath(fake_gpu_path(path, sizeof(path), "libcuda.so.1"), whole));
	(void)snprintf(section, sizeof(section),
	               "[gpu]\nenable = yes\nreserve = 64M\ndriver = %s\n", whole);
	folder_make(&folder, "gpu");
	system_start(&harness, &(struct harness_options){ .nvme_size = "128M", .extra = section });
	cr_assert_eq(setenv("ZINF_SOCKET", harness.socket_path, 1), 0);
}

TestSuite(gpt_gpu_units, .init = start_gpus, .fini = files_stop, .timeout = 120);

/* A build whose libzinf has no units in GPU memory says so, and there is nothing to test. */
static void skip_without_units(void)
{
	char command[700], answer[1024] = "", path[300];
	FILE *pipe;

	(void)snprintf(command, sizeof(command),
	               "program=$(realpath %s); cd %s; $program " TINY ON_GPU
	               "--job probe --delete-job 2>&1",
	               harness_program(FAKE_GPT, path, sizeof(path)), folder.path);
	pipe = popen(command, "r");
	cr_assert(pipe);
	(void)fread(answer, 1, sizeof(answer) - 1, pipe);
	(void)pclose(pipe); /* The words count. */
	if (strstr(answer, "this libzinf has no units in GPU memory"))
		gpt_skip("libzinf has no units in GPU memory yet");
}

static void expect_same(const char *words_of_ranks, const char *flags, const char *gpu_flags)
{
	char line[900];

	skip_without_units();
	(void)snprintf(line, sizeof(line), TINY "--job on_cpu %s --dump cpu " LOSSES("c"), flags);
	gpt_run(0, "zinf-gpt", line);
	cr_assert_eq(setenv(FAKE_GPU_ENV, words_of_ranks, 1), 0);
	(void)snprintf(line, sizeof(line),
	               TINY "--job on_gpu %s " ON_GPU "%s --dump gpu " LOSSES("g"), flags,
	               gpu_flags);
	gpt_run(0, FAKE_GPT, line);
	gpt_expect_equal_dumps("c", "g");
	gpt_expect_equal_dumps("cpu", "gpu");
}

Test(gpt_gpu_units, one_rank_has_the_bits_of_the_cpu)
{
	expect_same("gpus=2,order=eager", "", "");
}

Test(gpt_gpu_units, two_ranks_have_the_bits_of_the_cpu)
{
	expect_same("gpus=2,order=late", "--ranks 2 --strategy zero3 --grad-accum 2", "");
}

Test(gpt_gpu_units, parameters_on_nvme_have_the_bits_of_the_cpu)
{
	expect_same("gpus=2,order=shuffled:5",
	            "--ranks 2 --offload-param nvme --param-budget 8M "
	            "--grad-reduction per_micro_batch --grad-accum 2",
	            "");
}

/* Three units of at most 2 MiB: the others share their chunks. */
Test(gpt_gpu_units, an_arena_smaller_than_the_model_has_the_bits_of_the_cpu)
{
	expect_same("gpus=2,order=shuffled:9", "--activations recompute", "--gpu-param-budget 6M");
}

Test(gpt_gpu_units, ranks_as_threads_have_the_bits_of_the_cpu)
{
	expect_same("gpus=2,order=shuffled:6", "--ranks 2 --strategy dp", "");
}

Test(gpt_gpu_units, micro_batches_under_no_sync_have_the_bits_of_the_cpu)
{
	expect_same("gpus=2,order=late", "--no-sync --grad-accum 3", "");
}

/* Where the CPU multiplies in bf16, the fake cuBLAS does it as well. */
Test(gpt_gpu_units, bf16_has_the_bits_of_a_cpu_with_bf16)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512bf16")) {
		expect_same("gpus=2,order=late", "--bf16 --ranks 2 --grad-accum 2", "");
		return;
	}
#endif
	gpt_skip("this CPU has no AVX512-BF16");
}

Test(gpt_gpu_units, a_run_continues_on_the_other_device)
{
	skip_without_units();
	gpt_run(0, "zinf-gpt", TINY "--job whole --steps 4 --dump whole");
	gpt_run(0, FAKE_GPT, TINY ON_GPU "--job parts --steps 2 --lr-total 4");
	gpt_run(0, "zinf-gpt", TINY "--job parts --steps 3 --lr-total 4 --resume latest");
	gpt_run(0, FAKE_GPT,
	        TINY ON_GPU "--job parts --steps 4 --lr-total 4 --resume latest --dump parts");
	gpt_expect_equal_dumps("whole", "parts");
}

Test(gpt_gpu_units, text_is_measured_and_made_on_the_gpu)
{
	skip_without_units();
	gpt_run(0, "zinf-gpt", TINY "--job text");
	gpt_run(0, "zinf-gpt", TINY "--job text --generate 20 --seed 3 >cpu");
	gpt_run(0, FAKE_GPT, TINY ON_GPU "--job text --generate 20 --seed 3 >gpu");
	gpt_expect_equal_dumps("cpu", "gpu");
	gpt_run(0, "zinf-gpt", TINY "--job text --eval /etc/services >cpu");
	gpt_run(0, FAKE_GPT, TINY ON_GPU "--job text --eval /etc/services >gpu");
	gpt_expect_equal_dumps("cpu", "gpu");
}

/* The GPU is the process's, and not the daemon's. */
Test(gpt_gpu_units, a_gpu_that_the_daemon_does_not_have_is_an_error)
{
	skip_without_units();
	cr_assert_eq(setenv(FAKE_GPU_ENV, "gpus=4", 1), 0);
	gpt_run(1, FAKE_GPT,
	        TINY ON_GPU "--job absent --device GPU-fa4e0000-0000-0000-0000-000000000003");
	system_expect_text(words, "GPU-fa4e0000-0000-0000-0000-000000000003");
}
