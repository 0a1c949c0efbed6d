/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the control socket: what each must look like (one table), sending, receiving. Floor
 * 1, any thread, one at a time per socket. Nothing here trusts the peer.
 */
#include "common/wire/control.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/gpu.h"
#include "common/wire/state.h"
#include "common/wire/training.h"

/* A part of a message, as offset and bytes; none when bytes is 0. */
struct message_part {
	uint16_t offset_bytes;
	uint16_t bytes;
};

#define PART(type, member)                                             \
	{                                                              \
		offsetof(type, member), sizeof(((type *)NULL)->member) \
	}

/* What a type's packets look like. */
struct message_kind {
	const char *name;
	uint32_t bytes;                  /* whole message, or the least when is_streamed */
	uint32_t more_bytes;             /* with a tail, which may be left out; 0: it has none */
	bool is_streamed;                /* more may follow the struct */
	uint16_t flags;                  /* that may be set */
	struct message_part strings[4];  /* NUL within */
	struct message_part reserved[3]; /* zero */
	/* of the tail */
	struct message_part more_strings[3], more_reserved;
};

/* HELLO's reserved words are not looked at: a newer minor version may fill them, and no side knows
 * the other's version before it has read them. */
static const struct message_kind message_kinds[_ZI_MESSAGE_COUNT] = {
	[ZI_MESSAGE_HELLO] = {
		.name = "HELLO",
		.bytes = sizeof(struct zi_hello),
		.strings = { PART(struct zi_hello, program) },
	},
	[ZI_MESSAGE_ATTACH] = {
		.name = "ATTACH",
		.bytes = sizeof(struct zi_attach),
		.more_bytes = sizeof(struct zi_attach_training),
		.strings = { PART(struct zi_attach, job), PART(struct zi_attach, incarnation) },
		.reserved = { PART(struct zi_attach, reserved0),
			      PART(struct zi_attach, reserved) },
	},
	[ZI_MESSAGE_ATTACHED] = {
		.name = "ATTACHED",
		.bytes = sizeof(struct zi_attached),
		.reserved = { PART(struct zi_attached, reserved) },
	},
	[ZI_MESSAGE_LAYOUT] = {
		.name = "LAYOUT",
		.bytes = sizeof(struct zi_layout),
		.is_streamed = true,
		.reserved = { PART(struct zi_layout, reserved) },
	},
	[ZI_MESSAGE_MATERIALIZE] = {
		.name = "MATERIALIZE",
		.bytes = sizeof(struct zi_materialize),
		.more_bytes = sizeof(struct zi_materialize_nodes),
		.more_strings = { PART(struct zi_materialize_nodes, rendezvous.host),
			          PART(struct zi_materialize_nodes, rendezvous.interface),
			          PART(struct zi_materialize_nodes, rendezvous.token) },
		.more_reserved = PART(struct zi_materialize_nodes, rendezvous.reserved),
	},
	[ZI_MESSAGE_MATERIALIZED] = {
		.name = "MATERIALIZED",
		.bytes = sizeof(struct zi_materialized),
		.reserved = { PART(struct zi_materialized, reserved0),
			      PART(struct zi_materialized, reserved) },
	},
	[ZI_MESSAGE_PARAM_WRITE_BEGIN] = {
		.name = "PARAM_WRITE_BEGIN",
		.bytes = sizeof(struct zi_param_write_begin),
		.reserved = { PART(struct zi_param_write_begin, reserved) },
	},
	[ZI_MESSAGE_PARAM_WRITE] = {
		.name = "PARAM_WRITE",
		.bytes = sizeof(struct zi_param_write),
	},
	[ZI_MESSAGE_PARAM_WRITE_END] = {
		.name = "PARAM_WRITE_END",
		.bytes = sizeof(struct zi_param_write_end),
		.flags = ZI_PARAM_WRITE_KEEP,
	},
	[ZI_MESSAGE_BLOB_GET] = {
		.name = "BLOB_GET",
		.bytes = sizeof(struct zi_message_header),
	},
	[ZI_MESSAGE_BLOB] = {
		.name = "BLOB",
		.bytes = sizeof(struct zi_blob),
		.is_streamed = true,
		.flags = ZI_MESSAGE_MORE,
	},
	[ZI_MESSAGE_DETACH] = {
		.name = "DETACH",
		.bytes = sizeof(struct zi_message_header),
	},
	[ZI_MESSAGE_DESTROY] = {
		.name = "DESTROY",
		.bytes = sizeof(struct zi_message_header),
	},
	[ZI_MESSAGE_DONE] = {
		.name = "DONE",
		.bytes = sizeof(struct zi_message_header),
	},
	[ZI_MESSAGE_ERROR] = {
		.name = "ERROR",
		.bytes = sizeof(struct zi_error_message),
		.strings = { PART(struct zi_error_message, text) },
		.reserved = { PART(struct zi_error_message, reserved) },
	},
	[ZI_MESSAGE_NOTICE] = {
		.name = "NOTICE",
		.bytes = sizeof(struct zi_notice),
		.strings = { PART(struct zi_notice, text) },
	},
	[ZI_MESSAGE_ADMIN] = {
		.name = "ADMIN",
		.bytes = sizeof(struct zi_admin),
		.strings = { PART(struct zi_admin, command) },
	},
	[ZI_MESSAGE_LOAD] = {
		.name = "LOAD",
		.bytes = sizeof(struct zi_load),
		.strings = { PART(struct zi_load, job), PART(struct zi_load, name) },
		.reserved = { PART(struct zi_load, reserved) },
	},
	[ZI_MESSAGE_SNAPSHOT] = {
		.name = "SNAPSHOT",
		.bytes = sizeof(struct zi_snapshot),
		.strings = { PART(struct zi_snapshot, name) },
		.reserved = { PART(struct zi_snapshot, reserved) },
	},
	[ZI_MESSAGE_TENSOR_OPEN] = {
		.name = "TENSOR_OPEN",
		.bytes = sizeof(struct zi_tensor_open),
		.reserved = { PART(struct zi_tensor_open, reserved) },
	},
	[ZI_MESSAGE_TENSOR_OPENED] = {
		.name = "TENSOR_OPENED",
		.bytes = sizeof(struct zi_tensor_opened),
		.reserved = { PART(struct zi_tensor_opened, reserved) },
	},
	[ZI_MESSAGE_COLL_OPEN] = {
		.name = "COLL_OPEN",
		.bytes = sizeof(struct zi_coll_open),
		.strings = { PART(struct zi_coll_open, rendezvous_host),
			     PART(struct zi_coll_open, interface),
			     PART(struct zi_coll_open, token),
			     PART(struct zi_coll_open, reason) },
		.reserved = { PART(struct zi_coll_open, reserved) },
	},
	[ZI_MESSAGE_COLL_OPENED] = {
		.name = "COLL_OPENED",
		.bytes = sizeof(struct zi_coll_opened),
		.reserved = { PART(struct zi_coll_opened, reserved0),
			      PART(struct zi_coll_opened, reserved) },
	},
	[ZI_MESSAGE_COLL_GROUP] = {
		.name = "COLL_GROUP",
		.bytes = sizeof(struct zi_coll_group),
		.strings = { PART(struct zi_coll_group, reason), PART(struct zi_coll_group, name) },
	},
	[ZI_MESSAGE_COLL_GROUPED] = {
		.name = "COLL_GROUPED",
		.bytes = sizeof(struct zi_coll_grouped),
		.reserved = { PART(struct zi_coll_grouped, reserved0),
			      PART(struct zi_coll_grouped, reserved) },
	},
	[ZI_MESSAGE_COLL_GROUP_FREE] = {
		.name = "COLL_GROUP_FREE",
		.bytes = sizeof(struct zi_coll_group_free),
		.reserved = { PART(struct zi_coll_group_free, reserved0) },
	},
	[ZI_MESSAGE_COLL_FAIL] = {
		.name = "COLL_FAIL",
		.bytes = sizeof(struct zi_coll_fail),
		.reserved = { PART(struct zi_coll_fail, reserved0),
			      PART(struct zi_coll_fail, reserved1),
			      PART(struct zi_coll_fail, reserved) },
	},
	[ZI_MESSAGE_COLL_ABORT] = {
		.name = "COLL_ABORT",
		.bytes = sizeof(struct zi_coll_abort),
		.strings = { PART(struct zi_coll_abort, reason) },
		.reserved = { PART(struct zi_coll_abort, reserved0),
			      PART(struct zi_coll_abort, reserved) },
	},
	[ZI_MESSAGE_STATE_OPEN] = {
		.name = "STATE_OPEN",
		.bytes = sizeof(struct zi_message_header),
	},
	[ZI_MESSAGE_STATE_OPENED] = {
		.name = "STATE_OPENED",
		.bytes = sizeof(struct zi_state_opened),
		.reserved = { PART(struct zi_state_opened, reserved) },
	},
	[ZI_MESSAGE_STATE_READ] = {
		.name = "STATE_READ",
		.bytes = sizeof(struct zi_state_range),
		.reserved = { PART(struct zi_state_range, root),
			      PART(struct zi_state_range, reserved0),
			      PART(struct zi_state_range, reserved) },
	},
	[ZI_MESSAGE_STATE_WRITE] = {
		.name = "STATE_WRITE",
		.bytes = sizeof(struct zi_state_range),
		.reserved = { PART(struct zi_state_range, reserved0),
			      PART(struct zi_state_range, reserved) },
	},
	[ZI_MESSAGE_STATE_COUNT] = {
		.name = "STATE_COUNT",
		.bytes = sizeof(struct zi_state_count),
		.reserved = { PART(struct zi_state_count, reserved) },
	},
	[ZI_MESSAGE_GPU_OPEN] = {
		.name = "GPU_OPEN",
		.bytes = sizeof(struct zi_gpu_open),
		.strings = { PART(struct zi_gpu_open, uuid) },
		.reserved = { PART(struct zi_gpu_open, reserved0),
			      PART(struct zi_gpu_open, reserved) },
	},
	[ZI_MESSAGE_GPU_OPENED] = {
		.name = "GPU_OPENED",
		.bytes = sizeof(struct zi_gpu_opened),
		.reserved = { PART(struct zi_gpu_opened, reserved) },
	},
	[ZI_MESSAGE_GPU_CHUNKS] = {
		.name = "GPU_CHUNKS",
		.bytes = sizeof(struct zi_gpu_chunks),
		.reserved = { PART(struct zi_gpu_chunks, reserved) },
	},
	[ZI_MESSAGE_SNAPSHOTTED] = {
		.name = "SNAPSHOTTED",
		.bytes = sizeof(struct zi_snapshotted),
		.strings = { PART(struct zi_snapshotted, name) },
		.reserved = { PART(struct zi_snapshotted, reserved) },
	},
	[ZI_MESSAGE_ADMIN_REPLY] = {
		.name = "ADMIN_REPLY",
		.bytes = sizeof(struct zi_message_header),
		.is_streamed = true,
		.flags = ZI_MESSAGE_MORE,
	},
};

