/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank opens GPU memory once, before MATERIALIZE, within tier and quota, and receives its
 * chunks in order; every refusal has a sentence with figures; a session that ends meanwhile leaves
 * no chunk behind. Method: as in test_shard.c, over a fake owner of chunks that answers when the
 * test wants.
 */
#include "common/wire/gpu.h"
#include "daemon/session/attach.h"
#include "tests/fake/fake_chunks.h"
#include "tests/unit/session/room.h"

#define MIB   (1ull << 20)
#define CHUNK (2 * MIB)
#define UUID  "GPU-00000000-0000-4000-8000-000000000001"

static struct fake_chunks owner;
static struct tier *tier;

/* 100 MiB without the reserve. */
static void add_gpu(const char *uuid)
{
	struct dev_gpu_facts facts = { .bytes = 1024 * MIB, .granularity_bytes = CHUNK };

	cr_assert_eq(zi_copy_name(facts.uuid, sizeof(facts.uuid), uuid), 0);
	cr_assert_eq(tier_arenas_add(room.arenas, &facts, 924 * MIB, &fake_chunks_ops, &owner,
	                             &owner.gpu),
	             0);
	tier = tier_arenas_find(room.arenas, uuid);
}

static void gpu_room_open(void)
{
	room_open();
	owner = (struct fake_chunks){ .life = 1 };
	add_gpu(UUID);
}

TestSuite(request_gpu, .init = gpu_room_open, .fini = room_close);

static struct zi_gpu_open open_of(uint64_t chunk_bytes, uint32_t params, uint32_t grads)
{
	return (struct zi_gpu_open){ .uuid = UUID,
		                     .chunk_bytes = chunk_bytes,
		                     .param_chunk_count = params,
		                     .grad_chunk_count = grads };
}

static void send_open(struct client *client, struct zi_gpu_open open)
{
	client_send(client, &open, ZI_MESSAGE_GPU_OPEN, sizeof(open));
	settle();
}

static void send_chunks(struct client *client, uint32_t first, uint32_t count)
{
	struct zi_gpu_chunks message = { .first = first, .count = count };

	client_send(client, &message, ZI_MESSAGE_GPU_CHUNKS, sizeof(message));
	settle();
}

static const struct zi_gpu_opened *expect_opened(struct client *client)
{
	cr_assert_eq(client_receive(client), ZI_MESSAGE_GPU_OPENED, "%s",
	             client->in.error.text.chars);
	cr_assert_eq(client->in.header.sequence, client->sequence);
	cr_assert_eq(client->fd_count, 0);
	return (const void *)client->in.bytes;
}

/* Its session ends. */
static void leave(struct client *client)
{
	client_send_plain(client, ZI_MESSAGE_DETACH);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	client_close(client);
}

static struct client *attach(void)
{
	return client_attach_with(ZI_FEATURE_GPU);
}

/* A session with @count chunks. */
static struct client *attach_opened(uint32_t count)
{
	struct client *client = attach();

	send_open(client, open_of(CHUNK, count, 0));
	fake_chunks_answer(&owner, 0);
	(void)expect_opened(client);
	return client;
}

Test(request_gpu, a_question_is_answered_with_the_room_there_is)
{
	struct client *client = attach();
	const struct zi_gpu_opened *opened;

	fake.account.limit_bytes[TIER_GPU] = 60 * MIB;
	send_open(client, open_of(0, 0, 0));
	opened = expect_opened(client);
	cr_expect_eq(opened->granularity_bytes, CHUNK);
	cr_expect_eq(opened->capacity_bytes, 100 * MIB);
	cr_expect_eq(opened->free_bytes, 60 * MIB, "of the uid");
	cr_expect_eq(opened->chunk_bytes, 0);
	cr_expect_eq(owner.next_id, 0);
	fake.account.limit_bytes[TIER_GPU] = UINT64_MAX;
	send_open(client, open_of(0, 0, 0));
	cr_expect_eq(expect_opened(client)->free_bytes, 100 * MIB);
	client_close(client);
}

