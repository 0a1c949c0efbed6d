/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: collectives' requests on the socket are handed to zero whole and answered once, with the
 * descriptors that they promise; out of place they are what any other request is. Method: as in
 * test_request.c, over the fake zero of fake_coll.h.
 */
#include "tests/unit/session/room.h"

TestSuite(request_coll, .init = room_open, .fini = room_close);

static void send_open(struct client *client, uint64_t arena_bytes)
{
	struct zi_coll_open message = { .arena_bytes = arena_bytes,
		                        .asked_bytes = arena_bytes / 2,
		                        .timeout_ms = 1500 };

	client_send(client, &message, ZI_MESSAGE_COLL_OPEN, sizeof(message));
	settle();
}

static void send_group(struct client *client)
{
	struct zi_coll_group message = { .members = { 3, 0, 0, 9 }, .timeout_ms = 70 };

	client_send(client, &message, ZI_MESSAGE_COLL_GROUP, sizeof(message));
	settle();
}

static void send_fail(struct client *client)
{
	struct zi_coll_fail message = { .group = 7, .sequence = 8, .error = -ETIMEDOUT };

	client_send(client, &message, ZI_MESSAGE_COLL_FAIL, sizeof(message));
	settle();
}

Test(request_coll, opening_gives_verdicts_to_read_and_two_to_write)
{
	struct client *client = client_attach();
	const struct zi_coll_opened *opened = (const void *)client->in.bytes;

	send_open(client, 12345);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_COLL_OPENED);
	cr_expect_eq(fake_coll.arena_bytes, 12345);
	cr_expect_eq(fake_coll.asked_bytes, 6172);
	cr_expect_eq(fake_coll.timeout_ns, 1500 * ZI_NS_PER_MS);
	cr_assert_eq(client->fd_count, 3);
	cr_expect_eq(opened->verdict_bytes, ZI_VERDICT_BYTES);
	cr_expect_eq(opened->arena_bytes, 1 << 19);
	cr_expect_eq(opened->arenas_bytes, 1 << 20);
	cr_expect_eq(opened->board_bytes, zi_board_bytes(2));
	cr_expect_eq(opened->member_count, 2);
	cr_expect_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, client->fds[0], 0), MAP_FAILED);
	for (uint32_t i = 0; i < 3; i++) {
		void *base;

		cr_assert_eq(zi_region_map(client->fds[i], 4096, i > 0, &base), 0);
		cr_assert_eq(zi_region_unmap(base, 4096), 0);
	}
	/* The rank holds them until it leaves. */
	cr_expect(fake_holds(rank_of(0), fake_coll.arenas));
	cr_expect(fake_holds(rank_of(0), fake_coll.verdicts));
	cr_expect(fake_holds(rank_of(0), fake_coll.board));
	client_close(client);
}

Test(request_coll, members_get_a_board_and_others_none)
{
	struct client *client = client_attach();
	const struct zi_coll_grouped *grouped = (const void *)client->in.bytes;

	send_group(client);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_COLL_GROUPED);
	cr_expect_eq(fake_coll.members[0], 3);
	cr_expect_eq(fake_coll.members[3], 9);
	cr_expect_eq(fake_coll.timeout_ns, 70 * ZI_NS_PER_MS);
	cr_expect_eq(client->fd_count, 1);
	cr_expect_eq(grouped->group, 3);
	cr_expect_eq(grouped->self, 0);
	cr_expect_eq(grouped->member_count, 2);
	cr_expect_eq(grouped->board_bytes, zi_board_bytes(2));
	rank_of(0)->attach.rank = 1;
	send_group(client);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_COLL_GROUPED);
	cr_expect_eq(client->fd_count, 0);
	cr_expect_eq(grouped->self, UINT32_MAX);
	cr_expect_eq(grouped->board_bytes, 0);
	client_close(client);
}

Test(request_coll, what_ended_before_its_answer_is_told_so)
{
	struct client *client = client_attach();

	fake_coll.is_over = true;
	send_open(client, 1);
	expect_error(client, -ESTALE, "the group ended meanwhile");
	send_group(client);
	expect_error(client, -ESTALE, "the group ended meanwhile");
	client_close(client);
}

Test(request_coll, refusals_come_with_zeros_words)
{
	struct client *client = client_attach();

	fake.result = -EDQUOT;
	send_open(client, 1);
	expect_error(client, -EDQUOT, "fake says");
	send_group(client);
	expect_error(client, -EDQUOT, "fake says");
	client_close(client);
}

Test(request_coll, a_group_is_freed_or_refused)
{
	struct client *client = client_attach();
	struct zi_coll_group_free message = { .group = 3 };

	client_send(client, &message, ZI_MESSAGE_COLL_GROUP_FREE, sizeof(message));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_expect_eq(fake_coll.freed, 3);
	message.group = UINT32_MAX;
	client_send(client, &message, ZI_MESSAGE_COLL_GROUP_FREE, sizeof(message));
	settle();
	expect_error(client, -EPERM, "fake has group 3 alone");
	cr_expect_eq(fake_coll.freed, UINT32_MAX);
	client_close(client);
}

