/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever comes over the socket is either one whole message or an error that leaves no
 * descriptor behind. Method: a socket pair; every malformed kind is sent raw; /proc/self/fd (by
 * number) is counted around it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire/control.h"
#include "common/wire/gpu.h"
#include "common/wire/state.h"

static int sockets[2];
static _Alignas(8) char buffer[ZI_MESSAGE_BYTES_MAX];

static void setup(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets),
	             0);
	memset(buffer, 0, sizeof(buffer));
}

static void teardown(void)
{
	close(sockets[0]);
	close(sockets[1]);
}

TestSuite(message, .init = setup, .fini = teardown);

static int open_fd_count(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Raw bytes with @fd_count copies of stdin. */
static void send_raw(const void *bytes, size_t count, uint32_t fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(64 * sizeof(int))];
	} control = { 0 };
	struct iovec part = { .iov_base = (void *)bytes, .iov_len = count };
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };

	if (fd_count) {
		packet.msg_control = control.bytes;
		packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memset(CMSG_DATA(&control.align), 0, fd_count * sizeof(int));
	}
	cr_assert_eq(sendmsg(sockets[0], &packet, 0), (ssize_t)count);
}

static struct zi_message_header header_of(uint32_t bytes)
{
	struct zi_message_header header;

	zi_message_init(&header, ZI_MESSAGE_DONE, sizeof(header), 9);
	header.bytes = bytes;
	return header;
}

Test(message, packet_travels_whole_with_its_descriptors)
{
	struct zi_hello hello = { .major = 3, .program = "x" };
	int pipe_fds[2], fds[ZI_MESSAGE_FDS_MAX];
	uint32_t fd_count = 77;
	char byte = 0;

	cr_assert_eq(pipe(pipe_fds), 0);
	zi_message_init(&hello.header, ZI_MESSAGE_HELLO, sizeof(hello), 42);
	cr_assert_eq(zi_message_send(sockets[0], &hello.header, pipe_fds, 2), 0);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), 0);
	cr_assert_eq(memcmp(buffer, &hello, sizeof(hello)), 0);
	cr_assert_eq(fd_count, 2);
	cr_assert_eq(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	cr_assert_eq(write(pipe_fds[1], "y", 1), 1);
	cr_assert_eq(read(fds[0], &byte, 1), 1);
	cr_assert_eq(byte, 'y');
	cr_assert_eq(zi_message_check((struct zi_message_header *)buffer, NULL), 0);
}

Test(message, most_descriptors_and_most_bytes_fit)
{
	static _Alignas(8) char large[ZI_MESSAGE_BYTES_MAX];
	int zeros[ZI_MESSAGE_FDS_MAX] = { 0 }, fds[ZI_MESSAGE_FDS_MAX];
	uint32_t fd_count;

	zi_message_init((struct zi_message_header *)large, ZI_MESSAGE_BLOB, sizeof(large), 1);
	large[sizeof(large) - 1] = 'z';
	cr_assert_eq(zi_message_send(sockets[0], (struct zi_message_header *)large, zeros,
	                             ZI_MESSAGE_FDS_MAX),
	             0);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), 0);
	cr_assert_eq(fd_count, ZI_MESSAGE_FDS_MAX);
	cr_assert_eq(buffer[sizeof(large) - 1], 'z');
}

Test(message, every_malformed_packet_is_eproto_and_closes_what_it_brought)
{
	static _Alignas(8) char large[ZI_MESSAGE_BYTES_MAX + 8];
	struct zi_message_header wrong_magic = header_of(16), too_long = header_of(17),
				 too_short = header_of(8), huge = header_of(UINT32_MAX);
	const struct {
		const void *bytes;
		size_t count;
	} cases[] = {
		{ "x", 1 },         { &too_long, 15 }, { &wrong_magic, 16 },     { &too_long, 16 },
		{ &too_short, 16 }, { &huge, 16 },     { large, sizeof(large) },
	};
	int before = open_fd_count();

	wrong_magic.magic ^= 1;
	zi_message_init((struct zi_message_header *)large, ZI_MESSAGE_BLOB, ZI_MESSAGE_BYTES_MAX,
	                1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fds[ZI_MESSAGE_FDS_MAX] = { -7 };
		uint32_t fd_count = 77;

		send_raw(cases[i].bytes, cases[i].count, 3);
		cr_expect_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), -EPROTO, "%zu",
		             i);
		cr_expect_eq(fd_count, 77, "untouched on failure");
		cr_expect_eq(fds[0], -7, "untouched on failure");
		cr_expect_eq(open_fd_count(), before, "%zu", i);
	}
}