/* An odd number of descriptors would leave room for one more in the padding of the control part. */
static_assert(ZI_MESSAGE_FDS_MAX % 2 == 0, "control part without padding");
static_assert(sizeof(struct zi_param_write_begin) == 24, "param write begin");
static_assert(sizeof(struct zi_param_write) == 24, "param write");
static_assert(sizeof(struct zi_blob) == 24, "blob head");
static_assert(sizeof(struct zi_admin) == 1040, "admin");

union message_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(ZI_MESSAGE_FDS_MAX * sizeof(int))];
};

static const struct message_kind *kind_of(uint16_t type)
{
	if (type >= ZI_COUNT_OF(message_kinds) || !message_kinds[type].name)
		return NULL;
	return &message_kinds[type];
}

/* Return: "ATTACH" and so on; "?" when @type is none. */
const char *zi_message_name(uint16_t type)
{
	const struct message_kind *kind = kind_of(type);

	return kind ? kind->name : "?";
}

/* Fills a header. @bytes: of the whole message. @sequence: of the request, repeated in its reply.
 */
void zi_message_init(struct zi_message_header *header, enum zi_message_type type, uint32_t bytes,
                     uint32_t sequence)
{
	assert(kind_of((uint16_t)type));
	assert(bytes >= sizeof(*header));
	assert(bytes <= ZI_MESSAGE_BYTES_MAX);
	*header = (struct zi_message_header){
		.magic = ZI_CONTROL_MAGIC,
		.type = (uint16_t)type,
		.bytes = bytes,
		.sequence = sequence,
	};
}

