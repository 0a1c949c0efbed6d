/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: however a zinf-gpu ends (killed, silent, stuck), its requests fail with the GPU and the
 * reason, the next request starts another one, and the number of starts has a limit; requests are
 * served in their order, and refused with words. Method: a fake zinf-gpu dies, or is silent, at a
 * chosen moment.
 */
#include "tests/unit/worker/gpu_double.h"

#define SILENCE_NS (20 * ZI_NS_PER_MS) /* a limit that passes: the double never answers */
#define HOUR_NS    (3600 * ZI_NS_PER_S)

/* ---- deaths ---- */

static void die(int number)
{
	(void)raise(number);
	_exit(99);
}

/* Killed when it has sent one of two batches. */
static void play_death(int fd)
{
	union gpu_message message, chunks;

	gpu_double_greet(fd);
	gpu_double_await(fd, GPU_CREATE, &message);
	chunks = gpu_double_chunks(message.header.cookie, 0, GPU_FDS_MAX);
	gpu_double_send(fd, &chunks, sizeof(chunks.chunks), GPU_FDS_MAX);
	gpu_double_await(fd, GPU_TAKEN, &message);
	die(SIGKILL);
}

Test(gpu_end, a_death_amid_create_fails_it_with_the_gpu_and_the_signal)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_death;
	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, 16, GPU_TEST_CHUNK), -EIO);
	gpu_test_expect_text(test.request.text, "zinf-gpu of " GPU_DOUBLE_UUID " (pid ");
	gpu_test_expect_text(test.request.text, "was killed by signal 9 (Killed)");
	cr_expect_eq(test.ended_error, -EIO);
	cr_expect_str_eq(test.ended.chars, test.request.text.chars);
	cr_expect_eq(gpu_worker_pid(test.worker), 0);
	for (uint32_t i = 0; i < GPU_FDS_MAX; i++)
		cr_expect_eq(test.chunks[i].fd, -1);
	gpu_test_deinit(&test);
}

/* Makes chunks and releases them, as it is asked. */
static void play_sound(int fd)
{
	union gpu_message message;
	uint64_t last_id = 0;
	uint32_t held = 0;

	gpu_double_greet(fd);
	for (;;) {
		union gpu_message chunks;

		gpu_double_await(fd, GPU_CREATE, &message);
		gpu_double_check(message.create.count <= GPU_FDS_MAX);
		held += message.create.count;
		chunks = gpu_double_chunks(message.header.cookie, 0, message.create.count);
		for (uint32_t i = 0; i < message.create.count; i++)
			chunks.chunks.ids[i] = ++last_id;
		gpu_double_send(fd, &chunks, sizeof(chunks.chunks), message.create.count);
		gpu_double_await(fd, GPU_TAKEN, &message);
		gpu_double_end(fd, message.header.cookie, 0, held);
	}
}

Test(gpu_end, the_next_request_starts_another_one_and_old_chunks_are_gone)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };
	static const struct zi_text reason = { "the test ends it" };
	pid_t first;

	gpu_double_play = play_sound;
	gpu_test_init(&test);
	cr_assert_eq(gpu_test_create(&test, 2, GPU_TEST_CHUNK), 0);
	first = gpu_worker_pid(test.worker);
	gpu_worker_kill(test.worker, &reason);
	cr_expect_eq(test.ended_error, -EIO);
	cr_expect_str_eq(test.ended.chars, "the test ends it");
	gpu_test_await(&test, GPU_WORKER_DOWN);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	test.request.count = 2;
	cr_expect_eq(gpu_worker_release(test.worker, &test.request), GPU_WORKER_E_GONE);
	gpu_test_close(&test, 2);
	cr_assert_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), 0);
	cr_expect_neq(gpu_worker_pid(test.worker), first);
	cr_expect_eq(test.chunks[0].life, 2);
	cr_expect_eq(test.chunks[0].id, 1);
	gpu_test_close(&test, 1);
	test.chunks[0].life = 1;
	test.request.count = 1;
	cr_expect_eq(gpu_worker_release(test.worker, &test.request), GPU_WORKER_E_GONE);
	gpu_test_deinit(&test);
}

static void play_exit(int fd)
{
	(void)fd;
	_exit(3);
}

Test(gpu_end, starts_have_a_limit_that_names_the_last_end)
{
	struct gpu_test test = {
		.options = { .spawn = gpu_double_spawn, .starts_max = 2, .starts_ns = HOUR_NS }
	};

	gpu_double_play = play_exit;
	gpu_test_init(&test);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -EIO);
		gpu_test_expect_text(test.request.text, "ended with exit code 3");
	}
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -EAGAIN);
	gpu_test_expect_text(test.request.text, "started 2 times within 3600 s");
	gpu_test_expect_text(test.request.text, "exit code 3");
	cr_expect_eq(test.ended_count, 2);
	gpu_test_deinit(&test);
}

