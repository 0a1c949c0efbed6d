/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a client that lies on the control socket, in its messages or in their order, loses its own
 * connection only, and is told why. Method: a raw client sends what no
 * libzinf would; see hostile.h for what must hold afterwards.
 */
#include "tests/system/hostile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

TestSuite(hostile_socket, .init = hostile_open, .fini = hostile_close, .timeout = 120);

/* Connects, sends one packet, and must be cut off. @error: what the daemon's ERROR must say; 0:
 * any. */
static void expect_cut_off(const void *bytes, size_t byte_count, int error)
{
	int type;

	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(raw_send(&raw, bytes, byte_count, NULL, 0), 0);
	type = raw_receive(&raw);
	if (error) {
		cr_assert_eq(type, ZI_MESSAGE_ERROR, "%d", type);
		cr_assert_eq(raw.reply.error.error, error, "%d", raw.reply.error.error);
		cr_assert_gt(strlen(raw.reply.error.text.chars), 0);
	}
	if (type)
		cr_assert(raw_is_ended(&raw));
	raw_close(&raw);
}

Test(hostile_socket, garbage_instead_of_a_greeting_ends_the_connection)
{
	static unsigned char garbage[200000];
	struct zi_hello hello = hello_of(ZI_PROTOCOL_MAJOR);

	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (unsigned char)(i * 2654435761u >> 13);
	expect_cut_off(garbage, 1, 0);
	expect_cut_off(garbage, 8, 0);
	expect_cut_off(garbage, 16, -EPROTO);
	expect_cut_off(garbage, 4096, -EPROTO);
	expect_cut_off(garbage, ZI_MESSAGE_BYTES_MAX + 1, -EPROTO);
	expect_cut_off(garbage, sizeof(garbage), -EPROTO);
	expect_cut_off(&hello, sizeof(hello) - 1, -EPROTO); /* cut short */
	hello.header.bytes = 16;                            /* lies */
	expect_cut_off(&hello, sizeof(hello), -EPROTO);
	hello = hello_of(ZI_PROTOCOL_MAJOR);
	memset(hello.program, 'a', sizeof(hello.program)); /* a text without end */
	expect_cut_off(&hello, sizeof(hello), -EPROTO);
}

Test(hostile_socket, an_empty_packet_ends_the_connection_or_is_nothing)
{
	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(send(raw.socket_fd, "", 0, MSG_NOSIGNAL), 0);
	cr_assert(raw_is_ended(&raw)); /* it says nothing more: handshake_ms at the latest */
}

Test(hostile_socket, another_major_version_is_refused_in_words)
{
	struct zi_hello hello = hello_of(ZI_PROTOCOL_MAJOR + 1);

	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(raw_send(&raw, &hello, sizeof(hello), NULL, 0), 0);
	cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_ERROR);
	cr_assert_eq(raw.reply.error.error, -EPROTONOSUPPORT);
	system_expect_text(raw.reply.error.text.chars, "2.0");
	system_expect_text(raw.reply.error.text.chars, "1.0");
	cr_assert(raw_is_ended(&raw));
}

Test(hostile_socket, messages_out_of_order_end_the_connection)
{
	for (enum zi_message_type type = 0; type <= _ZI_MESSAGE_COUNT; type++) {
		struct zi_message_header header = { ZI_CONTROL_MAGIC, (uint16_t)type, 0,
			                            sizeof(header), 1 };

		expect_cut_off(&header, sizeof(header), -EPROTO); /* before HELLO */
		cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
		cr_assert_eq(raw_hello(&raw), 0);
		cr_assert_eq(raw_send(&raw, &header, sizeof(header), NULL, 0), 0);
		cr_assert(raw_is_ended(&raw), "type %d after HELLO", type);
		raw_close(&raw);
	}
}

