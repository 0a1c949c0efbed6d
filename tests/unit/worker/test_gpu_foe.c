/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: nothing that a zinf-gpu says or leaves unsaid harms the daemon: a message that is wrong in
 * any word ends the worker with words, its requests fail, and no descriptor is left. Method: a fake
 * zinf-gpu sends each message with one thing wrong.
 */
#include "tests/unit/worker/gpu_double.h"

/* One thing that is wrong with a message. */
struct spoilt {
	const char *says; /* of the daemon */
	void (*spoil)(union gpu_message *message);
	uint32_t fds;       /* descriptors that come with it */
	uint32_t cut_bytes; /* of the packet */
};

static const struct spoilt *spoilt;

/* @fds: descriptors that belong to the sound message. */
static void send_spoilt(int fd, union gpu_message *message, uint32_t fds)
{
	if (spoilt->spoil)
		spoilt->spoil(message);
	gpu_double_send(fd, message, gpu_message_bytes(message->header.type) - spoilt->cut_bytes,
	                fds + spoilt->fds);
}

static void expect_protocol_end(struct gpu_test *test)
{
	gpu_test_await(test, GPU_WORKER_DOWN);
	cr_expect_eq(test->ended_error, -EPROTO, "%s: %d", spoilt->says, test->ended_error);
	gpu_test_expect_text(test->ended, "zinf-gpu of ");
	gpu_test_expect_text(test->ended, "broke the protocol");
	gpu_test_expect_text(test->ended, spoilt->says);
	cr_expect_eq(gpu_worker_held_bytes(test->worker), 0);
}

/* ---- HELLO ---- */

#define SPOIL(name, words)                           \
	static void name(union gpu_message *message) \
	{                                            \
		words;                               \
	}

SPOIL(other_magic, message->header.magic++)
SPOIL(other_version, message->header.version++)
SPOIL(header_reserved, message->header.reserved = 1)
SPOIL(lying_length, message->header.bytes--)
SPOIL(cookie_of_none, message->header.cookie = 1)
SPOIL(uuid_without_end, memset(message->hello.uuid, 'a', sizeof(message->hello.uuid)))
SPOIL(uuid_empty, message->hello.uuid[0] = '\0')
SPOIL(uuid_short, message->hello.uuid[20] = '\0')
SPOIL(name_without_end, memset(message->hello.name, 'a', sizeof(message->hello.name)))
SPOIL(pci_without_end, memset(message->hello.pci, 'a', sizeof(message->hello.pci)))
SPOIL(no_bytes, message->hello.bytes = 0)
SPOIL(negative_bytes, message->hello.bytes = UINT64_MAX)
SPOIL(no_granularity, message->hello.granularity_bytes = 0)
SPOIL(coarse, message->hello.granularity_bytes = message->hello.bytes + 1)
SPOIL(index_too_high, message->hello.index = message->hello.count)
SPOIL(count_too_high, message->hello.count = ZI_GPU_DEVICES_MAX + 1)
SPOIL(no_version, message->hello.driver_version = 0)
SPOIL(unknown_flag, message->hello.flags |= 1u << 31)
SPOIL(hello_reserved, message->hello.reserved = 1)

static const struct spoilt hellos[] = {
	{ "no message of this release", other_magic, 0, 0 },
	{ "no message of this release", other_version, 0, 0 },
	{ "no message of this release", header_reserved, 0, 0 },
	{ "no message of this release", lying_length, 0, 0 },
	{ "no message of this release", NULL, 0, 1 },
	{ "no message of this release", NULL, 0, sizeof(struct gpu_hello) - 1 },
	{ "unknown bits", cookie_of_none, 0, 0 },
	{ "unknown bits", unknown_flag, 0, 0 },
	{ "unknown bits", hello_reserved, 0, 0 },
	{ "without a UUID", uuid_without_end, 0, 0 },
	{ "without a UUID", uuid_empty, 0, 0 },
	{ "without a UUID", uuid_short, 0, 0 },
	{ "a text without end", name_without_end, 0, 0 },
	{ "a text without end", pci_without_end, 0, 0 },
	{ "figures that cannot be", no_bytes, 0, 0 },
	{ "figures that cannot be", negative_bytes, 0, 0 },
	{ "figures that cannot be", no_granularity, 0, 0 },
	{ "figures that cannot be", coarse, 0, 0 },
	{ "figures that cannot be", index_too_high, 0, 0 },
	{ "figures that cannot be", count_too_high, 0, 0 },
	{ "figures that cannot be", no_version, 0, 0 },
	{ "descriptors with a message that has none", NULL, 1, 0 },
	{ "descriptors with a message that has none", NULL, GPU_FDS_MAX + 1, 0 },
};