static bool is_part_zero(const char *base, const struct message_part *part)
{
	for (uint16_t i = 0; i < part->bytes; i++)
		if (base[part->offset_bytes + i])
			return false;
	return true;
}

static bool strings_end(const char *base, const struct message_part *parts, size_t part_count)
{
	for (size_t i = 0; i < part_count; i++)
		if (parts[i].bytes && !memchr(base + parts[i].offset_bytes, '\0', parts[i].bytes))
			return false;
	return true;
}

/* The entries must fill the LAYOUT packet exactly. */
static int check_layout(const struct zi_message_header *message, struct zi_text *text)
{
	const struct zi_layout *layout = (const struct zi_layout *)message;
	uint64_t bytes =
		sizeof(*layout) + (uint64_t)layout->entry_count * sizeof(struct zi_layout_entry);

	if (!layout->entry_count || bytes != message->bytes) {
		zi_text_set(text, "LAYOUT of %u entries in %u bytes", layout->entry_count,
		            message->bytes);
		return err_origin(-EPROTO);
	}
	return 0;
}

/**
 * zi_message_check() - does a received message have the shape of its type?
 * @message: as zi_message_receive() gave it: magic and length are right
 * @text: says what is wrong; may be NULL
 *
 * Values are not judged here (wire/check.h does).
 * Return: 0; -EPROTO unknown type, wrong length, flags or reserved bytes set, a string without end.
 */
