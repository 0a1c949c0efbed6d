/* SPDX-License-Identifier: Apache-2.0 */
/* `check`: what needs a real GPU to be tested. The fake driver runs it in `make check`. */
#include "tests/gpu/device/check.h"

#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "tests/gpu/device/commands.h"
#include "tests/gpu/device/daemon.h"
#include "tests/gpu/device/facts.h"
#include "tests/gpu/device/rank_peer.h"

/* Steps of the ranks whose parameters are compared. */
#define BITS_STEPS 4u

static void check_fact(struct trial *trial, const char *what, fact_fn fact)
{
	struct zi_text found = { "" };
	bool is_right = fact(trial, &found);

	trial_row(trial, is_right ? TRIAL_PASSED : TRIAL_FAILED, what, "yes", "%s", found.chars);
}

uint64_t check_charged_bytes(struct check *check)
{
	json_t *tiers = harness_admin(&check->harness, "tiers"), *tier;
	uint64_t bytes = UINT64_MAX;
	size_t index;

	/* clang-format off: it does not know the loop */
	json_array_foreach(tiers, index, tier)
	{
		if (strstr(json_string_value(json_object_get(tier, "name")),
		           check->trial->device.uuid))
			bytes = (uint64_t)json_integer_value(json_object_get(tier, "used_bytes"));
	}
	/* clang-format on */
	json_decref(tiers);
	return bytes;
}

/* ---- bits ---- */

/* One rank alone, in a process. Return: its job ended well; else after a row. */
static bool train(struct check *check, const struct rank_settings *settings, const char *what,
                  struct rank_news *ret_done, uint64_t *ret_wrong_count)
{
	struct rank_news news = { .text = { "the process ended" } };
	struct peer peer;
	int r = rank_peer_start(&peer, settings, NULL);

	if (!r) {
		r = rank_peer_await(&peer, RANK_READY, &news);
		*ret_wrong_count = news.wrong_count;
		if (r)
			(void)peer_kill(&peer); /* The first error says more. */
	}
	if (!r)
		r = rank_peer_await_end(&peer, &news);
	if (r)
		trial_row(check->trial, TRIAL_FAILED, what, "0 wrong", "%s (%d): %s",
		          settings->has_gpu ? "on the GPU" : "on the CPU", r, news.text.chars);
	*ret_done = news;
	return !r;
}

/* @is_small: memory for three units. */
static void compare(struct check *check, bool is_bf16, bool is_small)
{
	struct rank_settings cpu =
		rank_settings_of(check->trial, check->harness.socket_path, "cpu");
	struct rank_settings gpu;
	struct rank_news cpu_done, gpu_done;
	uint64_t cpu_wrong_count = 0, gpu_wrong_count = 0;
	char what[TRIAL_WHAT_BYTES];

	(void)snprintf(what, sizeof(what), "units up and down, %s, memory for %s units: bits",
	               is_bf16 ? "bf16" : "f32", is_small ? "three" : "all");
	cpu.is_bf16 = is_bf16;
	cpu.last_step = BITS_STEPS;
	cpu.has_gpu = false;
	gpu = cpu;
	gpu.has_gpu = true;
	if (is_small)
		gpu.param_budget_bytes = rank_three_units_bytes(&gpu);
	if (!train(check, &cpu, what, &cpu_done, &cpu_wrong_count))
		return;
	(void)snprintf(gpu.job, sizeof(gpu.job), "gpu_%s_%s", is_bf16 ? "bf16" : "f32",
	               is_small ? "three" : "all");
	if (!train(check, &gpu, what, &gpu_done, &gpu_wrong_count))
		return;
	if (cpu_wrong_count || gpu_wrong_count || cpu_done.hash != gpu_done.hash)
		trial_row(check->trial, TRIAL_FAILED, what, "0 wrong",
		          "%llu elements on the GPU and %llu on the CPU are wrong; parameters "
		          "after %u steps %s",
		          (unsigned long long)gpu_wrong_count, (unsigned long long)cpu_wrong_count,
		          BITS_STEPS, cpu_done.hash == gpu_done.hash ? "are equal" : "differ");
	else
		trial_row(check->trial, TRIAL_PASSED, what, "0 wrong",
		          "%u units of %s as they were written, and the CPU's parameters after %u "
		          "steps",
		          gpu.unit_count, zi_format_bytes(rank_unit_bytes(&gpu)).chars, BITS_STEPS);
}

void check_bits(struct check *check)
{
	for (int i = 0; i < 4; i++)
		compare(check, i / 2, i % 2);
}

/* ---- the command ---- */

static void check_over_daemon(struct trial *trial)
{
	struct check check = { .trial = trial };
	int r = daemon_start(trial, trial->is_fake ? "256M" : "4G", trial->is_fake ? "64M" : "1G",
	                     &check.harness);

	if (r) {
		trial_row(trial, TRIAL_FAILED, "a private zinfd", "starts", "%s", strerror(-r));
		return;
	}
	check_bits(&check);
	check_gpt(&check);
	check_ends(&check);
	r = harness_stop(&check.harness);
	trial_row(trial, r ? TRIAL_FAILED : TRIAL_PASSED, "a private zinfd",
	          "ends with 0, and leaves no file", "%s", r ? "see above" : "it did");
}

void check_run(struct trial *trial)
{
	trial_row(trial, TRIAL_PASSED, "the driver opens, and the GPU has what zinf needs", "yes",
	          "CUDA %d.%d, %s, read-only registration %d", trial->driver.version / 1000,
	          trial->driver.version % 1000 / 10, zi_format_bytes(trial->device.bytes).chars,
	          trial->device.has_read_only_register);
	check_fact(trial, "a process without a context makes and exports chunks",
	           fact_chunks_are_shared);
	check_fact(trial, "read-only registration", fact_read_only_memory_registers);
	check_fact(trial, "chunks live on after their maker was killed",
	           fact_chunks_outlive_their_maker);
	check_fact(trial, "memory that is made anew is zero", fact_new_chunks_are_zero);
	check_over_daemon(trial);
}