/* In a session: what is of another side, of another time, or unknown. */
Test(hostile_socket, wrong_messages_in_a_session_end_it)
{
	static const uint16_t types[] = { 0,
		                          ZI_MESSAGE_HELLO,
		                          ZI_MESSAGE_ATTACH,
		                          ZI_MESSAGE_ATTACHED,
		                          ZI_MESSAGE_MATERIALIZED,
		                          ZI_MESSAGE_BLOB,
		                          ZI_MESSAGE_NOTICE,
		                          ZI_MESSAGE_ADMIN,
		                          99,
		                          UINT16_MAX };

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		struct zi_message_header header = { ZI_CONTROL_MAGIC, types[i], 0, sizeof(header),
			                            1 };

		attack_attached();
		cr_assert_eq(raw_send(&raw, &header, sizeof(header), NULL, 0), 0);
		cr_assert(raw_is_ended(&raw), "type %u", types[i]);
		raw_close(&raw);
	}
}

static void expect_attach_refused(const struct zi_attach *message, int error, const char *part)
{
	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(raw_hello(&raw), 0);
	cr_assert_eq(raw_attach(&raw, message), error, "%s", raw.reply.error.text.chars);
	if (part)
		system_expect_text(raw.reply.error.text.chars, part);
	raw_close(&raw);
}

Test(hostile_socket, an_attach_that_lies_is_refused)
{
	struct zi_attach good, bad;

	raw_attach_message(&good, "attacker", "raw", 0, 1);
	bad = good;
	memset(bad.job, 'a', sizeof(bad.job)); /* no NUL */
	expect_attach_refused(&bad, -EPROTO, NULL);
	bad = good;
	(void)snprintf(bad.job, sizeof(bad.job), "%s", "../../etc/passwd");
	expect_attach_refused(&bad, -EINVAL, "job name");
	bad = good;
	bad.job[0] = '\0';
	expect_attach_refused(&bad, -EINVAL, "job name");
	bad = good;
	bad.world_size = UINT32_MAX;
	expect_attach_refused(&bad, -EINVAL, "1 to 64");
	bad = good;
	bad.rank = 1;
	expect_attach_refused(&bad, -EINVAL, "rank 1 of a world of 1");
	bad = good;
	bad.reserved[2] = 1;
	expect_attach_refused(&bad, -EPROTO, NULL);
	bad = good;
	bad.flags = 0x80000000u;
	expect_attach_refused(&bad, -EPROTO, NULL);
	bad = good;
	bad.config.optimizer = 77;
	expect_attach_refused(&bad, -EINVAL, "optimizer is 77");
	bad = good;
	bad.config.staging_bytes = UINT64_MAX;
	expect_attach_refused(&bad, -EINVAL, "staging_bytes");
}

/* ---- layouts ---- */

struct layout_message {
	struct zi_layout head;
	struct zi_layout_entry entries[ZI_LAYOUT_ENTRIES_MAX];
};

/* A unit and one parameter, as a whole message. */
static size_t put_layout(struct layout_message *message)
{
	size_t bytes = sizeof(message->head) + 2 * sizeof(message->entries[0]);

	*message = (struct layout_message){
		.head = { { ZI_CONTROL_MAGIC, ZI_MESSAGE_LAYOUT, 0, (uint32_t)bytes, 3 }, 2, 0 },
		.entries = { { .kind = ZI_LAYOUT_UNIT, .name = "unit" },
		             { .kind = ZI_LAYOUT_PARAM,
		               .dim_count = 2,
		               .name = "weight",
		               .shape = { 3, 4 } } },
	};
	return bytes;
}

/* What the spoiled layout earns: the end of the session (-EPROTO), or a refused MATERIALIZE. */
static void expect_layout_refused(const struct layout_message *message, size_t bytes, int error,
                                  const char *part)
{
	attack_attached();
	cr_assert_eq(raw_send(&raw, message, bytes, NULL, 0), 0);
	if (error == -EPROTO) {
		cr_assert(raw_is_ended(&raw));
	} else {
		cr_assert_eq(raw_materialize(&raw, 1), error, "%s", raw.reply.error.text.chars);
		system_expect_text(raw.reply.error.text.chars, part);
	}
	raw_close(&raw);
}