static void play_hello(int fd)
{
	union gpu_message hello = gpu_double_hello();

	send_spoilt(fd, &hello, 0);
}

Test(gpu_foe, a_hello_that_cannot_be_ends_the_worker)
{
	gpu_double_play = play_hello;
	for (uint32_t i = 0; i < ZI_COUNT_OF(hellos); i++) {
		struct gpu_test test = { .options.spawn = gpu_double_spawn };

		spoilt = &hellos[i];
		gpu_test_init(&test);
		gpu_test_start(&test);
		expect_protocol_end(&test);
		cr_expect_eq(test.greeted_count, 0);
		cr_expect(!gpu_worker_facts(test.worker));
		gpu_test_deinit(&test);
	}
}

/* A name may have any bytes, and the daemon prints it. */
static void play_odd_name(int fd)
{
	union gpu_message hello = gpu_double_hello();

	(void)snprintf(hello.hello.name, sizeof(hello.hello.name), "a\x1b[2Jb\xff");
	gpu_double_send(fd, &hello, sizeof(hello.hello), 0);
}

Test(gpu_foe, a_name_has_no_control_characters)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_odd_name;
	gpu_test_init(&test);
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	cr_expect_str_eq(gpu_worker_facts(test.worker)->name, "a?[2Jb?");
	gpu_test_deinit(&test);
}

static void play_greeting(int fd)
{
	gpu_double_greet(fd);
}

Test(gpu_foe, another_gpu_than_the_wanted_one_ends_the_worker)
{
	static const struct spoilt other = { "a HELLO of another GPU", NULL, 0, 0 };
	struct gpu_test test = { .options = {
					 .spawn = gpu_double_spawn,
					 .device = "GPU-00000000-0000-4000-8000-00000000000f",
				 } };

	gpu_double_play = play_greeting;
	spoilt = &other;
	gpu_test_init(&test);
	gpu_test_start(&test);
	expect_protocol_end(&test);
	gpu_test_expect_text(test.ended, test.options.device);
	gpu_test_deinit(&test);
}

/* ---- SEEN ---- */

static uint32_t seen_copies;

static void play_seen(int fd)
{
	for (uint32_t i = 0; i < seen_copies; i++) {
		union gpu_message message = { .seen = { .header = gpu_header_of(GPU_SEEN, 0),
			                                .count = 2 } };

		send_spoilt(fd, &message, 0);
	}
}

SPOIL(seen_too_many, message->seen.count = ZI_GPU_DEVICES_MAX + 1)
SPOIL(seen_reserved, message->seen.reserved = 1)

static const struct spoilt counts[] = {
	{ "a SEEN that cannot be", seen_too_many, 0, 0 },
	{ "a SEEN that cannot be", seen_reserved, 0, 0 },
	{ "a SEEN that cannot be", cookie_of_none, 0, 0 },
	{ "descriptors with a message that has none", NULL, 1, 0 },
	{ "no message of this release", NULL, 0, 8 },
	{ "a SEEN that cannot be", NULL, 0, 0 }, /* the second one */
};

Test(gpu_foe, a_number_of_gpus_that_cannot_be_ends_the_worker)
{
	gpu_double_play = play_seen;
	for (uint32_t i = 0; i < ZI_COUNT_OF(counts); i++) {
		struct gpu_test test = { .options.spawn = gpu_double_spawn };

		spoilt = &counts[i];
		seen_copies = i + 1 == ZI_COUNT_OF(counts) ? 2 : 1;
		gpu_test_init(&test);
		gpu_test_start(&test);
		expect_protocol_end(&test);
		cr_expect_eq(test.seen_count, seen_copies == 2 ? 2 : 0);
		gpu_test_deinit(&test);
	}
}

/* ---- FAILED ---- */

static union gpu_message failed(void)
{
	union gpu_message message = { .failed = { .header = gpu_header_of(GPU_FAILED, 0),
		                                  .error = -ENODEV,
		                                  .text = { "there is no driver" } } };

