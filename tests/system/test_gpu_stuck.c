/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a zinf-gpu that hangs in its driver and does not end when it is killed costs its GPU and
 * nothing else: the rank that asked is told, zctl names the process, what it holds stays charged,
 * other GPUs and jobs go on, and zinfd stops within a limit. GPUs that cannot be opened are named,
 * and the others serve. Method: zinfd, zinf-gpu and the fake driver; the test holds the end of
 * zinf-gpu back (tests/harness/stuck.h).
 */
#include <signal.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "tests/harness/stuck.h"
#include "tests/system/far_node.h"
#include "tests/system/gpu.h"

TestSuite(gpu_stuck, .timeout = 120);

static char words[16384];

static void expect_doctor(const char *says)
{
	/* Its exit code is about this machine. */
	(void)harness_zctl(harness.socket_path, (const char *const[]){ "doctor", NULL }, words,
	                   sizeof(words));
	system_expect_text(words, says);
}

static void skip_where_impossible(void)
{
	const char *why;

	if (!stuck_is_possible(&why))
		cr_skip_test("no process can be made that lives on after SIGKILL: %s", why);
}

/* Of the GPU that was opened last, held: it hangs at its third chunk. Return: its pid. */
static pid_t hold_worker(void)
{
	pid_t worker = far_child_of(harness.pid, "zinf-gpu");
	const char *why;

	cr_assert_gt(worker, 0);
	why = stuck_hold(worker);
	cr_assert_null(why, "%s", why);
	return worker;
}

static void await_end(pid_t pid)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));

	while (!kill(pid, 0))
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "process %d lives", (int)pid);
}

Test(gpu_stuck, one_that_does_not_end_costs_its_gpu_only)
{
	struct neighbour neighbour;
	struct trainer_settings settings;
	char name[64];
	pid_t worker;

	skip_where_impossible();
	start("gpus=2,bytes=1G,hang=cuMemCreate:3", "reserve = none\ndeadline_s = 1\n");
	settings = ranks_settings(&harness, "neighbour", 1);
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	await_gpus(2);
	worker = hold_worker();
	cr_assert_eq(raw_join(&raw, harness.socket_path, "train", 0, 1), 0);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_1, CHUNK, 4), -ETIMEDOUT);
	system_expect_text(raw.reply.error.text.chars, "had no answer past its deadline");
	cr_assert(stuck_await(worker));
	/* One that comes waits for the end, until zinf-gpu is stuck. */
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_1, CHUNK, 2), -EAGAIN);
	system_expect_text(raw.reply.error.text.chars, "it hangs in the driver");
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_1, "used_bytes"), 4 * CHUNK);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_1, "ending_pid"), (uint64_t)worker);
	(void)snprintf(name, sizeof(name), "zinf-gpu (pid %d) ", (int)worker);
	SYSTEM_ZCTL(harness.socket_path, words, 0, "tiers");
	system_expect_text(words, name);
	system_expect_text(words, "ago has not ended");
	expect_doctor(name);
	expect_doctor("has not ended: it hangs in the driver");
	/* All else goes on. */
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK, 2), 0, "%s", raw.reply.error.text.chars);
	cr_assert(neighbour_steps(&neighbour));
	stuck_release(worker);
	await_used(FAKE_GPU_UUID_1, 0);
	raw_close(&raw);
	cr_assert_eq(raw_join(&raw, harness.socket_path, "again", 0, 1), 0);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_1, CHUNK, 2), 0, "%s", raw.reply.error.text.chars);
	raw_close(&raw);
	await_used(FAKE_GPU_UUID_1, 0);
	cr_assert(neighbour_steps(&neighbour));
	cr_assert(neighbour_stop(&neighbour));
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(gpu_stuck, zinfd_stops_without_one_that_does_not_end)
{
	static char log[65536];
	pid_t worker;

	skip_where_impossible();
	start("gpus=1,bytes=1G,hang=cuMemCreate:3", "reserve = none\ndeadline_s = 1\n");
	await_gpus(1);
	worker = hold_worker();
	cr_assert_eq(raw_join(&raw, harness.socket_path, "train", 0, 1), 0);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK, 4), -ETIMEDOUT);
	cr_assert(stuck_await(worker));
	raw_close(&raw);
	cr_assert_eq(harness_halt(&harness), 0);
	harness_log(&harness, log, sizeof(log));
	system_expect_text(log, "has not ended: it hangs in the driver. zinfd stops without it");
	stuck_release(worker);
	await_end(worker);
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(gpu_stuck, a_gpu_that_cannot_be_opened_is_named_and_the_others_serve)
{
	start("gpus=2,bytes=1G,broken=0:46", "reserve = none\n");
	cr_assert_eq(raw_join(&raw, harness.socket_path, "train", 0, 1), 0);
	/* The daemon may still be opening it. */
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_1, CHUNK, 2), 0, "%s", raw.reply.error.text.chars);
	raw_close(&raw);
	cr_assert_eq(raw_join(&raw, harness.socket_path, "other", 0, 1), 0);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK, 2), -ENODEV);
	system_expect_text(raw.reply.error.text.chars, "it has " FAKE_GPU_UUID_1);
	system_expect_text(raw.reply.error.text.chars, "describing GPU 0");
	raw_close(&raw);
	expect_doctor("GPU 0: zinf-gpu of GPU 0: describing GPU 0");
	expect_doctor("46");
	await_used(FAKE_GPU_UUID_1, 0);
	cr_assert_eq(harness_stop(&harness), 0);
}
