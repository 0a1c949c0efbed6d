/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a zinf-gpu that was killed and lives on, as in a call of its driver that does not return,
 * holds nothing up: its requests fail with the reason, those that come wait and fail when it is
 * stuck, its chunks are held until it has gone, no other one is started before, and the end of the
 * daemon does not wait for it for ever. Method: a fake zinf-gpu whose end the test holds back
 * (tests/harness/stuck.h).
 */
#include "tests/harness/stuck.h"
#include "tests/unit/worker/gpu_double.h"

#define SILENCE_NS (20 * ZI_NS_PER_MS) /* a limit that passes: the double never answers */
#define HOUR_NS    (3600 * ZI_NS_PER_S)

/* It makes one chunk, and answers nothing from then on. */
static void play_one(int fd)
{
	union gpu_message message, chunks;

	gpu_double_greet(fd);
	gpu_double_await(fd, GPU_CREATE, &message);
	chunks = gpu_double_chunks(message.header.cookie, 0, 1);
	gpu_double_send(fd, &chunks, sizeof(chunks.chunks), 1);
	gpu_double_await(fd, GPU_TAKEN, &message);
	gpu_double_end(fd, message.header.cookie, 0, 1);
}

/* As before, and then it closes its socket and lives on. */
static void play_closed(int fd)
{
	play_one(fd);
	gpu_double_await(fd, GPU_CREATE, &(union gpu_message){ .header.type = 0 });
	(void)close(fd);
	for (;;)
		(void)pause();
}

/* With one chunk, traced. @options: limits. Return: its pid. */
static pid_t start_held(struct gpu_test *test, gpu_double_fn play)
{
	const char *why;
	pid_t pid;

	if (!stuck_is_possible(&why))
		cr_skip_test("no process can be made that lives on after SIGKILL: %s", why);
	gpu_double_play = play;
	test->options.spawn = gpu_double_spawn;
	gpu_test_init(test);
	cr_assert_eq(gpu_test_create(test, 1, GPU_TEST_CHUNK), 0);
	gpu_test_close(test, 1);
	pid = gpu_worker_pid(test->worker);
	why = stuck_hold(pid);
	cr_assert_null(why, "%s", why);
	return pid;
}

/* The next request, which the process does not answer, ends it. */
static void expect_silence_ends_it(struct gpu_test *test)
{
	cr_expect_eq(gpu_test_create(test, 1, GPU_TEST_CHUNK), -ETIMEDOUT);
	gpu_test_expect_text(test->request.text, "had no answer past its deadline");
	cr_expect_eq(test->ended_count, 1);
	cr_expect_eq(gpu_worker_state(test->worker), GPU_WORKER_ENDING);
	cr_expect(test->is_ending);
}

static struct gpu_request next;
static struct gpu_chunk next_chunk;
static struct zi_loop *next_loop;
static uint32_t next_count;

static void next_done(struct gpu_request *request)
{
	(void)request;
	next_count++;
	zi_loop_stop(next_loop);
}

static int ask_next(struct gpu_test *test)
{
	next_loop = test->loop;
	next = (struct gpu_request){
		.done = next_done, .count = 1, .chunk_bytes = GPU_TEST_CHUNK, .chunks = &next_chunk
	};
	return gpu_worker_create(test->worker, &next);
}

static void await_next(struct gpu_test *test, uint32_t count)
{
	while (next_count < count)
		cr_assert_eq(zi_loop_run(test->loop), 0);
}

Test(gpu_stuck, chunks_are_held_and_the_next_request_waits_until_it_has_gone)
{
	struct gpu_test test = { .options = { .request_ns = SILENCE_NS, .linger_ns = HOUR_NS } };
	struct zi_text text;
	pid_t pid = start_held(&test, play_one);

	expect_silence_ends_it(&test);
	cr_expect_eq(gpu_worker_pid(test.worker), pid);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), GPU_TEST_CHUNK);
	cr_expect_leq(gpu_worker_killed_ns(test.worker), zi_clock_now_ns());
	test.request.count = 1;
	cr_expect_eq(gpu_worker_release(test.worker, &test.request), GPU_WORKER_E_ENDING);
	gpu_worker_kill(test.worker, &text); /* Once is enough. */
	cr_assert_eq(gpu_worker_start(test.worker, &text), 0);
	cr_assert_eq(ask_next(&test), 0);
	cr_assert(stuck_await(pid));
	cr_expect_eq(next_count, 0);
	cr_expect_eq(gpu_worker_life(test.worker), 1, "no other one is started");
	stuck_release(pid);
	/* The next one. */
	await_next(&test, 1);
	cr_expect_eq(next.error, 0, "%s", next.text.chars);
	cr_expect_not(test.is_ending);
	cr_expect_eq(next_chunk.life, 2);
	next_chunk.fd = zi_close(next_chunk.fd);
	cr_expect_eq(test.ended_count, 1);
	cr_expect_eq(test.stuck_count, 0);
	gpu_test_deinit(&test);
}