Test(request_gpu, chunks_are_charged_made_and_handed_out_in_order)
{
	struct client *client = attach();
	const struct zi_gpu_opened *opened;
	const struct zi_gpu_chunks *chunks = (const void *)client->in.bytes;

	send_open(client, open_of(2 * CHUNK, 7, 3));
	cr_assert_eq(client_receive(client), 0, "they are being made");
	cr_expect_eq(tier->used_bytes, 40 * MIB);
	fake_chunks_answer(&owner, 0);
	opened = expect_opened(client);
	cr_expect_eq(opened->param_chunk_count, 7);
	cr_expect_eq(opened->grad_chunk_count, 3);
	cr_expect_eq(opened->chunk_bytes, 2 * CHUNK);
	cr_expect_eq(opened->free_bytes, 60 * MIB);
	send_chunks(client, 0, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_GPU_CHUNKS);
	cr_expect_eq(chunks->first, 0);
	cr_expect_eq(chunks->count, 8);
	cr_expect_eq(client->fd_count, 8);
	send_materialize(client, 0, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	send_chunks(client, 8, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_GPU_CHUNKS);
	cr_expect_eq(chunks->first, 8);
	cr_expect_eq(chunks->count, 2);
	cr_expect_eq(client->fd_count, 2);
	send_chunks(client, 10, 0);
	expect_error(client, -ENODATA, "all 10 chunks were received");
	leave(client);
	cr_expect_eq(tier->used_bytes, 40 * MIB, "this process may have them");
	cr_expect_eq(owner.held_count, 10);
}

Test(request_gpu, what_cannot_be_opened_is_refused_with_figures)
{
	static const struct {
		struct zi_gpu_open open;
		int error;
		const char *words;
	} refusals[] = {
		{ { .uuid = "" }, -EINVAL, "a UUID is GPU-" },
		{ { .uuid = "GPU-\x1b[2J" }, -EINVAL, "a UUID is GPU-" },
		{ { .uuid = "GPU-7" }, -ENODEV, "zinfd does not have GPU-7; it has " UUID },
		{ { .uuid = UUID, .flags = 4 }, -EINVAL, "unknown flags 0x4" },
		{ { .uuid = UUID, .param_chunk_count = 3 }, -EINVAL, "3 chunks of 0 bytes" },
		{ { .uuid = UUID, .chunk_bytes = CHUNK },
		  -EINVAL,
		  "0 chunks of 2 MiB: 1 to 1024 chunks" },
		{ { .uuid = UUID,
		    .chunk_bytes = CHUNK,
		    .param_chunk_count = 1024,
		    .grad_chunk_count = 1 },
		  -E2BIG,
		  "1025 chunks of 2 MiB: 1 to 1024 chunks" },
		{ { .uuid = UUID,
		    .chunk_bytes = CHUNK,
		    .param_chunk_count = UINT32_MAX,
		    .grad_chunk_count = 2 },
		  -E2BIG,
		  "4294967297 chunks" },
		{ { .uuid = UUID, .chunk_bytes = CHUNK + 4096, .param_chunk_count = 1 },
		  -EINVAL,
		  "chunks of 2101248 B on gpu:" UUID ": a multiple of 2097152 B" },
		{ { .uuid = UUID, .chunk_bytes = CHUNK, .param_chunk_count = 51 },
		  -ENOSPC,
		  "102 MiB asked for on gpu:" UUID ", 100 MiB free of 100 MiB" },
		{ { .uuid = UUID,
		    .chunk_bytes = UINT64_MAX / CHUNK * CHUNK,
		    .param_chunk_count = 1024 },
		  -ENOSPC,
		  "100 MiB free of 100 MiB" },
	};
	struct client *client = attach();

	for (size_t i = 0; i < ZI_COUNT_OF(refusals); i++) {
		send_open(client, refusals[i].open);
		expect_error(client, refusals[i].error, refusals[i].words);
	}
	cr_expect_eq(tier->used_bytes, 0);
	cr_expect_eq(owner.next_id, 0);
	client_close(client);
}

Test(request_gpu, a_quota_of_the_uid_binds)
{
	struct client *client = attach();

	fake.account.limit_bytes[TIER_GPU] = 5 * MIB;
	send_open(client, open_of(CHUNK, 2, 1));
	expect_error(client, -EDQUOT, "quota.uid_gpu");
	fake.account.limit_bytes[TIER_GPU] = UINT64_MAX;
	fake.account.limit_fds = fake.account.used_fds + 3;
	send_open(client, open_of(CHUNK, 2, 1));
	expect_error(client, -EDQUOT, "limits.descriptors_per_uid");
	fake.account.limit_fds = UINT32_MAX;
	cr_expect_eq(tier->used_bytes, 0);
	client_close(client);
}

Test(request_gpu, memory_is_opened_once_and_before_materialize)
{
	struct client *client = attach_opened(2);

	send_open(client, open_of(CHUNK, 1, 0));
	expect_error(client, -EALREADY, "this rank has 2 chunks of gpu:" UUID);
	send_open(client, open_of(0, 0, 0));
	cr_expect_eq(expect_opened(client)->free_bytes, 96 * MIB, "a question is none");
	leave(client);
	fake_chunks_answer(&owner, 0);
	client = attach();
	send_materialize(client, 0, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	send_open(client, open_of(CHUNK, 1, 0));
	expect_error(client, -EBUSY, "GPU_OPEN after MATERIALIZE");
	client_close(client);
}

Test(request_gpu, chunks_that_cannot_be_made_may_be_asked_for_again)
{
	struct client *client = attach();

	send_open(client, open_of(CHUNK, 2, 0));
	fake_chunks_answer(&owner, -ENOMEM);
	expect_error(client, -ENOMEM, "the fake owner has no memory");
	send_open(client, open_of(CHUNK, 2, 0));
	fake_chunks_die(&owner);
	expect_error(client, -EIO, "the fake owner died");
	owner.create_result = -EAGAIN;
	send_open(client, open_of(CHUNK, 2, 0));
	expect_error(client, -EAGAIN, "the fake owner refuses");
	cr_expect_eq(tier->used_bytes, 0);
	owner.create_result = 0;
	send_open(client, open_of(CHUNK, 2, 0));
	fake_chunks_answer(&owner, 0);
	(void)expect_opened(client);
	leave(client);
	fake_chunks_answer(&owner, 0);
}

Test(request_gpu, chunks_are_asked_for_in_their_order)
{
	struct client *client = attach();

	send_chunks(client, 0, 0);
	expect_error(client, -ENXIO, "GPU_OPEN comes first");
	client_close(client);
	client = attach_opened(3);
	send_chunks(client, 1, 0);
	expect_error(client, -EINVAL, "the next of 3 chunks is 0, not 1");
	send_chunks(client, 0, 9);
	expect_error(client, -EINVAL, "count is 9, not 0");
	leave(client);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(owner.held_count, 0);
}

/* Descriptors that nobody has received are few for all users of the daemon together. */
Test(request_gpu, a_client_that_does_not_read_gets_no_more_chunks)
{
	struct client *client = attach();
	uint32_t received = 0;
	int type;

	tier->capacity_bytes = 400 * CHUNK;
	send_open(client, open_of(CHUNK, 400, 0));
	fake_chunks_answer(&owner, 0);
	(void)expect_opened(client);
	for (uint32_t first = 0; first < 400; first += 8)
		send_chunks(client, first, 0);
	while ((type = client_receive(client)) == ZI_MESSAGE_GPU_CHUNKS)
		received += client->fd_count;
	cr_assert_eq(type, ZI_MESSAGE_ERROR);
	cr_expect_eq(client->in.error.error, -EBUSY, "%s", client->in.error.text.chars);
	cr_expect_gt(received, 8);
	cr_expect_lt(received, 400);
	while (client_receive(client) > 0)
		continue;
	send_chunks(client, received, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_GPU_CHUNKS, "it has read them");
	client_close(client);
}

Test(request_gpu, a_client_without_the_feature_loses_its_session)
{
	struct client *client = client_attach();

	send_open(client, open_of(0, 0, 0));
	expect_end(client, "GPU_OPEN without feature bit 25");
	client_close(client);
}

Test(request_gpu, another_request_while_chunks_are_made_ends_the_session)
{
	struct client *client = attach();

	send_open(client, open_of(CHUNK, 2, 0));
	send_chunks(client, 0, 0);
	expect_end(client, "GPU_CHUNKS while GPU_OPEN is pending");
	cr_expect_eq(tier->used_bytes, 2 * CHUNK, "until they are released");
	fake_chunks_answer(&owner, 0);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(tier->used_bytes, 0);
	client_close(client);
}

Test(request_gpu, a_session_that_ends_while_chunks_are_made_leaves_none)
{
	struct client *client = attach();

	send_open(client, open_of(CHUNK, 2, 0));
	client_send_plain(client, ZI_MESSAGE_DETACH);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert_eq(client_receive(client), -1);
	cr_expect_eq(room.control->used_count, 0);
	client_close(client);
	fake_chunks_answer(&owner, 0);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(owner.held_count, 0);
	cr_expect_eq(tier->used_bytes, 0);
	client = attach();
	send_open(client, open_of(CHUNK, 2, 0));
	sess_shard_stop(room.shard, "zinfd is stopping");
	sess_control_stop(room.control, room_stopped, NULL);
	settle();
	cr_assert(room.is_stopped);
	dev_gpu_close(owner.gpu);
	fake_chunks_answer(&owner, -ESHUTDOWN);
	cr_expect_eq(tier->used_bytes, 0);
	client_close(client);
}

Test(request_gpu, of_a_broken_group_is_refused)
{
	struct client *client = attach_opened(2);

	sess_broken(room.shard->polled[0], -EPIPE, 1, &(struct zi_text){ "rank 1 died" });
	cr_assert_eq(client_receive(client), ZI_MESSAGE_NOTICE);
	send_chunks(client, 0, 0);
	expect_error(client, -EPIPE, "rank 1 died");
	leave(client);
	fake_chunks_answer(&owner, 0);
}

Test(request_gpu, a_gpu_that_is_not_known_yet_is_waited_for)
{
	struct client *client = attach(), *other = attach(), *third = attach();
	struct zi_gpu_open open = open_of(0, 0, 0);

	tier_arenas_set_ready(room.arenas, false);
	send_open(client, open);
	(void)expect_opened(client);
	open.uuid[strlen(UUID) - 1] = '2';
	send_open(client, open);
	open.uuid[strlen(UUID) - 1] = '3';
	send_open(other, open);
	send_open(third, open);
	cr_assert_eq(client_receive(client), 0);
	cr_assert_eq(client_receive(other), 0);
	leave(third);
	add_gpu("GPU-00000000-0000-4000-8000-000000000002");
	tier_arenas_set_ready(room.arenas, true);
	(void)expect_opened(client);
	expect_error(other, -ENODEV, "-000000000003; it has " UUID ", GPU-");
	client_close(client);
	client_close(other);
}

TestSuite(request_no_gpu, .init = room_open, .fini = room_close);

Test(request_no_gpu, a_daemon_without_gpus_says_why)
{
	struct client *client = client_attach_with(ZI_FEATURE_GPU);
	const struct zi_text why = { "gpu.enable is no" };

	send_open(client, open_of(0, 0, 0));
	expect_error(client, -ENODEV, "zinfd has no GPU");
	tier_arenas_explain(room.arenas, &why);
	send_open(client, open_of(CHUNK, 1, 0));
	expect_error(client, -ENODEV, "zinfd has no GPU: gpu.enable is no");
	add_gpu("GPU-a");
	send_open(client, open_of(CHUNK, 1, 0));
	expect_error(client, -ENODEV, "it has GPU-a; gpu.enable is no");
	client_close(client);
}