Test(hostile_socket, a_layout_that_lies_is_refused)
{
	static struct layout_message message;
	size_t bytes = put_layout(&message);

	message.head.entry_count = 3;
	expect_layout_refused(&message, bytes, -EPROTO, NULL);
	message.head.entry_count = UINT32_MAX;
	expect_layout_refused(&message, bytes, -EPROTO, NULL);
	(void)put_layout(&message);
	message.entries[1].kind = 7;
	expect_layout_refused(&message, bytes, -EPROTO, NULL);
	(void)put_layout(&message);
	message.entries[1].dim_count = UINT32_MAX;
	expect_layout_refused(&message, bytes, -EPROTO, NULL);
	(void)put_layout(&message);
	memset(message.entries[1].name, 'n', sizeof(message.entries[1].name));
	expect_layout_refused(&message, bytes, -EPROTO, NULL);
	(void)put_layout(&message);
	message.entries[1].name[0] = '\n';
	expect_layout_refused(&message, bytes, -EINVAL, "0x0a");
	(void)put_layout(&message);
	message.entries[1].shape[0] = message.entries[1].shape[1] = 1ull << 40;
	expect_layout_refused(&message, bytes, -EINVAL, "2^48");
	(void)put_layout(&message);
	message.entries[1].shape[0] = message.entries[1].shape[1] = UINT64_MAX;
	expect_layout_refused(&message, bytes, -EINVAL, "2^48");
	(void)put_layout(&message);
	message.entries[1].shape[0] = 0;
	expect_layout_refused(&message, bytes, -EINVAL, "0 elements");
	(void)put_layout(&message);
	message.entries[0].kind = ZI_LAYOUT_PARAM; /* before any unit */
	expect_layout_refused(&message, bytes, -EINVAL, "");
}

Test(hostile_socket, a_layout_beyond_memory_is_refused_with_the_figures)
{
	static struct layout_message message;
	size_t bytes = put_layout(&message);

	message.entries[1].shape[0] = 1ull << 36; /* 2^38 elements: a TiB of parameters */
	expect_layout_refused(&message, bytes, -ENOSPC, "take 2 TiB, cpu:0 has 256 MiB in all");
}

Test(hostile_socket, layouts_beyond_the_limits_are_refused_with_the_figure)
{
	static struct layout_message message;

	(void)put_layout(&message);
	message.head.entry_count = ZI_LAYOUT_ENTRIES_MAX;
	message.head.header.bytes = (uint32_t)(sizeof(message.head) +
	                                       ZI_LAYOUT_ENTRIES_MAX * sizeof(message.entries[0]));
	for (uint32_t i = 1; i < ZI_LAYOUT_ENTRIES_MAX; i++)
		message.entries[i] = message.entries[1];
	attack_attached();
	for (uint32_t i = 0; i < 50; i++) /* far more than is kept */
		cr_assert_eq(raw_send(&raw, &message, message.head.header.bytes, NULL, 0), 0);
	cr_assert_eq(raw_send_materialize(&raw, 50, 50 * (ZI_LAYOUT_ENTRIES_MAX - 1)), 0);
	cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_ERROR);
	cr_assert_eq(raw.reply.error.error, -E2BIG);
	system_expect_text(raw.reply.error.text.chars, "256");
}

Test(hostile_socket, a_second_request_while_one_is_pending_ends_the_session)
{
	cr_assert_eq(raw_join(&raw, harness.socket_path, "attacker", 0, 2), 0);
	cr_assert_eq(raw_layout(&raw, 1, 100), 0);
	cr_assert_eq(raw_send_materialize(&raw, 1, 1), 0); /* waits for rank 1 */
	cr_assert_eq(raw_send_materialize(&raw, 1, 1), 0);
	cr_assert(raw_is_ended(&raw));
}