Test(gpu_stuck, what_waits_fails_when_it_is_stuck_and_what_comes_is_refused)
{
	struct gpu_test test = { .options = { .request_ns = SILENCE_NS, .linger_ns = SILENCE_NS } };
	pid_t pid = start_held(&test, play_one);
	struct zi_text text;
	char figures[128];

	expect_silence_ends_it(&test);
	cr_assert_eq(ask_next(&test), 0);
	await_next(&test, 1);
	cr_expect_eq(next.error, -EAGAIN);
	(void)snprintf(figures, sizeof(figures),
	               GPU_DOUBLE_UUID " (pid %d) was killed 0 s ago and has not ended", (int)pid);
	gpu_test_expect_text(next.text, "it hangs in the driver");
	while (!test.stuck_count)
		cr_assert_eq(zi_loop_run(test.loop), 0);
	gpu_test_expect_text(test.stuck, figures);
	cr_expect_eq(ask_next(&test), -EAGAIN);
	gpu_test_expect_text(next.text, "has not ended");
	cr_expect_eq(gpu_worker_start(test.worker, &text), -EAGAIN);
	cr_expect_eq(test.ended_count, 1);
	cr_assert(stuck_await(pid));
	stuck_release(pid);
	gpu_test_await(&test, GPU_WORKER_DOWN);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	cr_expect_eq(gpu_worker_life(test.worker), 1, "nobody asked for another one");
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), 0);
	gpu_test_close(&test, 1);
	gpu_test_deinit(&test);
}

Test(gpu_stuck, one_that_closed_its_socket_fails_its_requests_when_it_is_stuck)
{
	struct gpu_test test = { .options = { .linger_ns = SILENCE_NS } };
	pid_t pid = start_held(&test, play_closed);

	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -EIO);
	gpu_test_expect_text(test.request.text, "has not ended");
	cr_expect_eq(test.ended_count, 1);
	cr_expect_eq(test.ended_error, -EIO);
	cr_assert(stuck_await(pid));
	stuck_release(pid);
	gpu_test_await(&test, GPU_WORKER_DOWN);
	cr_expect_eq(test.ended_count, 1);
	gpu_test_deinit(&test);
}

Test(gpu_stuck, the_daemon_stops_without_one_that_does_not_end_in_time)
{
	struct gpu_test test = { .options = { .stop_ns = SILENCE_NS } };
	pid_t pid = start_held(&test, play_one);
	struct zi_text text;

	cr_assert_eq(ask_next(&test), 0);
	cr_expect_eq(gpu_worker_stop(test.worker, &text), GPU_WORKER_E_STUCK);
	gpu_test_expect_text(text, "was killed 0 s ago and has not ended");
	cr_expect_eq(next_count, 1);
	cr_expect_eq(next.error, -ESHUTDOWN);
	cr_expect_eq(gpu_worker_state(test.worker), GPU_WORKER_DOWN);
	cr_expect_eq(gpu_worker_stop(test.worker, &text), 0, "nothing is left");
	gpu_test_deinit(&test);
	cr_assert(stuck_await(pid));
	stuck_release(pid);
	cr_assert_eq(waitpid(pid, NULL, __WALL), pid);
}

Test(gpu_stuck, the_daemon_waits_for_one_that_ends_in_time)
{
	struct gpu_test test = {
		.options = { .request_ns = SILENCE_NS, .linger_ns = HOUR_NS, .stop_ns = HOUR_NS }
	};
	pid_t pid = start_held(&test, play_one);
	struct zi_text text;

	expect_silence_ends_it(&test);
	cr_assert_eq(ask_next(&test), 0, "it waits for the end");
	cr_assert(stuck_await(pid));
	stuck_release(pid);
	cr_expect_eq(gpu_worker_stop(test.worker, &text), 0);
	cr_expect_eq(next_count, 1);
	cr_expect_eq(next.error, -ESHUTDOWN);
	cr_expect_eq(kill(pid, 0), -1, "it is no zombie");
	gpu_test_deinit(&test);
}