Test(message, too_many_descriptors_are_eproto_and_all_closed)
{
	struct zi_message_header header = header_of(16);
	int fds[ZI_MESSAGE_FDS_MAX];
	int before = open_fd_count();
	uint32_t fd_count;

	send_raw(&header, sizeof(header), ZI_MESSAGE_FDS_MAX + 1);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), -EPROTO);
	cr_assert_eq(open_fd_count(), before);
	send_raw(&header, sizeof(header), 64);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), -EPROTO);
	cr_assert_eq(open_fd_count(), before);
}

Test(message, descriptors_nobody_wants_are_dropped)
{
	struct zi_message_header header = header_of(16);
	int before = open_fd_count();

	send_raw(&header, sizeof(header), 5);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, NULL, NULL), 0);
	cr_assert_eq(open_fd_count(), before);
}

/* The kernel adds the sender's credentials, which leave no room for descriptors. */
Test(message, credentials_are_no_descriptors)
{
	struct zi_message_header header = header_of(16);
	int fds[ZI_MESSAGE_FDS_MAX], on = 1, before = open_fd_count();
	uint32_t fd_count = 77;

	cr_assert_eq(setsockopt(sockets[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	send_raw(&header, sizeof(header), 0);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), 0);
	cr_assert_eq(fd_count, 0);
	send_raw(&header, sizeof(header), ZI_MESSAGE_FDS_MAX);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), -EPROTO);
	cr_assert_eq(open_fd_count(), before);
}

Test(message, receiver_without_free_descriptors_says_eproto)
{
	struct zi_message_header header = header_of(16);
	int fds[ZI_MESSAGE_FDS_MAX];
	uint32_t fd_count;
	struct rlimit saved, none;

	send_raw(&header, sizeof(header), 2);
	getrlimit(RLIMIT_NOFILE, &saved);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = saved.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	cr_expect_eq(zi_message_receive(sockets[1], buffer, fds, &fd_count), -EPROTO);
	setrlimit(RLIMIT_NOFILE, &saved);
}

Test(message, ends_of_the_stream_are_told_apart_from_silence)
{
	struct zi_message_header header = header_of(16);

	cr_assert_eq(zi_message_receive(sockets[1], buffer, NULL, NULL), -EAGAIN);
	cr_assert_eq(zi_message_send(sockets[0], &header, NULL, 0), 0);
	shutdown(sockets[0], SHUT_WR);
	cr_assert_eq(zi_message_receive(sockets[1], buffer, NULL, NULL), 0,
	             "what was sent arrives");
	cr_assert_eq(zi_message_receive(sockets[1], buffer, NULL, NULL), -ECONNRESET);
}

Test(message, sending_to_nobody_is_epipe_without_a_signal)
{
	struct zi_message_header header = header_of(16);

	close(sockets[1]);
	cr_assert_eq(zi_message_send(sockets[0], &header, NULL, 0), -EPIPE);
	sockets[1] = dup(0);
}

Test(message, full_socket_is_eagain)
{
	struct zi_message_header header = header_of(16);
	int r = 0;

	for (int i = 0; i < 100000 && !r; i++)
		r = zi_message_send(sockets[0], &header, NULL, 0);
	cr_assert_eq(r, -EAGAIN);
}

/* ---- the shape of each type ---- */

