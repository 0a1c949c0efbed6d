/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a client receives memory of a GPU from a real zinfd, which charges it and shows it; the end
 * of the client gives all of it back, and the end of a zinf-gpu costs no job anything. Method:
 * zinfd, zinf-gpu and the fake driver; processes that speak the messages by hand and are killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "tests/system/far_node.h"
#include "tests/system/gpu.h"

TestSuite(gpu, .timeout = 120);

static char words[16384];

/* ---- a client ---- */

struct holder {
	const char *job, *uuid;
	uint32_t count;       /* of chunks */
	uint32_t passed;      /* that it receives, in messages of up to 8 */
	int told_fd, stop_fd; /* its ends: it has them; it detaches */
};

/* The next ones: they stay open while this process lives. Return: how many. */
static uint32_t receive_chunks(uint32_t first)
{
	struct zi_gpu_chunks message = { .first = first };
	const struct zi_gpu_chunks *reply = (const void *)raw.reply.bytes;
	int fds[ZI_MESSAGE_FDS_MAX];

	if (send_message(&message, ZI_MESSAGE_GPU_CHUNKS, sizeof(message)) ||
	    raw_receive_fds(&raw, fds) != ZI_MESSAGE_GPU_CHUNKS || reply->first != first)
		return 0;
	for (uint32_t i = 0; i < reply->count; i++)
		if (fds[i] < 0)
			return 0;
	return reply->count;
}

static int hold(void *arg)
{
	const struct holder *holder = arg;
	uint32_t passed = 0, count;
	char byte = 'x';

	if (raw_join(&raw, harness.socket_path, holder->job, 0, 1) ||
	    open_gpu(holder->uuid, CHUNK, holder->count)) {
		fprintf(stderr, "%s\n", raw.reply.error.text.chars);
		return 3;
	}
	while (passed < holder->passed) {
		count = receive_chunks(passed);
		if (!count)
			return 4;
		passed += count;
	}
	if (write(holder->told_fd, &byte, 1) != 1 || read(holder->stop_fd, &byte, 1) != 1)
		return 5;
	if (raw_send_plain(&raw, ZI_MESSAGE_DETACH) || raw_receive(&raw) != ZI_MESSAGE_DONE)
		return 6;
	/* The session is over, and the process is not. */
	return write(holder->told_fd, &byte, 1) != 1 || read(holder->stop_fd, &byte, 1) != 1;
}

/* Return: its pid, when it has its chunks. @ret_stop_fd, @ret_told_fd: the caller's. */
static pid_t start_holder(struct holder *holder, int *ret_stop_fd, int *ret_told_fd)
{
	int stop[2], told[2];
	char byte;
	pid_t pid;

	cr_assert_eq(pipe(stop), 0);
	cr_assert_eq(pipe(told), 0);
	holder->stop_fd = stop[0];
	holder->told_fd = told[1];
	pid = harness_fork(hold, holder);
	(void)close(stop[0]);
	(void)close(told[1]);
	cr_assert_eq(read(told[0], &byte, 1), 1, "the holder did not get its chunks");
	*ret_stop_fd = stop[1];
	*ret_told_fd = told[0];
	return pid;
}

static void kill_holder(pid_t pid)
{
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(harness_wait(pid, 20000), 1000 + SIGKILL);
}

/* ---- what zctl shows ---- */

static uint64_t job_bytes(const char *job)
{
	char command[64];
	json_t *jobs;
	uint64_t bytes;

	(void)snprintf(command, sizeof(command), "jobs %s", job);
	jobs = harness_admin(&harness, command);
	cr_assert(jobs);
	bytes = (uint64_t)json_integer_value(json_object_get(json_array_get(jobs, 0), "gpu_bytes"));
	json_decref(jobs);
	return bytes;
}

/* ---- tests ---- */