Test(gpu_end, starts_are_allowed_again_when_their_time_has_passed)
{
	struct gpu_test test = {
		.options = { .spawn = gpu_double_spawn, .starts_max = 1, .starts_ns = 1 }
	};

	gpu_double_play = play_exit;
	gpu_test_init(&test);
	for (uint32_t i = 0; i < 10; i++)
		cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -EIO);
	cr_expect_eq(test.ended_count, 10);
	gpu_test_deinit(&test);
}

Test(gpu_end, a_program_that_is_not_there_is_named)
{
	struct gpu_test test = { .options = { .program = "/nowhere/zinf-gpu" } };

	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -ENOENT);
	gpu_test_expect_text(test.request.text, "/nowhere/zinf-gpu");
	gpu_test_deinit(&test);
}

/* ---- silence ---- */

static void play_silence(int fd)
{
	(void)fd;
}

static void play_greeted_silence(int fd)
{
	gpu_double_greet(fd);
}

Test(gpu_end, a_driver_that_does_not_open_is_given_up)
{
	struct gpu_test test = { .options = { .spawn = gpu_double_spawn,
		                              .greeting_ns = SILENCE_NS } };

	gpu_double_play = play_silence;
	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -ETIMEDOUT);
	gpu_test_expect_text(test.request.text, "zinf-gpu of GPU 0 (pid ");
	gpu_test_expect_text(test.request.text, "did not answer for 20 ms");
	gpu_test_deinit(&test);
}

Test(gpu_end, an_order_that_is_not_answered_ends_at_its_deadline)
{
	struct gpu_test test = { .options = { .spawn = gpu_double_spawn,
		                              .request_ns = SILENCE_NS } };

	gpu_double_play = play_greeted_silence;
	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -ETIMEDOUT);
	gpu_test_expect_text(test.request.text, GPU_DOUBLE_UUID);
	gpu_test_expect_text(test.request.text, "had no answer past its deadline");
	gpu_test_deinit(&test);
}

Test(gpu_end, a_worker_that_answers_no_ping_is_ended)
{
	struct gpu_test test = {
		.options = { .spawn = gpu_double_spawn, .ping_ns = 1, .pong_ns = SILENCE_NS }
	};

	gpu_double_play = play_greeted_silence;
	gpu_test_init(&test);
	gpu_test_start(&test);
	while (!test.ended_count)
		cr_assert_eq(zi_loop_run(test.loop), 0);
	cr_expect_eq(test.ended_error, -ETIMEDOUT);
	gpu_test_expect_text(test.ended, "did not answer for 20 ms");
	gpu_test_deinit(&test);
}

/* ---- the queue ---- */

struct queue_test {
	struct gpu_test test;
	struct gpu_request requests[GPU_WORKER_REQUESTS_MAX + 1];
	struct gpu_chunk chunks[GPU_WORKER_REQUESTS_MAX + 1];
	uint32_t order[GPU_WORKER_REQUESTS_MAX + 1];
	uint32_t done_count;
	int error; /* that all must have */
};

static struct queue_test queue;

static void queue_done(struct gpu_request *request)
{
	cr_expect_eq(request->error, queue.error, "%d: %s", request->error, request->text.chars);
	queue.order[queue.done_count++] = (uint32_t)(request - queue.requests);
	zi_loop_stop(queue.test.loop);
}

static int queue_create(uint32_t index)
{
	queue.requests[index] = (struct gpu_request){ .done = queue_done,
		                                      .count = 1,
		                                      .chunk_bytes = GPU_TEST_CHUNK,
		                                      .chunks = &queue.chunks[index] };
	return gpu_worker_create(queue.test.worker, &queue.requests[index]);
}

static void queue_init(gpu_double_fn play, int error)
{
	queue = (struct queue_test){ .test.options.spawn = gpu_double_spawn, .error = error };
	gpu_double_play = play;
	gpu_test_init(&queue.test);
	for (uint32_t i = 0; i < GPU_WORKER_REQUESTS_MAX; i++)
		cr_assert_eq(queue_create(i), 0);
}

static void expect_queue_done(void)
{
	cr_expect_eq(queue.done_count, GPU_WORKER_REQUESTS_MAX);
	for (uint32_t i = 0; i < queue.done_count; i++)
		cr_expect_eq(queue.order[i], i);
}