static const struct {
	uint16_t type;
	uint32_t bytes;
	bool is_streamed;
} shapes[] = {
	{ ZI_MESSAGE_HELLO, 128, false },       { ZI_MESSAGE_ATTACH, 272, false },
	{ ZI_MESSAGE_ATTACHED, 88, false },     { ZI_MESSAGE_MATERIALIZE, 24, false },
	{ ZI_MESSAGE_MATERIALIZED, 80, false }, { ZI_MESSAGE_PARAM_WRITE_BEGIN, 24, false },
	{ ZI_MESSAGE_PARAM_WRITE, 24, false },  { ZI_MESSAGE_PARAM_WRITE_END, 24, false },
	{ ZI_MESSAGE_BLOB_GET, 16, false },     { ZI_MESSAGE_BLOB, 24, true },
	{ ZI_MESSAGE_DETACH, 16, false },       { ZI_MESSAGE_DESTROY, 16, false },
	{ ZI_MESSAGE_DONE, 16, false },         { ZI_MESSAGE_ERROR, 280, false },
	{ ZI_MESSAGE_NOTICE, 280, false },      { ZI_MESSAGE_ADMIN, 1040, false },
	{ ZI_MESSAGE_ADMIN_REPLY, 16, true },   { ZI_MESSAGE_LOAD, 176, false },
	{ ZI_MESSAGE_SNAPSHOT, 120, false },    { ZI_MESSAGE_SNAPSHOTTED, 128, false },
	{ ZI_MESSAGE_TENSOR_OPEN, 56, false },  { ZI_MESSAGE_TENSOR_OPENED, 56, false },
	{ ZI_MESSAGE_COLL_OPEN, 560, false },   { ZI_MESSAGE_COLL_OPENED, 152, false },
	{ ZI_MESSAGE_COLL_GROUP, 248, false },  { ZI_MESSAGE_COLL_GROUPED, 72, false },
	{ ZI_MESSAGE_COLL_FAIL, 88, false },    { ZI_MESSAGE_COLL_GROUP_FREE, 24, false },
	{ ZI_MESSAGE_COLL_ABORT, 184, false },  { ZI_MESSAGE_STATE_OPEN, 16, false },
	{ ZI_MESSAGE_STATE_OPENED, 56, false }, { ZI_MESSAGE_STATE_READ, 72, false },
	{ ZI_MESSAGE_STATE_WRITE, 72, false },  { ZI_MESSAGE_STATE_COUNT, 64, false },
	{ ZI_MESSAGE_GPU_OPEN, 120, false },    { ZI_MESSAGE_GPU_OPENED, 88, false },
	{ ZI_MESSAGE_GPU_CHUNKS, 40, false },
};

static struct zi_message_header *message_of(uint16_t type, uint32_t bytes)
{
	struct zi_message_header *message = (struct zi_message_header *)buffer;

	memset(buffer, 0, sizeof(buffer));
	zi_message_init(message, (enum zi_message_type)type, bytes, 1);
	return message;
}

Test(message, each_type_has_its_length)
{
	struct zi_text text;

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		uint16_t type = shapes[i].type;
		uint32_t bytes = shapes[i].bytes;
		int more = shapes[i].is_streamed ? 0 : -EPROTO;

		cr_expect_eq(zi_message_check(message_of(type, bytes), &text), 0, "%u", type);
		cr_expect_eq(zi_message_check(message_of(type, bytes + 8), &text), more, "%u",
		             type);
		if (bytes > 16) {
			cr_expect_eq(zi_message_check(message_of(type, bytes - 8), &text), -EPROTO);
			cr_expect_not_null(strstr(text.chars, zi_message_name(type)), "%s",
			                   text.chars);
		}
		cr_expect_str_neq(zi_message_name(type), "?");
	}
}