Test(gpu, chunks_come_and_go_with_their_process)
{
	struct holder holder = {
		.job = "train", .uuid = FAKE_GPU_UUID_1, .count = 20, .passed = 20
	};
	int stop_fd, told_fd;
	char byte = 'x';
	pid_t pid;

	start("gpus=2,bytes=1G", "reserve = 256M\n");
	pid = start_holder(&holder, &stop_fd, &told_fd);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_1, "capacity_bytes"), 768 * MIB);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_1, "used_bytes"), 20 * CHUNK);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_1, "arenas"), 1);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_0, "used_bytes"), 0);
	cr_expect_eq(job_bytes("train"), 20 * CHUNK);
	SYSTEM_ZCTL(harness.socket_path, words, 0, "tiers");
	system_expect_text(words, "gpu:" FAKE_GPU_UUID_1);
	SYSTEM_ZCTL(harness.socket_path, words, 0, "jobs");
	system_expect_text(words, "held gpu");
	system_expect_text(words, "40 MiB");
	SYSTEM_ZCTL(harness.socket_path, words, 0, "jobs", "train");
	system_expect_text(words, "GPU memory: 40 MiB");
	SYSTEM_ZCTL(harness.socket_path, words, 0, "status");
	system_expect_text(words, "GPUs      2");
	SYSTEM_ZCTL(harness.socket_path, words, 0, "topo");
	system_expect_text(words, FAKE_GPU_UUID_0);
	SYSTEM_ZCTL(harness.socket_path, words, 0, "limits");
	system_expect_text(words, "quota.uid_gpu");
	/* It detaches, and lives on. */
	cr_assert_eq(write(stop_fd, &byte, 1), 1);
	cr_assert_eq(read(told_fd, &byte, 1), 1);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_1, "used_bytes"), 20 * CHUNK);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_1, "lingering_bytes"), 20 * CHUNK);
	kill_holder(pid);
	await_used(FAKE_GPU_UUID_1, 0);
	(void)close(stop_fd);
	(void)close(told_fd);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(gpu, a_client_that_is_killed_gives_back_what_it_did_not_receive_too)
{
	struct holder holder = {
		.job = "train", .uuid = FAKE_GPU_UUID_0, .count = 300, .passed = 8
	};
	int stop_fd, told_fd;

	start("gpus=1,bytes=1G", "reserve = none\n");
	for (int i = 0; i < 3; i++) {
		pid_t pid = start_holder(&holder, &stop_fd, &told_fd);

		cr_expect_eq(tier_figure(FAKE_GPU_UUID_0, "used_bytes"), 300 * CHUNK);
		kill_holder(pid);
		await_used(FAKE_GPU_UUID_0, 0);
		(void)close(stop_fd);
		(void)close(told_fd);
	}
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(gpu, the_end_of_a_worker_disturbs_no_job)
{
	struct holder first = {
		.job = "first", .uuid = FAKE_GPU_UUID_0, .count = 10, .passed = 10
	};
	struct holder second = {
		.job = "second", .uuid = FAKE_GPU_UUID_0, .count = 5, .passed = 5
	};
	struct neighbour neighbour;
	struct trainer_settings settings;
	int stop_fds[2], told_fds[2];
	pid_t pids[2], worker;

	start("gpus=1,bytes=1G", "reserve = none\n");
	settings = ranks_settings(&harness, "neighbour", 1);
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	pids[0] = start_holder(&first, &stop_fds[0], &told_fds[0]);
	worker = far_child_of(harness.pid, "zinf-gpu");
	cr_assert_gt(worker, 0);
	cr_assert_eq(kill(worker, SIGKILL), 0);
	cr_assert(neighbour_steps(&neighbour));
	/* The memory is there while the process lives; another zinf-gpu makes more. */
	pids[1] = start_holder(&second, &stop_fds[1], &told_fds[1]);
	cr_expect_neq(far_child_of(harness.pid, "zinf-gpu"), worker);
	cr_expect_eq(tier_figure(FAKE_GPU_UUID_0, "used_bytes"), 15 * CHUNK);
	kill_holder(pids[0]);
	await_used(FAKE_GPU_UUID_0, 5 * CHUNK);
	kill_holder(pids[1]);
	await_used(FAKE_GPU_UUID_0, 0);
	cr_assert(neighbour_steps(&neighbour));
	cr_assert(neighbour_stop(&neighbour));
	for (int i = 0; i < 2; i++) {
		(void)close(stop_fds[i]);
		(void)close(told_fds[i]);
	}
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(gpu, the_daemon_ends_while_ranks_hold_chunks)
{
	struct holder holder = {
		.job = "train", .uuid = FAKE_GPU_UUID_0, .count = 10, .passed = 8
	};
	int stop_fd, told_fd;
	pid_t pid;

	start("gpus=1,bytes=1G", "reserve = none\n");
	pid = start_holder(&holder, &stop_fd, &told_fd);
	cr_assert_eq(harness_halt(&harness), 0);
	kill_holder(pid);
	(void)close(stop_fd);
	(void)close(told_fd);
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert_eq(harness_stop(&harness), 0);
}

static void send_open(const char *uuid, uint32_t count)
{
	struct zi_gpu_open message = { .chunk_bytes = CHUNK, .param_chunk_count = count };

	(void)snprintf(message.uuid, sizeof(message.uuid), "%s", uuid);
	cr_assert_eq(send_message(&message, ZI_MESSAGE_GPU_OPEN, sizeof(message)), 0);
}

/* Each chunk takes the fake driver a while. */
Test(gpu, a_client_or_the_daemon_may_end_while_chunks_are_made)
{
	start("gpus=1,bytes=1G,delay=cuMemCreate:0:20", "reserve = none\n");
	await_gpus(1);
	cr_assert_eq(raw_join(&raw, harness.socket_path, "train", 0, 1), 0);
	send_open(FAKE_GPU_UUID_0, 40);
	await_used(FAKE_GPU_UUID_0, 40 * CHUNK);
	raw_close(&raw);
	await_used(FAKE_GPU_UUID_0, 0);
	cr_assert_eq(raw_join(&raw, harness.socket_path, "other", 0, 1), 0);
	send_open(FAKE_GPU_UUID_0, 300);
	await_used(FAKE_GPU_UUID_0, 300 * CHUNK);
	cr_expect_eq(harness_halt(&harness), 0);
	cr_expect(raw_is_ended(&raw));
	raw_close(&raw);
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(gpu, what_cannot_be_opened_is_refused_with_figures)
{
	start("gpus=1,bytes=1G", "reserve = 512M\n[quota]\nuid_gpu = 64M\n");
	cr_assert_eq(raw_join(&raw, harness.socket_path, "train", 0, 1), 0);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_1, CHUNK, 1), -ENODEV);
	system_expect_text(raw.reply.error.text.chars, "it has " FAKE_GPU_UUID_0);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK, 257), -ENOSPC);
	system_expect_text(raw.reply.error.text.chars, "512 MiB free of 512 MiB");
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK, 33), -EDQUOT);
	system_expect_text(raw.reply.error.text.chars, "holds 0 B of the 64 MiB");
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK + 1, 1), -EINVAL);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK, 32), 0);
	raw_close(&raw);
	await_used(FAKE_GPU_UUID_0, 0);
	cr_assert_eq(harness_stop(&harness), 0);
	start("", "enable = no\n");
	cr_assert_eq(raw_join(&raw, harness.socket_path, "train", 0, 1), 0);
	cr_expect_eq(open_gpu(FAKE_GPU_UUID_0, CHUNK, 1), -ENODEV);
	system_expect_text(raw.reply.error.text.chars, "zinfd has no GPU: gpu.enable is no");
	raw_close(&raw);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* What a rank would take is compared with the room of the daemon's GPU. */
Test(gpu, an_estimate_knows_the_room_of_the_daemon)
{
	start("gpus=1,bytes=1G", "reserve = 960M\n");
	await_gpus(1);
	SYSTEM_ZCTL(harness.socket_path, words, 0, "estimate", "8M", "--units", "8", "--dtype",
	            "f32", "--device", "gpu");
	system_expect_text(words, FAKE_GPU_UUID_0 " has 64 MiB free");
	SYSTEM_ZCTL(harness.socket_path, words, 1, "estimate", "64M", "--units", "2", "--dtype",
	            "f32", "--device", FAKE_GPU_UUID_0);
	system_expect_text(words, FAKE_GPU_UUID_0 " has room for 64 MiB of this rank");
	SYSTEM_ZCTL(harness.socket_path, words, 1, "estimate", "8M", "--device", FAKE_GPU_UUID_1);
	system_expect_text(words, "zinfd does not have " FAKE_GPU_UUID_1);
	SYSTEM_ZCTL(harness.socket_path, words, 0, "--json", "estimate", "8M", "--device", "gpu",
	            "--gpu-memory", "1G");
	system_expect_text(words, "\"is_enough\": true");
	cr_assert_eq(harness_stop(&harness), 0);
}