Test(request_coll, a_failure_is_answered_by_the_groups_error)
{
	struct client *client = client_attach();

	send_fail(client);
	expect_error(client, -ETIMEDOUT, "fake blames nobody");
	cr_expect_eq(client->in.header.sequence, client->sequence);
	cr_expect_eq(fake_coll.report.group, 7);
	cr_expect_eq(fake_coll.report.sequence, 8);
	cr_expect_eq(fake_coll.report.error, -ETIMEDOUT);
	client_close(client);
}

Test(request_coll, a_group_is_aborted_or_it_is_refused)
{
	struct client *client = client_attach();
	struct zi_coll_abort message = { .group = 3, .reason = "a bad batch" };

	client_send(client, &message, ZI_MESSAGE_COLL_ABORT, sizeof(message));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_expect_eq(fake_coll.aborted, 3);
	cr_expect_str_eq(fake_coll.reason, "a bad batch");
	message.group = 4;
	client_send(client, &message, ZI_MESSAGE_COLL_ABORT, sizeof(message));
	settle();
	expect_error(client, -EPERM, "fake has group 3 alone");
	memset(message.reason, 'x', sizeof(message.reason));
	client_send(client, &message, ZI_MESSAGE_COLL_ABORT, sizeof(message));
	expect_end(client, "COLL_ABORT");
	client_close(client);
}

Test(request_coll, timeouts_of_collectives_are_told_to_whoever_knows_them)
{
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR,
		                  .features = ZI_FEATURE_COLL_ABORT | ZI_FEATURE_COLL_VERSION,
		                  .coll_version = ZI_COLL_VERSION };
	struct zi_coll_open message = { .arena_bytes = 1, .call_timeout_ms = 70 };
	struct zi_attach attach = attach_template();
	struct client *client = client_attach();

	cr_expect_eq(client->in.attached.coll_timeout_ms, 0, "its HELLO has no feature");
	client_close(client);
	settle();
	client = client_connect();
	client_send(client, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_HELLO);
	client_send(client, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ATTACHED);
	cr_expect_eq(client->in.attached.coll_timeout_ms, 450000);
	client_send(client, &message, ZI_MESSAGE_COLL_OPEN, sizeof(message));
	settle();
	cr_expect_eq(fake_coll.call_timeout_ns, 70 * ZI_NS_PER_MS);
	client_close(client);
}

Test(request_coll, what_a_rank_refuses_itself_is_zeros_to_tell)
{
	struct zi_coll_open open = { .error = -EOVERFLOW, .reason = "too much" };
	struct zi_coll_group group = { .error = -EINVAL, .reason = "rank 1 is named twice" };
	static const int none[] = { 1, INT32_MIN, -4096 };
	struct client *client = client_attach();

	client_send(client, &open, ZI_MESSAGE_COLL_OPEN, sizeof(open));
	settle();
	expect_error(client, -EOVERFLOW, "too much");
	cr_expect_eq(fake_coll.refusal, -EOVERFLOW);
	client_send(client, &group, ZI_MESSAGE_COLL_GROUP, sizeof(group));
	settle();
	expect_error(client, -EINVAL, "rank 1 is named twice");
	cr_expect_eq(fake_coll.refusal, -EINVAL);
	/* What is no errno is nobody's error. */
	fake_coll.refusal = 0;
	for (uint32_t i = 0; i < ZI_COUNT_OF(none); i++) {
		open.error = group.error = none[i];
		client_send(client, &open, ZI_MESSAGE_COLL_OPEN, sizeof(open));
		settle();
		expect_error(client, -EINVAL, "COLL_OPEN: error");
		client_send(client, &group, ZI_MESSAGE_COLL_GROUP, sizeof(group));
		settle();
		expect_error(client, -EINVAL, "0 or a negative errno is expected");
	}
	cr_expect_eq(fake_coll.refusal, 0);
	/* It must end. */
	memset(group.reason, 'x', sizeof(group.reason));
	client_send(client, &group, ZI_MESSAGE_COLL_GROUP, sizeof(group));
	expect_end(client, "COLL_GROUP");
	client_close(client);
}

/* ---- versions ---- */

static struct client *client_of_version(const struct zi_hello *hello)
{
	struct zi_attach attach = attach_template();
	struct client *client = client_connect();
	struct zi_hello copy = *hello;

	client_send(client, &copy, ZI_MESSAGE_HELLO, sizeof(copy));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_HELLO);
	client_send(client, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ATTACHED);
	return client;
}

