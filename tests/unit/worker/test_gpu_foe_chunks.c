/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a zinf-gpu that lies about chunks fails the request that asked for them, and leaves no
 * descriptor and no charge in the daemon. Method: a fake zinf-gpu sends each message with one thing
 * wrong, at the first batch and at the second.
 */
#include <sys/resource.h>

#include "tests/unit/worker/gpu_double.h"

#define COUNT 20u /* chunks of a request: two whole batches, and a part */

struct spoilt {
	const char *says; /* of the daemon */
	void (*spoil)(union gpu_message *message);
	int32_t fds; /* descriptors beside one for each chunk */
};

static const struct spoilt *spoilt;
static uint32_t spoilt_batch; /* which CHUNKS is wrong: 0, 1, 2; 3: DONE */

/* Answers a CREATE of COUNT chunks, with one thing wrong. */
static void play_create(int fd)
{
	union gpu_message message;
	uint64_t cookie;

	gpu_double_greet(fd);
	gpu_double_await(fd, GPU_CREATE, &message);
	cookie = message.header.cookie;
	gpu_double_check(message.create.count == COUNT);
	gpu_double_check(message.create.chunk_bytes == GPU_TEST_CHUNK);
	for (uint32_t batch = 0; batch < 3; batch++) {
		uint32_t first = batch * GPU_FDS_MAX;
		uint32_t count = ZI_MIN(GPU_FDS_MAX, COUNT - first);
		union gpu_message chunks = gpu_double_chunks(cookie, first, count);
		bool is_spoilt = spoilt && batch == spoilt_batch;

		if (is_spoilt && spoilt->spoil)
			spoilt->spoil(&chunks);
		gpu_double_send(fd, &chunks, sizeof(chunks.chunks),
		                count + (is_spoilt ? (uint32_t)spoilt->fds : 0));
		gpu_double_await(fd, GPU_TAKEN, &message);
		gpu_double_check(message.header.cookie == cookie && !message.taken.error);
	}
	message = gpu_double_done(cookie, 0, COUNT);
	if (spoilt && spoilt_batch == 3)
		spoilt->spoil(&message);
	gpu_double_send(fd, &message, sizeof(message.done), 0);
}

static void expect_create_fails(const struct spoilt *what, uint32_t batch)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_create;
	spoilt = what;
	spoilt_batch = batch;
	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, COUNT, GPU_TEST_CHUNK), -EPROTO, "%s, batch %u: %d",
	             what->says, batch, test.request.error);
	gpu_test_expect_text(test.request.text, what->says);
	gpu_test_expect_text(test.request.text, GPU_DOUBLE_UUID);
	gpu_test_await(&test, GPU_WORKER_DOWN);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	gpu_test_deinit(&test);
}

Test(gpu_foe_chunks, a_sound_create_gives_a_descriptor_for_each_chunk)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_create;
	gpu_test_init(&test);
	cr_assert_eq(gpu_test_create(&test, COUNT, GPU_TEST_CHUNK), 0, "%s",
	             test.request.text.chars);
	for (uint32_t i = 0; i < COUNT; i++) {
		cr_expect_eq(test.chunks[i].id, i + 1);
		cr_expect_eq(test.chunks[i].life, 1);
		cr_expect_eq(fcntl(test.chunks[i].fd, F_GETFD), FD_CLOEXEC);
	}
	cr_expect_eq(gpu_worker_held_bytes(test.worker), COUNT * GPU_TEST_CHUNK);
	gpu_test_close(&test, COUNT);
	gpu_test_deinit(&test);
}

#define SPOIL(name, words)                           \
	static void name(union gpu_message *message) \
	{                                            \
		words;                               \
	}

SPOIL(other_cookie, message->header.cookie++)
SPOIL(no_chunks, message->chunks.count = 0)
SPOIL(many_chunks, message->chunks.count = GPU_FDS_MAX + 1)
SPOIL(endless_chunks, message->chunks.count = UINT32_MAX)
SPOIL(later_chunks, message->chunks.first++)
SPOIL(no_id, message->chunks.ids[0] = 0)
SPOIL(id_twice, message->chunks.ids[1] = message->chunks.ids[0])
SPOIL(other_release, message->header.version++)

static const struct spoilt wrong_chunks[] = {
	{ "CHUNKS that nobody asked for", other_cookie, 0 },
	{ "CHUNKS that do not match their request", no_chunks, 0 },
	{ "CHUNKS that do not match their request", many_chunks, 0 },
	{ "CHUNKS that do not match their request", endless_chunks, 0 },
	{ "CHUNKS that do not match their request", later_chunks, 0 },
	{ "an id that was there before", no_id, 0 },
	{ "an id that was there before", id_twice, 0 },
	{ "CHUNKS that do not match their descriptors", NULL, 5 },
	{ "CHUNKS that do not match their descriptors", NULL, -1 },
	{ "no message of this release", other_release, 0 },
};

Test(gpu_foe_chunks, chunks_that_cannot_be_end_the_worker)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(wrong_chunks); i++) {
		expect_create_fails(&wrong_chunks[i], 0);
		expect_create_fails(&wrong_chunks[i], 1);
	}
}

SPOIL(old_id, message->chunks.ids[0] = GPU_FDS_MAX)
SPOIL(one_too_many, message->chunks.count = 5)

