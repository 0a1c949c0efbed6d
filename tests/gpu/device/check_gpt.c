/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-gpt --device gpu over zinfd, f32 and bf16, with memory for all units and for three: its loss
 * of each step beside that of the CPU, in the same run. A library of NVIDIA adds in an order of its
 * own, so the losses are equal within a limit.
 */
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "tests/gpu/device/check.h"
#include "tests/gpu/device/library.h"

#define STEPS_REAL  200u
#define STEPS_FAKE  3u
#define STEPS_MAX   2000u
#define LIMIT_F32   1e-4
#define LIMIT_BF16  1e-2
#define WORDS_BYTES 4096u
/* Each unit of these models has at most 2 MiB, the least chunk. */
#define MODEL_REAL  "--layers 6 --heads 6 --d-model 192 --seq-len 128 --batch-size 8"
#define MODEL_FAKE  "--layers 3 --heads 2 --d-model 16 --seq-len 20 --batch-size 1"
#define THREE_UNITS "--gpu-param-budget 6M"

/* What one run of zinf-gpt printed. */
struct losses {
	double values[STEPS_MAX]; /* (count,) by step, from 1 on; NaN: none was printed */
	uint32_t count;
	char words[WORDS_BYTES]; /* all that is no loss, cut */
	int code;                /* exit code; -1: it did not run, or a signal ended it */
};

struct gpt {
	struct check *check;
	char program[PATH_MAX];
	char device[3 * PATH_MAX]; /* flags of a run on the GPU */
	uint32_t steps;
	struct losses cpu, gpu;
};

/* ---- running ---- */

static void take_line(struct losses *losses, const char *line)
{
	const char *loss = strstr(line, "\"loss\":");
	size_t used_bytes = strlen(losses->words);
	unsigned long step;

	if (loss && sscanf(line, "{\"step\":%lu", &step) == 1 && step >= 1 && step <= STEPS_MAX) {
		losses->values[step - 1] = strtod(loss + strlen("\"loss\":"), NULL);
		losses->count = ZI_MAX(losses->count, (uint32_t)step);
	} else {
		(void)snprintf(losses->words + used_bytes, sizeof(losses->words) - used_bytes, "%s",
		               line);
	}
}

/* @job: its name. @flags: beside those of the model. */
static void run(const struct gpt *gpt, const char *job, const char *flags,
                struct losses *ret_losses)
{
	const struct trial *trial = gpt->check->trial;
	struct losses *losses = ret_losses;
	char command[8 * PATH_MAX], line[4096];
	FILE *pipe;
	int status;

	*losses = (struct losses){ .code = -1 };
	for (uint32_t i = 0; i < STEPS_MAX; i++)
		losses->values[i] = NAN;
	(void)snprintf(command, sizeof(command),
	               "ZINF_SOCKET='%s' '%s' %s --steps %u --job %s --delete-job --json "
	               "--ranks 1 %s%s%s %s 2>&1",
	               gpt->check->harness.socket_path, gpt->program,
	               trial->is_fake ? MODEL_FAKE : MODEL_REAL, gpt->steps, job,
	               trial->options.text ? "--data '" : "",
	               trial->options.text ? trial->options.text : "",
	               trial->options.text ? "'" : "", flags);
	(void)fflush(NULL);
	pipe = popen(command, "re");
	while (pipe && fgets(line, sizeof(line), pipe))
		take_line(losses, line);
	status = pipe ? pclose(pipe) : -1;
	if (pipe && WIFEXITED(status))
		losses->code = WEXITSTATUS(status);
}

/* The largest relative difference of any step. Negative: steps are missing. */
static double distance(const struct gpt *gpt)
{
	double largest = 0;

	for (uint32_t i = 0; i < gpt->steps; i++) {
		double difference =
			fabs(gpt->gpu.values[i] - gpt->cpu.values[i]) / fabs(gpt->cpu.values[i]);

		if (!isfinite(difference))
			return -1;
		largest = fmax(largest, difference);
	}
	return largest;
}

/* What a library of NVIDIA or nvcc is missing for; NULL: nothing. */
static const char *find_lack(const struct losses *losses)
{
	if (strstr(losses->words, "has no kernels"))
		return "zinf-gpt was built without nvcc, so it has no kernels";
	if (strstr(losses->words, "needs cuBLAS"))
		return "cuBLAS was not found (--cublas PATH)";
	return NULL;
}