/* As version 1 sent it, and of a later one that is longer. */
Test(request_coll, a_client_of_another_version_is_told_both_and_lives)
{
	static const struct zi_hello hellos[] = {
		{ .major = ZI_PROTOCOL_MAJOR, .features = ZI_FEATURE_COLLECTIVES },
		/* Not under its feature bit: it may be anything. */
		{ .major = ZI_PROTOCOL_MAJOR,
		  .features = ZI_FEATURE_COLLECTIVES,
		  .coll_version = ZI_COLL_VERSION },
		{ .major = ZI_PROTOCOL_MAJOR,
		  .features = ZI_FEATURE_COLLECTIVES | ZI_FEATURE_COLL_VERSION,
		  .coll_version = ZI_COLL_VERSION + 1 },
	};
	static const uint32_t lengths[] = { 336, 336, sizeof(struct zi_coll_open) + 64 };
	static struct {
		struct zi_coll_open known;
		char later[64];
	} message;

	for (uint32_t i = 0; i < ZI_COUNT_OF(hellos); i++) {
		struct client *client = client_of_version(&hellos[i]);
		struct zi_text words;

		memset(&message, 0x7f, sizeof(message));
		client_send(client, &message, ZI_MESSAGE_COLL_OPEN, lengths[i]);
		settle();
		zi_text_set(&words,
		            "libzinf makes collectives by version %u, zinfd " ZINF_VERSION
		            " by version %u",
		            i < 2 ? 1 : ZI_COLL_VERSION + 1, ZI_COLL_VERSION);
		expect_error(client, -EPROTONOSUPPORT, words.chars);
		cr_expect_eq(fake_coll.arena_bytes, 0, "zero has heard what it asks for");
		/* Who waits for this rank is. */
		cr_expect_eq(fake_coll.refusal, -EPROTONOSUPPORT);
		cr_expect_eq(strncmp(fake_coll.refusal_text.chars, "its libzinf makes", 17), 0);
		/* It goes on with what has no version. */
		client_send_plain(client, ZI_MESSAGE_DETACH);
		settle();
		cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
		client_close(client);
		settle();
	}
}

Test(request_coll, a_broken_incarnation_still_answers_for_its_groups)
{
	struct client *client = client_attach();
	struct zi_coll_group_free message = { .group = 3 };
	struct zi_coll_abort abort = { .group = 3 };
	struct zi_text text = { "rank 1 (pid 7) died" };

	rank_of(0)->attach.broken(rank_of(0)->attach.broken_arg, -EPIPE, 1, &text);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_NOTICE);
	send_fail(client);
	expect_error(client, -ETIMEDOUT, "fake blames nobody");
	client_send(client, &message, ZI_MESSAGE_COLL_GROUP_FREE, sizeof(message));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	client_send(client, &abort, ZI_MESSAGE_COLL_ABORT, sizeof(abort));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	/* What needs every rank hears why not. */
	send_group(client);
	expect_error(client, -EPIPE, "rank 1 (pid 7) died");
	send_open(client, 1);
	expect_error(client, -EPIPE, "rank 1 (pid 7) died");
	client_close(client);
}

Test(request_coll, one_while_another_is_pending_ends_the_session)
{
	struct client *client = client_attach();

	fake.holds = true;
	send_open(client, 1);
	send_fail(client);
	expect_end(client, "COLL_FAIL while COLL_OPEN is pending");
	client_close(client);
}

Test(request_coll, none_comes_before_attach)
{
	struct client *client = client_connect();

	client_hello(client);
	send_open(client, 1);
	expect_error(client, -EPROTO, "COLL_OPEN");
	client_close(client);
	settle();
}

Test(request_coll, the_daemons_answers_are_no_requests)
{
	struct client *client = client_attach();
	struct zi_coll_opened message = { 0 };

	client_send(client, &message, ZI_MESSAGE_COLL_OPENED, sizeof(message));
	expect_end(client, "unexpected COLL_OPENED in a session");
	client_close(client);
}

Test(request_coll, a_reserved_bit_ends_the_session)
{
	struct client *client = client_attach();
	struct zi_coll_fail message = { .reserved = { 0, 0, 0, 1 } };

	client_send(client, &message, ZI_MESSAGE_COLL_FAIL, sizeof(message));
	expect_end(client, "COLL_FAIL with reserved bytes set");
	client_close(client);
}

Test(request_coll, spinning_is_looked_at_when_sessions_come_open_and_go)
{
	struct client *client = client_attach();

	cr_expect_eq(fake_coll.cpu_count, 2);
	cr_expect_eq(fake_coll.spin_us, 50);
	fake_coll.spin_us = 0;
	send_open(client, 1);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_COLL_OPENED);
	cr_expect_eq(fake_coll.spin_us, 50);
	fake_coll.spin_us = 0;
	client_send_plain(client, ZI_MESSAGE_DETACH);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_expect_eq(fake_coll.spin_us, 50);
	client_close(client);
}