int zi_message_check(const struct zi_message_header *message, struct zi_text *text)
{
	const struct message_kind *kind = kind_of(message->type);
	const char *base = (const char *)message;
	bool has_tail = kind && kind->more_bytes && message->bytes == kind->more_bytes;
	bool is_sound;

	if (!kind) {
		zi_text_set(text, "unknown message type %u", message->type);
		return err_origin(-EPROTO);
	}
	if (kind->is_streamed ? message->bytes < kind->bytes
	                      : message->bytes != kind->bytes &&
	                                (!kind->more_bytes || message->bytes != kind->more_bytes)) {
		zi_text_set(text, "%s of %u bytes, %s %u expected", kind->name, message->bytes,
		            kind->is_streamed ? "at least" : "exactly", kind->bytes);
		if (kind->more_bytes)
			zi_text_set(text, "%s of %u bytes, exactly %u or %u expected", kind->name,
			            message->bytes, kind->bytes, kind->more_bytes);
		return err_origin(-EPROTO);
	}
	if (message->flags & ~kind->flags) {
		zi_text_set(text, "%s with unknown flags 0x%x", kind->name, message->flags);
		return err_origin(-EPROTO);
	}
	is_sound = strings_end(base, kind->strings, ZI_COUNT_OF(kind->strings)) &&
	           (!has_tail ||
	            strings_end(base, kind->more_strings, ZI_COUNT_OF(kind->more_strings)));
	if (!is_sound) {
		zi_text_set(text, "%s with a string that has no end", kind->name);
		return err_origin(-EPROTO);
	}
	is_sound = !has_tail || is_part_zero(base, &kind->more_reserved);
	for (uint32_t i = 0; i < ZI_COUNT_OF(kind->reserved); i++)
		is_sound = is_sound && is_part_zero(base, &kind->reserved[i]);
	if (!is_sound) {
		zi_text_set(text, "%s with reserved bytes set", kind->name);
		return err_origin(-EPROTO);
	}
	if (message->type == ZI_MESSAGE_LAYOUT)
		return err_trace(check_layout(message, text));
	return 0;
}

