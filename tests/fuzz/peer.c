/* SPDX-License-Identifier: Apache-2.0 */
/* See peer.h. What the daemon sends is checked: it must not lie, whatever it was told. */
#include "tests/fuzz/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/wire/region.h"
#include "common/wire/verdict.h"
#include "tests/fuzz/house.h"

void peer_init(struct peer *peer)
{
	*peer = (struct peer){ .fd = -1, .doorbell_fd = -1, .wakeup_fd = -1 };
}

void peer_connect(struct peer *peer)
{
	int fds[2];

	if (peer->fd >= 0)
		return;
	fuzz_check(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
	           "socketpair");
	peer->fd = fds[0];
	(void)sess_control_adopt(house.control, fds[1]); /* May refuse: then it is closed. */
}

static void unmap(char **base, uint64_t *bytes)
{
	if (*base)
		fuzz_check(!zi_region_unmap(*base, *bytes), "unmap");
	*base = NULL;
	*bytes = 0;
}

void peer_close(struct peer *peer)
{
	char *downlink = (char *)peer->downlink;

	unmap(&peer->uplink, &peer->uplink_bytes);
	unmap(&downlink, &peer->downlink_bytes);
	unmap(&peer->grad, &peer->grad_bytes);
	unmap(&peer->staging, &peer->staging_bytes);
	unmap(&peer->board, &peer->board_bytes);
	unmap(&peer->window, &peer->window_bytes);
	peer->doorbell_fd = zi_close(peer->doorbell_fd);
	peer->wakeup_fd = zi_close(peer->wakeup_fd);
	peer->fd = zi_close(peer->fd);
	peer_init(peer);
}

void peer_send(struct peer *peer, void *message, uint16_t type, uint32_t bytes)
{
	*(struct zi_message_header *)message = (struct zi_message_header){
		.magic = ZI_CONTROL_MAGIC,
		.type = type, /* Any: zi_message_init() would not have it. */
		.bytes = bytes,
		.sequence = ++peer->sequence,
	};
	if (peer->fd >= 0)
		/* Full or over: not sent. */
		(void)__real_zi_message_send(peer->fd, message, NULL, 0);
}

void peer_send_packet(struct peer *peer, const void *bytes, size_t byte_count, uint32_t fd_count)
{
	union {
		char bytes[CMSG_SPACE(16 * sizeof(int))];
		struct cmsghdr head;
	} control = { { 0 } };
	struct iovec vector = { .iov_base = (void *)bytes, .iov_len = byte_count };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	int fds[16];
	int pipe_fds[2];

	if (peer->fd < 0)
		return;
	if (fd_count) {
		fuzz_check(fd_count <= ZI_COUNT_OF(fds), "descriptors");
		fuzz_check(!pipe(pipe_fds), "pipe");
		for (uint32_t i = 0; i < fd_count; i++)
			fds[i] = pipe_fds[i % 2];
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
			                         .cmsg_type = SCM_RIGHTS,
			                         .cmsg_len = CMSG_LEN(fd_count * sizeof(int)) };
		memcpy(CMSG_DATA(&control.head), fds, fd_count * sizeof(int));
	}
	(void)!sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* As peer_send(). */
	if (fd_count) {
		(void)close(pipe_fds[0]);
		(void)close(pipe_fds[1]);
	}
}

static char *map(int fd, uint64_t bytes, bool is_writable)
{
	void *base;

	fuzz_check(!zi_region_map(fd, bytes, is_writable, &base), "the daemon sent no region");
	return base;
}

static void take_attached(struct peer *peer, const struct zi_attached *attached, int *fds)
{
	fuzz_check(!peer->uplink, "attached twice");
	fuzz_check(attached->ring_entries == HOUSE_RING_ENTRIES, "ring entries");
	peer->entries = attached->ring_entries;
	peer->uplink_bytes = attached->uplink_bytes;
	peer->downlink_bytes = attached->downlink_bytes;
	peer->uplink = map(fds[0], peer->uplink_bytes, true);
	peer->downlink = map(fds[1], peer->downlink_bytes, false);
	peer->doorbell_fd = zi_steal_fd(fds[2]);
	peer->wakeup_fd = zi_steal_fd(fds[3]);
}

static void take_board(struct peer *peer, int fd, uint64_t bytes)
{
	unmap(&peer->board, &peer->board_bytes);
	peer->board_bytes = bytes;
	peer->board = map(fd, bytes, true);
}

/* Of an export it may only be read, and is left alone. */
static void take_window(struct peer *peer, int fd)
{
	struct stat status;

	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return;
	fuzz_check(!fstat(fd, &status) && status.st_size > 0, "a window without bytes");
	unmap(&peer->window, &peer->window_bytes);
	peer->window_bytes = (uint64_t)status.st_size;
	peer->window = map(fd, peer->window_bytes, true);
}

static uint32_t wanted_fds(const struct zi_message_header *message)
{
	switch (message->type) {
	case ZI_MESSAGE_ATTACHED:
		return 4;
	case ZI_MESSAGE_COLL_OPENED:
		return 3;
	case ZI_MESSAGE_MATERIALIZED:
		return 2;
	case ZI_MESSAGE_PARAM_WRITE:
	case ZI_MESSAGE_TENSOR_OPENED:
	case ZI_MESSAGE_STATE_OPENED:
		return 1;
	case ZI_MESSAGE_GPU_CHUNKS:
		return ((const struct zi_gpu_chunks *)(const void *)message)->count;
	case ZI_MESSAGE_COLL_GROUPED:
		return ((const struct zi_coll_grouped *)(const void *)message)->self != UINT32_MAX;
	default:
		return 0;
	}
}