/* ---- rows ---- */

static void compare(struct gpt *gpt, bool is_bf16, bool is_small)
{
	struct trial *trial = gpt->check->trial;
	const double limit = is_bf16 ? LIMIT_BF16 : LIMIT_F32;
	char what[TRIAL_WHAT_BYTES], must[TRIAL_MUST_BYTES], flags[4 * PATH_MAX];
	char job[32];
	const char *lack;
	double difference;

	(void)snprintf(what, sizeof(what),
	               "losses against the CPU run, %u steps, %s, memory for %s units", gpt->steps,
	               is_bf16 ? "bf16" : "f32", is_small ? "three" : "all");
	(void)snprintf(must, sizeof(must), "%.0e relative", limit);
	(void)snprintf(flags, sizeof(flags), "%s %s %s", is_bf16 ? "--bf16" : "",
	               is_small ? THREE_UNITS : "", gpt->device);
	(void)snprintf(job, sizeof(job), "losses_%s_%s", is_bf16 ? "bf16" : "f32",
	               is_small ? "three" : "all");
	run(gpt, job, flags, &gpt->gpu);
	lack = find_lack(&gpt->gpu);
	difference = distance(gpt);
	if (lack)
		trial_row(trial, TRIAL_NOT_RUN, what, must, "%s", lack);
	else if (gpt->gpu.code || difference < 0)
		trial_row(trial, TRIAL_FAILED, what, must,
		          "%u steps, zinf-gpt ended with %d: %.200s", gpt->gpu.count, gpt->gpu.code,
		          gpt->gpu.words);
	else
		trial_row(trial, difference <= limit ? TRIAL_PASSED : TRIAL_FAILED, what, must,
		          "%.2g, last losses %.6f and %.6f", difference,
		          gpt->gpu.values[gpt->steps - 1], gpt->cpu.values[gpt->steps - 1]);
}

static void compare_dtype(struct gpt *gpt, bool is_bf16)
{
	struct trial *trial = gpt->check->trial;

	run(gpt, is_bf16 ? "losses_bf16" : "losses_f32", is_bf16 ? "--bf16" : "", &gpt->cpu);
	if (gpt->cpu.code || gpt->cpu.count != gpt->steps) {
		trial_row(trial, TRIAL_FAILED, "losses of the CPU run", "all steps",
		          "%u of %u steps, zinf-gpt ended with %d: %.200s", gpt->cpu.count,
		          gpt->steps, gpt->cpu.code, gpt->cpu.words);
		return;
	}
	compare(gpt, is_bf16, false);
	compare(gpt, is_bf16, true);
}

/* Beside this program, unless it was given. */
static void find_program(const struct trial *trial, char *ret_path, size_t capacity)
{
	char self[PATH_MAX] = "";
	ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (trial->options.gpt)
		(void)snprintf(ret_path, capacity, "%s", trial->options.gpt);
	else
		(void)snprintf(ret_path, capacity, "%.*s/zinf-gpt", PATH_MAX - 20,
		               bytes > 0 ? dirname(self) : ".");
}

void check_gpt(struct check *check)
{
	struct trial *trial = check->trial;
	const uint64_t steps = trial->options.steps ? trial->options.steps
	                       : trial->is_fake     ? STEPS_FAKE
	                                            : STEPS_REAL;
	_cleanup_(zi_freep) struct gpt *gpt = calloc(1, sizeof(*gpt)); /* Large. */
	char cublas[PATH_MAX] = "";

	if (!gpt) {
		trial_row(trial, TRIAL_FAILED, "losses against the CPU run", "", "no memory");
		return;
	}
	gpt->check = check;
	gpt->steps = (uint32_t)ZI_MIN(steps, (uint64_t)STEPS_MAX);
	find_program(trial, gpt->program, sizeof(gpt->program));
	library_find(trial->options.cublas, library_cublas_names, cublas, sizeof(cublas));
	(void)snprintf(gpt->device, sizeof(gpt->device), "--device %s%s%s%s%s%s%s",
	               trial->device.uuid, trial->options.driver ? " --gpu-driver '" : "",
	               trial->options.driver ? trial->options.driver : "",
	               trial->options.driver ? "'" : "", cublas[0] ? " --cublas '" : "", cublas,
	               cublas[0] ? "'" : "");
	compare_dtype(gpt, false);
	compare_dtype(gpt, true);
}