Test(message, attach_may_have_its_whole_tail_or_none)
{
	const uint32_t wrong[] = { 264, 280, 336, 392, 408 };
	struct zi_text text;

	cr_expect_eq(zi_message_check(message_of(ZI_MESSAGE_ATTACH, 272), &text), 0);
	cr_expect_eq(zi_message_check(message_of(ZI_MESSAGE_ATTACH, 400), &text), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_expect_eq(zi_message_check(message_of(ZI_MESSAGE_ATTACH, wrong[i]), &text),
		             -EPROTO, "%u", wrong[i]);
		cr_expect_not_null(strstr(text.chars, "exactly 272 or 400 expected"), "%s",
		                   text.chars);
	}
}

Test(message, materialize_may_have_its_whole_tail_or_none)
{
	static const size_t fields[][2] = {
		{ offsetof(struct zi_materialize_nodes, rendezvous.host), ZI_RENDEZVOUS_BYTES },
		{ offsetof(struct zi_materialize_nodes, rendezvous.interface), ZI_INTERFACE_BYTES },
		{ offsetof(struct zi_materialize_nodes, rendezvous.token), ZI_TOKEN_BYTES },
	};
	struct zi_message_header *message;
	struct zi_text text;

	cr_expect_eq(zi_message_check(message_of(ZI_MESSAGE_MATERIALIZE, 24), &text), 0);
	cr_expect_eq(zi_message_check(message_of(ZI_MESSAGE_MATERIALIZE, 368), &text), 0);
	for (uint32_t bytes = 32; bytes <= 400; bytes += 8)
		if (bytes != 368)
			cr_expect_eq(
				zi_message_check(message_of(ZI_MESSAGE_MATERIALIZE, bytes), &text),
				-EPROTO, "%u", bytes);
	cr_expect_not_null(strstr(text.chars, "exactly 24 or 368 expected"), "%s", text.chars);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		message = message_of(ZI_MESSAGE_MATERIALIZE, 368);
		memset(buffer + fields[i][0], 'a', fields[i][1]);
		cr_expect_eq(zi_message_check(message, NULL), -EPROTO, "%zu", i);
		buffer[fields[i][0] + fields[i][1] - 1] = '\0';
		cr_expect_eq(zi_message_check(message, NULL), 0, "%zu", i);
	}
	message = message_of(ZI_MESSAGE_MATERIALIZE, 368);
	buffer[offsetof(struct zi_materialize_nodes, rendezvous.reserved)] = 1;
	cr_expect_eq(zi_message_check(message, NULL), -EPROTO);
}

Test(message, unknown_types_and_flags_are_eproto)
{
	struct zi_message_header *message = message_of(ZI_MESSAGE_DONE, 16);

	message->type = 0;
	cr_assert_eq(zi_message_check(message, NULL), -EPROTO);
	message->type = _ZI_MESSAGE_COUNT;
	cr_assert_eq(zi_message_check(message, NULL), -EPROTO);
	message->type = UINT16_MAX;
	cr_assert_eq(zi_message_check(message, NULL), -EPROTO);
	cr_assert_str_eq(zi_message_name(0), "?");
	cr_assert_str_eq(zi_message_name(UINT16_MAX), "?");
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		message = message_of(shapes[i].type, shapes[i].bytes);
		message->flags = ZI_MESSAGE_MORE;
		cr_expect_eq(zi_message_check(message, NULL),
		             shapes[i].is_streamed || shapes[i].type == ZI_MESSAGE_PARAM_WRITE_END
		                     ? 0
		                     : -EPROTO);
		message->flags = 1 << 15;
		cr_expect_eq(zi_message_check(message, NULL), -EPROTO);
	}
}