static void take_coll(struct peer *peer, const struct zi_message_header *message, const int *fds,
                      uint32_t fd_count)
{
	const struct zi_coll_grouped *grouped = (const void *)message;
	const struct zi_coll_opened *opened = (const void *)message;
	char *verdicts;

	if (message->type == ZI_MESSAGE_COLL_GROUPED) {
		fuzz_check(grouped->group && grouped->group < ZI_GROUPS_MAX, "a group's number");
		if (fd_count)
			take_board(peer, fds[0], grouped->board_bytes);
		return;
	}
	verdicts = map(fds[0], opened->verdict_bytes, false);
	fuzz_check(!zi_region_unmap(verdicts, opened->verdict_bytes), "unmap");
	fuzz_check(opened->arenas_bytes >= opened->arena_bytes * opened->member_count, "arenas");
	take_board(peer, fds[2], opened->board_bytes);
}

/* @fds: what is kept is taken out. */
static void take_message(struct peer *peer, const struct zi_message_header *message, int *fds,
                         uint32_t fd_count)
{
	/* With an answer about an export or a load comes the memory of its windows. */
	fuzz_check(fd_count == wanted_fds(message) ||
	                   (message->type == ZI_MESSAGE_ADMIN_REPLY && fd_count == 1),
	           "descriptors of a message");
	if (message->type == ZI_MESSAGE_ATTACHED) {
		take_attached(peer, (const void *)message, fds);
	} else if (message->type == ZI_MESSAGE_MATERIALIZED) {
		const struct zi_materialized *told = (const void *)message;

		unmap(&peer->grad, &peer->grad_bytes);
		peer->grad_bytes = told->grad_bytes;
		peer->grad = map(fds[1], told->grad_bytes, true);
	} else if (message->type == ZI_MESSAGE_PARAM_WRITE) {
		const struct zi_param_write *told = (const void *)message;

		unmap(&peer->staging, &peer->staging_bytes);
		peer->staging_bytes = told->bytes;
		peer->staging = map(fds[0], told->bytes, true);
	} else if (message->type == ZI_MESSAGE_COLL_OPENED ||
	           message->type == ZI_MESSAGE_COLL_GROUPED) {
		take_coll(peer, message, fds, fd_count);
	} else if (message->type == ZI_MESSAGE_GPU_CHUNKS) {
		fuzz_check(fd_count > 0, "no chunks");
	} else if (message->type == ZI_MESSAGE_TENSOR_OPENED || fd_count) {
		take_window(peer, fds[0]);
	} else if (message->type == ZI_MESSAGE_ERROR) {
		const struct zi_error_message *error = (const void *)message;

		fuzz_check(error->error < 0, "an invalid error");
		fuzz_check(error->text.chars[0] != '\0', "an error without words");
	}
}

void peer_receive(struct peer *peer)
{
	static _Alignas(64) unsigned char buffer[ZI_MESSAGE_BYTES_MAX];

	if (peer->sent_count == house.sent_count)
		return;
	peer->sent_count = house.sent_count;
	while (peer->fd >= 0) {
		int fds[ZI_MESSAGE_FDS_MAX];
		uint32_t fd_count = 0;
		int r = zi_message_receive(peer->fd, buffer, fds, &fd_count);

		if (r == -EAGAIN || r == -ECONNRESET)
			return;
		fuzz_check(!r, "the daemon sent garbage");
		fuzz_check(!zi_message_check((const void *)buffer, NULL),
		           "the daemon sent a message of a wrong shape");
		take_message(peer, (const void *)buffer, fds, fd_count);
		for (uint32_t i = 0; i < fd_count; i++)
			fds[i] = zi_close(fds[i]);
	}
}

void peer_push(struct peer *peer, const struct zi_sqe *sqe)
{
	struct zi_uplink_header *header = (void *)peer->uplink;

	if (!peer->uplink)
		return;
	memcpy(peer->uplink + ZI_UPLINK_SQ_OFFSET +
	               (uint64_t)(peer->sq_tail % peer->entries) * ZI_SLOT_BYTES,
	       sqe, sizeof(*sqe));
	zi_line_store(&header->sq_tail, ++peer->sq_tail);
}

void peer_reap(struct peer *peer)
{
	struct zi_uplink_header *header = (void *)peer->uplink;
	const struct zi_downlink_header *down = (const void *)peer->downlink;
	uint32_t tail;

	if (!peer->uplink)
		return;
	tail = zi_line_load(&down->cq_tail);
	if (tail - peer->cq_head <= peer->entries)
		for (uint32_t i = peer->cq_head; i != tail; i++) {
			const struct zi_cqe *cqe =
				(const void *)(peer->downlink + ZI_DOWNLINK_CQ_OFFSET +
			                       (uint64_t)(i % peer->entries) * ZI_SLOT_BYTES);

			fuzz_check(cqe->result <= 0, "a completion with a positive result");
			fuzz_check(cqe->text_index <= ZI_TEXT_SLOTS, "a text that is none");
		}
	peer->cq_head = tail;
	zi_line_store(&header->cq_head, tail);
}