Test(gpu_foe_chunks, chunks_of_before_or_beyond_the_request_end_the_worker)
{
	static const struct spoilt old = { "an id that was there before", old_id, 0 };
	static const struct spoilt more = { "CHUNKS that do not match their request", one_too_many,
		                            1 };

	expect_create_fails(&old, 1);
	expect_create_fails(&more, 2);
}

SPOIL(positive_error, message->done.error = 1)
SPOIL(error_of_nobody, message->done.error = -4096)
SPOIL(error_min, message->done.error = INT32_MIN)
SPOIL(held_too_much, message->done.held_bytes = UINT64_MAX)
SPOIL(held_too_many, message->done.held_count = GPU_CHUNKS_MAX + 1)
SPOIL(held_without_bytes, message->done.held_bytes = 0)
SPOIL(text_without_end, memset(&message->done.text, 'a', sizeof(message->done.text)))

static const struct spoilt wrong_ends[] = {
	{ "a DONE that nobody asked for", other_cookie, 0 },
	{ "a DONE with an error that cannot be", positive_error, 0 },
	{ "a DONE with an error that cannot be", error_of_nobody, 0 },
	{ "a DONE with an error that cannot be", error_min, 0 },
	{ "a DONE with figures that cannot be", held_too_much, 0 },
	{ "a DONE with figures that cannot be", held_too_many, 0 },
	{ "a DONE with figures that cannot be", held_without_bytes, 0 },
	{ "a DONE with a text without end", text_without_end, 0 },
};

Test(gpu_foe_chunks, ends_that_cannot_be_end_the_worker)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(wrong_ends); i++)
		expect_create_fails(&wrong_ends[i], 3);
}

/* ---- an early end, and an error ---- */

static int early_error;

static void play_early(int fd)
{
	union gpu_message message, chunks;

	gpu_double_greet(fd);
	gpu_double_await(fd, GPU_CREATE, &message);
	chunks = gpu_double_chunks(message.header.cookie, 0, GPU_FDS_MAX);
	gpu_double_send(fd, &chunks, sizeof(chunks.chunks), GPU_FDS_MAX);
	gpu_double_await(fd, GPU_TAKEN, &message);
	gpu_double_end(fd, message.header.cookie, early_error, 0);
}

Test(gpu_foe_chunks, a_success_before_all_chunks_came_ends_the_worker)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_early;
	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, COUNT, GPU_TEST_CHUNK), -EPROTO);
	gpu_test_expect_text(test.request.text, "a DONE before all chunks came");
	gpu_test_deinit(&test);
}

Test(gpu_foe_chunks, an_error_after_some_chunks_closes_their_descriptors)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };
	uint32_t before;

	early_error = -ENOMEM;
	gpu_double_play = play_early;
	gpu_test_init(&test);
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	before = gpu_test_fds();
	cr_expect_eq(gpu_test_create(&test, COUNT, GPU_TEST_CHUNK), -ENOMEM);
	gpu_test_expect_text(test.request.text, "the double says -12");
	cr_expect_eq(gpu_test_fds(), before);
	cr_expect_eq(gpu_worker_state(test.worker), GPU_WORKER_UP);
	gpu_test_deinit(&test);
}

/* ---- no room for descriptors ---- */

/* The daemon gives the second batch back; then a CREATE of one chunk succeeds. */
static void play_refused(int fd)
{
	union gpu_message message, chunks;
	uint64_t cookie;

	gpu_double_greet(fd);
	gpu_double_await(fd, GPU_CREATE, &message);
	cookie = message.header.cookie;
	for (uint32_t batch = 0; batch < 2; batch++) {
		chunks = gpu_double_chunks(cookie, batch * GPU_FDS_MAX, GPU_FDS_MAX);
		gpu_double_send(fd, &chunks, sizeof(chunks.chunks), GPU_FDS_MAX);
		gpu_double_await(fd, GPU_TAKEN, &message);
		gpu_double_check(message.taken.error == (batch ? -EMFILE : 0));
	}
	gpu_double_end(fd, cookie, -EMFILE, 0);
	gpu_double_await(fd, GPU_CREATE, &message);
	chunks = gpu_double_chunks(message.header.cookie, 0, 1);
	chunks.chunks.ids[0] = 100;
	gpu_double_send(fd, &chunks, sizeof(chunks.chunks), 1);
	gpu_double_await(fd, GPU_TAKEN, &message);
	gpu_double_end(fd, message.header.cookie, 0, 1);
}

Test(gpu_foe_chunks, a_daemon_without_descriptors_fails_one_request_only)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };
	struct rlimit limit, before;
	uint32_t fds;
	int next;

	gpu_double_play = play_refused;
	gpu_test_init(&test);
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	fds = gpu_test_fds();
	next = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(next, 0);
	zi_close(next);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = (rlim_t)next + GPU_FDS_MAX + 3; /* of the second batch there are 3 */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	cr_expect_eq(gpu_test_create(&test, COUNT, GPU_TEST_CHUNK), -EMFILE);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	gpu_test_expect_text(test.request.text, "8 of 20 chunks on " GPU_DOUBLE_UUID " had come");
	cr_expect_eq(gpu_test_fds(), fds);
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), 0);
	cr_expect_eq(test.ended_count, 0);
	gpu_test_close(&test, 1);
	gpu_test_deinit(&test);
}