	return message;
}

static void play_failed(int fd)
{
	union gpu_message message = failed();

	send_spoilt(fd, &message, 0);
}

SPOIL(no_error, message->failed.error = 0)
SPOIL(positive_error, message->failed.error = 5)
SPOIL(error_of_nobody, message->failed.error = -4096)
SPOIL(error_min, message->failed.error = INT32_MIN)
SPOIL(failed_reserved, message->failed.reserved = 1)
SPOIL(text_without_end, memset(&message->failed.text, 'a', sizeof(message->failed.text)))

static const struct spoilt failures[] = {
	{ "a FAILED without an error", no_error, 0, 0 },
	{ "a FAILED without an error", positive_error, 0, 0 },
	{ "a FAILED without an error", error_of_nobody, 0, 0 },
	{ "a FAILED without an error", error_min, 0, 0 },
	{ "a FAILED without an error", failed_reserved, 0, 0 },
	{ "a FAILED without an error", cookie_of_none, 0, 0 },
	{ "a FAILED without an error", text_without_end, 0, 0 },
	{ "descriptors with a message that has none", NULL, 1, 0 },
	{ "no message of this release", NULL, 0, 8 },
};

Test(gpu_foe, a_failure_without_a_reason_ends_the_worker)
{
	gpu_double_play = play_failed;
	for (uint32_t i = 0; i < ZI_COUNT_OF(failures); i++) {
		struct gpu_test test = { .options.spawn = gpu_double_spawn };

		spoilt = &failures[i];
		gpu_test_init(&test);
		gpu_test_start(&test);
		expect_protocol_end(&test);
		gpu_test_deinit(&test);
	}
}

Test(gpu_foe, a_failed_start_fails_the_requests_with_its_reason)
{
	static const struct spoilt sound = { "", NULL, 0, 0 };
	struct gpu_test test = { .options.spawn = gpu_double_spawn };

	gpu_double_play = play_failed;
	spoilt = &sound;
	gpu_test_init(&test);
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), -ENODEV);
	gpu_test_expect_text(test.request.text, "zinf-gpu of GPU 0: there is no driver");
	cr_expect_eq(test.ended_error, -ENODEV);
	gpu_test_await(&test, GPU_WORKER_DOWN);
	gpu_test_deinit(&test);
}

/* ---- the order of messages ---- */

static const union gpu_message *unasked;

static void play_unasked_first(int fd)
{
	gpu_double_send(fd, unasked, gpu_message_bytes(unasked->header.type), 0);
}

static void play_unasked_later(int fd)
{
	gpu_double_greet(fd);
	play_unasked_first(fd);
}

static void expect_unasked(gpu_double_fn play, const union gpu_message *message, const char *says)
{
	struct gpu_test test = { .options.spawn = gpu_double_spawn };
	const struct spoilt sound = { says, NULL, 0, 0 };

	gpu_double_play = play;
	unasked = message;
	spoilt = &sound;
	gpu_test_init(&test);
	gpu_test_start(&test);
	expect_protocol_end(&test);
	gpu_test_deinit(&test);
}

Test(gpu_foe, messages_that_nobody_asked_for_end_the_worker)
{
	static const char order[] = "a message out of its order";
	const union gpu_message hello = gpu_double_hello(), failure = failed();
	const union gpu_message chunks = gpu_double_chunks(1, 0, 1);
	const union gpu_message done = gpu_double_done(1, 0, 1);
	const union gpu_message pong = { .header = gpu_header_of(GPU_PONG, 0) };
	const union gpu_message ping = { .header = gpu_header_of(GPU_PING, 0) };
	const union gpu_message create = { .create.header = gpu_header_of(GPU_CREATE, 1) };

	expect_unasked(play_unasked_first, &chunks, order);
	expect_unasked(play_unasked_first, &done, order);
	expect_unasked(play_unasked_first, &pong, order);
	expect_unasked(play_unasked_first, &ping, order);
	expect_unasked(play_unasked_first, &create, order);
	expect_unasked(play_unasked_later, &hello, order);
	expect_unasked(play_unasked_later, &failure, order);
	expect_unasked(play_unasked_later, &pong, order);
	expect_unasked(play_unasked_later, &chunks, "CHUNKS that nobody asked for");
	expect_unasked(play_unasked_later, &done, "a DONE that nobody asked for");
}