Test(gpu_end, requests_are_served_in_their_order_and_too_many_are_refused)
{
	queue_init(play_sound, 0);
	cr_expect_eq(queue_create(GPU_WORKER_REQUESTS_MAX), -EBUSY);
	gpu_test_expect_text(queue.requests[GPU_WORKER_REQUESTS_MAX].text, "64 requests");
	while (queue.done_count < GPU_WORKER_REQUESTS_MAX)
		cr_assert_eq(zi_loop_run(queue.test.loop), 0);
	expect_queue_done();
	for (uint32_t i = 0; i < GPU_WORKER_REQUESTS_MAX; i++) {
		cr_expect_eq(queue.chunks[i].id, i + 1);
		zi_close(queue.chunks[i].fd);
	}
	gpu_test_deinit(&queue.test);
}

Test(gpu_end, the_end_of_the_daemon_fails_all_requests)
{
	queue_init(play_sound, -ESHUTDOWN);
	queue.test.worker = gpu_worker_free(queue.test.worker);
	expect_queue_done();
	gpu_test_deinit(&queue.test);
}

/* ---- RELEASE ---- */

static uint32_t refused_portion; /* which RELEASE is answered with -EIO; UINT32_MAX: none */

/* 100 chunks are released by a message of 64 and one of 36. */
static void play_releases(int fd)
{
	union gpu_message message;
	uint32_t made = 0;

	gpu_double_greet(fd);
	gpu_double_await(fd, GPU_CREATE, &message);
	while (made < 100) {
		uint32_t count = ZI_MIN(GPU_FDS_MAX, 100 - made);
		union gpu_message chunks = gpu_double_chunks(message.header.cookie, made, count);

		gpu_double_send(fd, &chunks, sizeof(chunks.chunks), count);
		gpu_double_await(fd, GPU_TAKEN, &message);
		made += count;
	}
	gpu_double_end(fd, message.header.cookie, 0, 100);
	for (uint32_t portion = 0; portion < 2; portion++) {
		uint32_t first = portion * GPU_RELEASES_MAX;

		gpu_double_await(fd, GPU_RELEASE, &message);
		gpu_double_check(message.release.count == (portion ? 36 : GPU_RELEASES_MAX));
		for (uint32_t i = 0; i < message.release.count; i++)
			gpu_double_check(message.release.ids[i] == first + i + 1);
		gpu_double_end(fd, message.header.cookie, portion == refused_portion ? -EIO : 0,
		               portion ? 0 : 36);
	}
}

static void expect_released(uint32_t portion, int error)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_releases;
	refused_portion = portion;
	gpu_test_init(&test);
	cr_assert_eq(gpu_test_create(&test, 100, GPU_TEST_CHUNK), 0, "%s", test.request.text.chars);
	gpu_test_close(&test, 100);
	cr_expect_eq(gpu_test_release(&test, 100), error);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	if (error)
		gpu_test_expect_text(test.request.text, "the double says -5");
	gpu_test_deinit(&test);
}

Test(gpu_end, many_chunks_are_released_by_several_messages)
{
	expect_released(UINT32_MAX, 0);
}

Test(gpu_end, the_first_refused_release_is_told_and_the_others_go_on)
{
	expect_released(0, -EIO);
	expect_released(1, -EIO);
}

/* ---- what is refused without zinf-gpu ---- */

Test(gpu_end, counts_that_cannot_be_are_refused)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_sound;
	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, 0, GPU_TEST_CHUNK), -EINVAL);
	cr_expect_eq(gpu_test_create(&test, GPU_CHUNKS_MAX + 1, GPU_TEST_CHUNK), -EINVAL);
	cr_expect_eq(gpu_test_create(&test, 1, 0), -EINVAL);
	gpu_test_expect_text(test.request.text, "1 to 8192 chunks are possible");
	cr_expect_eq(gpu_worker_state(test.worker), GPU_WORKER_DOWN);
	gpu_test_deinit(&test);
}

Test(gpu_end, the_reserve_is_left_alone)
{
	struct gpu_test test = { .options = { .spawn = gpu_double_spawn,
		                              .reserve_bytes =
		                                      (1ull << 30) - 5 * GPU_TEST_CHUNK } };

	gpu_double_play = play_sound;
	gpu_test_init(&test);
	/* Before the GPU is known, and after. */
	cr_expect_eq(gpu_test_create(&test, 6, GPU_TEST_CHUNK), -ENOSPC);
	gpu_test_expect_text(test.request.text, "10 MiB of 1 GiB are left to zinf");
	cr_expect_eq(gpu_test_create(&test, 6, GPU_TEST_CHUNK), -ENOSPC);
	cr_expect_eq(gpu_test_create(&test, 3, GPU_TEST_CHUNK), 0);
	gpu_test_close(&test, 3);
	cr_expect_eq(gpu_test_create(&test, 3, GPU_TEST_CHUNK), -ENOSPC);
	gpu_test_expect_text(test.request.text, "4 MiB of 1 GiB are left to zinf");
	cr_expect_eq(gpu_test_create(&test, 2, GPU_TEST_CHUNK), 0);
	gpu_test_close(&test, 2);
	gpu_test_deinit(&test);
}