Test(message, strings_must_end_within_their_fields)
{
	const struct {
		uint16_t type;
		size_t offset, bytes;
	} cases[] = {
		{ ZI_MESSAGE_HELLO, offsetof(struct zi_hello, program), ZI_NAME_BYTES },
		{ ZI_MESSAGE_ATTACH, offsetof(struct zi_attach, job), ZI_NAME_BYTES },
		{ ZI_MESSAGE_ATTACH, offsetof(struct zi_attach, incarnation), ZI_NAME_BYTES },
		{ ZI_MESSAGE_ERROR, offsetof(struct zi_error_message, text), ZI_TEXT_BYTES },
		{ ZI_MESSAGE_NOTICE, offsetof(struct zi_notice, text), ZI_TEXT_BYTES },
		{ ZI_MESSAGE_ADMIN, offsetof(struct zi_admin, command), ZI_ADMIN_COMMAND_BYTES },
		{ ZI_MESSAGE_LOAD, offsetof(struct zi_load, job), ZI_NAME_BYTES },
		{ ZI_MESSAGE_LOAD, offsetof(struct zi_load, name), ZI_NAME_BYTES },
		{ ZI_MESSAGE_SNAPSHOT, offsetof(struct zi_snapshot, name), ZI_NAME_BYTES },
		{ ZI_MESSAGE_SNAPSHOTTED, offsetof(struct zi_snapshotted, name), ZI_NAME_BYTES },
		{ ZI_MESSAGE_COLL_OPEN, offsetof(struct zi_coll_open, rendezvous_host),
		  ZI_RENDEZVOUS_BYTES },
		{ ZI_MESSAGE_COLL_OPEN, offsetof(struct zi_coll_open, interface),
		  ZI_INTERFACE_BYTES },
		{ ZI_MESSAGE_COLL_OPEN, offsetof(struct zi_coll_open, token), ZI_TOKEN_BYTES },
		{ ZI_MESSAGE_COLL_OPEN, offsetof(struct zi_coll_open, reason), ZI_REASON_BYTES },
		{ ZI_MESSAGE_COLL_GROUP, offsetof(struct zi_coll_group, reason), ZI_REASON_BYTES },
		{ ZI_MESSAGE_COLL_GROUP, offsetof(struct zi_coll_group, name),
		  ZI_GROUP_NAME_BYTES },
		{ ZI_MESSAGE_GPU_OPEN, offsetof(struct zi_gpu_open, uuid), 48 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
			struct zi_message_header *message;

			if (shapes[k].type != cases[i].type)
				continue;
			message = message_of(shapes[k].type, shapes[k].bytes);
			memset(buffer + cases[i].offset, 'a', cases[i].bytes);
			cr_expect_eq(zi_message_check(message, NULL), -EPROTO, "%zu", i);
			buffer[cases[i].offset + cases[i].bytes - 1] = '\0';
			cr_expect_eq(zi_message_check(message, NULL), 0, "%zu", i);
		}
}

Test(message, reserved_bytes_must_be_zero_but_in_hello)
{
	const struct {
		uint16_t type;
		size_t offset;
		int r;
	} cases[] = {
		{ ZI_MESSAGE_ATTACH, offsetof(struct zi_attach, reserved) + 23, -EPROTO },
		{ ZI_MESSAGE_ATTACH, offsetof(struct zi_attach, reserved0), -EPROTO },
		{ ZI_MESSAGE_ATTACHED, offsetof(struct zi_attached, reserved), -EPROTO },
		{ ZI_MESSAGE_MATERIALIZED, offsetof(struct zi_materialized, reserved), -EPROTO },
		{ ZI_MESSAGE_MATERIALIZED, offsetof(struct zi_materialized, reserved0), -EPROTO },
		{ ZI_MESSAGE_STATE_OPENED, offsetof(struct zi_state_opened, reserved), -EPROTO },
		{ ZI_MESSAGE_STATE_READ, offsetof(struct zi_state_range, root), -EPROTO },
		{ ZI_MESSAGE_STATE_READ, offsetof(struct zi_state_range, reserved0), -EPROTO },
		{ ZI_MESSAGE_STATE_WRITE, offsetof(struct zi_state_range, root), 0 },
		{ ZI_MESSAGE_STATE_WRITE, offsetof(struct zi_state_range, reserved), -EPROTO },
		{ ZI_MESSAGE_STATE_COUNT, offsetof(struct zi_state_count, reserved), -EPROTO },
		{ ZI_MESSAGE_GPU_OPEN, offsetof(struct zi_gpu_open, flags), 0 },
		{ ZI_MESSAGE_GPU_OPEN, offsetof(struct zi_gpu_open, reserved0), -EPROTO },
		{ ZI_MESSAGE_GPU_OPEN, offsetof(struct zi_gpu_open, reserved) + 31, -EPROTO },
		{ ZI_MESSAGE_GPU_OPENED, offsetof(struct zi_gpu_opened, reserved), -EPROTO },
		{ ZI_MESSAGE_GPU_CHUNKS, offsetof(struct zi_gpu_chunks, reserved) + 15, -EPROTO },
		{ ZI_MESSAGE_PARAM_WRITE_BEGIN, offsetof(struct zi_param_write_begin, reserved),
		  -EPROTO },
		{ ZI_MESSAGE_ERROR, offsetof(struct zi_error_message, reserved), -EPROTO },
		{ ZI_MESSAGE_COLL_OPEN, offsetof(struct zi_coll_open, reserved), -EPROTO },
		{ ZI_MESSAGE_COLL_OPENED, offsetof(struct zi_coll_opened, reserved0), -EPROTO },
		{ ZI_MESSAGE_COLL_OPENED, offsetof(struct zi_coll_opened, reserved), -EPROTO },
		{ ZI_MESSAGE_COLL_GROUPED, offsetof(struct zi_coll_grouped, reserved0), -EPROTO },
		{ ZI_MESSAGE_COLL_GROUPED, offsetof(struct zi_coll_grouped, reserved), -EPROTO },
		{ ZI_MESSAGE_COLL_GROUP_FREE, offsetof(struct zi_coll_group_free, reserved0),
		  -EPROTO },
		{ ZI_MESSAGE_COLL_ABORT, offsetof(struct zi_coll_abort, reserved0), -EPROTO },
		{ ZI_MESSAGE_COLL_ABORT, offsetof(struct zi_coll_abort, reserved), -EPROTO },
		{ ZI_MESSAGE_COLL_FAIL, offsetof(struct zi_coll_fail, reserved0), -EPROTO },
		{ ZI_MESSAGE_COLL_FAIL, offsetof(struct zi_coll_fail, reserved1), -EPROTO },
		{ ZI_MESSAGE_COLL_FAIL, offsetof(struct zi_coll_fail, reserved), -EPROTO },
		/* A newer minor version may use them, and is welcome. */
		{ ZI_MESSAGE_HELLO, offsetof(struct zi_hello, reserved), 0 },
		{ ZI_MESSAGE_HELLO, offsetof(struct zi_hello, coll_version), 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
			struct zi_message_header *message;

			if (shapes[k].type != cases[i].type)
				continue;
			message = message_of(shapes[k].type, shapes[k].bytes);
			buffer[cases[i].offset] = 1;
			cr_expect_eq(zi_message_check(message, NULL), cases[i].r, "%zu", i);
		}
}

Test(message, layout_holds_exactly_its_entries)
{
	const uint32_t entry_bytes = sizeof(struct zi_layout_entry);
	const struct {
		uint32_t entries, bytes;
		int r;
	} cases[] = {
		{ 1, 24 + entry_bytes, 0 },
		{ ZI_LAYOUT_ENTRIES_MAX, 24 + ZI_LAYOUT_ENTRIES_MAX * entry_bytes, 0 },
		{ 0, 24, -EPROTO },
		{ 0, 24 + entry_bytes, -EPROTO },
		{ 2, 24 + entry_bytes, -EPROTO },
		{ 1, 24 + entry_bytes + 1, -EPROTO },
		{ UINT32_MAX, 24 + entry_bytes, -EPROTO },
		/* 24 + n × 168 wraps to the packet's length in 32 bits */
		{ 0x20000000u + 1, 24 + entry_bytes, -EPROTO },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct zi_message_header *message = message_of(ZI_MESSAGE_LAYOUT, cases[i].bytes);

		((struct zi_layout *)message)->entry_count = cases[i].entries;
		cr_expect_eq(zi_message_check(message, NULL), cases[i].r, "%zu", i);
	}
}