/**
 * zi_message_send() - send one packet
 * @message: header->bytes of it
 * @fds: (@fd_count,) descriptors to pass, at most ZI_MESSAGE_FDS_MAX; they stay the caller's
 *
 * Never raises SIGPIPE. Return: 0; -EAGAIN a non-blocking socket is full; -EPIPE the peer is gone;
 * -EMSGSIZE, -ENOBUFS, -ETOOMANYREFS the kernel's limits.
 */
int zi_message_send(int socket_fd, const struct zi_message_header *message, const int *fds,
                    uint32_t fd_count)
{
	union message_control control = { 0 };
	struct iovec part = { .iov_base = (void *)message, .iov_len = message->bytes };
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t sent;

	assert(message->magic == ZI_CONTROL_MAGIC);
	assert(message->bytes <= ZI_MESSAGE_BYTES_MAX);
	assert(fd_count <= ZI_MESSAGE_FDS_MAX);
	if (fd_count)
		zi_fd_pass(&packet, &control, fds, fd_count);
	do
		sent = sendmsg(socket_fd, &packet, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return err_origin(errno == ECONNRESET ? -EPIPE : -errno);
	assert((uint32_t)sent == message->bytes); /* seqpacket: whole or not at all */
	return 0;
}

/* Takes the descriptors out of the control part; at most ZI_MESSAGE_FDS_MAX fit there. */
static uint32_t take_fds(struct msghdr *packet, int *fds)
{
	uint32_t fd_count = 0;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(packet); part; part = CMSG_NXTHDR(packet, part)) {
		uint32_t count;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		count = (uint32_t)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		assert(fd_count + count <= ZI_MESSAGE_FDS_MAX);
		memcpy(fds + fd_count, CMSG_DATA(part), count * sizeof(int));
		fd_count += count;
	}
	return fd_count;
}

/* Whether a packet of @bytes is one message. */
static bool is_whole(const struct zi_message_header *header, size_t bytes, int flags)
{
	if (flags & (MSG_TRUNC | MSG_CTRUNC))
		return false;
	return bytes >= sizeof(*header) && header->magic == ZI_CONTROL_MAGIC &&
	       header->bytes == bytes;
}

/**
 * zi_message_receive() - receive one packet
 * @buffer: (ZI_MESSAGE_BYTES_MAX,) bytes, 8-aligned
 * @fds: (ZI_MESSAGE_FDS_MAX,) close-on-exec, the caller's; NULL: none are wanted, any are dropped
 * @ret_fd_count: may be NULL when @fds is
 *
 * Return: 0, then zi_message_check() it; -EAGAIN nothing there; -ECONNRESET end of stream (an empty
 * packet counts as one); -EPROTO no whole message, or too many descriptors: all are closed.
 */
int zi_message_receive(int socket_fd, void *buffer, int *fds, uint32_t *ret_fd_count)
{
	union message_control control;
	struct iovec part = { .iov_base = buffer, .iov_len = ZI_MESSAGE_BYTES_MAX };
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	int received_fds[ZI_MESSAGE_FDS_MAX];
	uint32_t fd_count;
	ssize_t bytes;

	assert(!fds || ret_fd_count);
	if (fds) {
		packet.msg_control = control.bytes;
		packet.msg_controllen = sizeof(control.bytes);
	} /* else the kernel drops what was sent, and says MSG_CTRUNC */
	do
		bytes = recvmsg(socket_fd, &packet, MSG_CMSG_CLOEXEC);
	while (bytes < 0 && errno == EINTR);
	if (bytes < 0)
		return errno == EAGAIN ? -EAGAIN : err_origin(-errno);
	if (!fds)
		packet.msg_flags &= ~MSG_CTRUNC;
	fd_count = fds ? take_fds(&packet, received_fds) : 0;
	if (bytes == 0 || !is_whole(buffer, (size_t)bytes, packet.msg_flags)) {
		for (uint32_t i = 0; i < fd_count; i++)
			(void)zi_close(received_fds[i]); /* Always -1. */
		return err_origin(bytes == 0 ? -ECONNRESET : -EPROTO);
	}
	if (fds)
		memcpy(fds, received_fds, fd_count * sizeof(int));
	if (ret_fd_count)
		*ret_fd_count = fd_count;
	return 0;
}
