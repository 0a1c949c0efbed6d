/* SPDX-License-Identifier: Apache-2.0 */
/* A client that has never heard of libzinf (raw.h). */
#include "tests/harness/raw.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RAW_SEND_FDS_MAX 250u

int raw_connect(struct raw *raw, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	memset(raw, 0, sizeof(*raw));
	for (uint32_t i = 0; i < _RAW_FD_COUNT; i++)
		raw->fds[i] = -1;
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	raw->socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (raw->socket_fd < 0)
		return -errno;
	if (connect(raw->socket_fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	return 0;
}

void raw_close(struct raw *raw)
{
	if (raw->uplink)
		(void)munmap(raw->uplink, raw->attached.uplink_bytes);
	if (raw->downlink)
		(void)munmap((void *)(uintptr_t)raw->downlink, raw->attached.downlink_bytes);
	for (uint32_t i = 0; i < _RAW_FD_COUNT; i++)
		if (raw->fds[i] >= 0)
			(void)close(raw->fds[i]);
	if (raw->socket_fd >= 0)
		(void)close(raw->socket_fd);
	memset(raw, 0, sizeof(*raw));
	raw->socket_fd = -1;
	for (uint32_t i = 0; i < _RAW_FD_COUNT; i++)
		raw->fds[i] = -1;
}

int raw_send(struct raw *raw, const void *bytes, size_t byte_count, const int *fds,
             uint32_t fd_count)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(RAW_SEND_FDS_MAX * sizeof(int))];
	} control = { 0 };
	struct iovec vector = { (void *)(uintptr_t)bytes, byte_count };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	struct pollfd poller = { .fd = raw->socket_fd, .events = POLLOUT };

	if (fd_count > RAW_SEND_FDS_MAX)
		return -EINVAL;
	if (fd_count) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
	}
	if (poll(&poller, 1, RAW_TIMEOUT_MS) <= 0)
		return -ETIMEDOUT;
	if (sendmsg(raw->socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -errno;
	return 0;
}

static struct zi_message_header header_of(struct raw *raw, enum zi_message_type type, size_t bytes)
{
	return (struct zi_message_header){ .magic = ZI_CONTROL_MAGIC,
		                           .type = (uint16_t)type,
		                           .bytes = (uint32_t)bytes,
		                           .sequence = ++raw->sequence };
}

int raw_send_plain(struct raw *raw, enum zi_message_type type)
{
	struct zi_message_header header = header_of(raw, type, sizeof(header));

	return raw_send(raw, &header, sizeof(header), NULL, 0);
}

/* Descriptors of a received message; those that are not wanted are closed. */
static void take_fds(struct msghdr *message, int *fds)
{
	uint32_t count = 0;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		size_t received = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < received; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
			if (fds && count < ZI_MESSAGE_FDS_MAX)
				fds[count++] = fd;
			else
				(void)close(fd);
		}
	}
}

int raw_receive_fds(struct raw *raw, int *fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(16 * sizeof(int))];
	} control;
	struct iovec vector = { &raw->reply, sizeof(raw->reply) };
	struct msghdr message = { .msg_iov = &vector,
		                  .msg_iovlen = 1,
		                  .msg_control = &control,
		                  .msg_controllen = sizeof(control) };
	struct pollfd poller = { .fd = raw->socket_fd, .events = POLLIN };
	ssize_t bytes;

	if (poll(&poller, 1, RAW_TIMEOUT_MS) <= 0)
		return -ETIMEDOUT;
	for (uint32_t i = 0; fds && i < ZI_MESSAGE_FDS_MAX; i++)
		fds[i] = -1;
	bytes = recvmsg(raw->socket_fd, &message, MSG_CMSG_CLOEXEC);
	if (bytes <= 0)
		return 0; /* The end, or a reset: the same to us. */
	take_fds(&message, fds);
	if ((size_t)bytes < sizeof(raw->reply.header) ||
	    raw->reply.header.magic != ZI_CONTROL_MAGIC ||
	    raw->reply.header.bytes != (uint32_t)bytes)
		return -EPROTO;
	return raw->reply.header.type;
}

int raw_receive(struct raw *raw)
{
	return raw_receive_fds(raw, NULL);
}

bool raw_is_ended(struct raw *raw)
{
	int type;

	/* A few messages may lie before the end: an answer, a notice, the error that says why. */
	for (uint32_t i = 0; i < 10000; i++) {
		type = raw_receive(raw);
		if (type == 0)
			return true;
		if (type < 0)
			break;
	}
	fprintf(stderr, "raw: the connection was not closed (%d)\n", type);
	return false;
}

/* The awaited type; notices in between are not for us. */
static int await(struct raw *raw, enum zi_message_type type, int *fds)
{
	for (uint32_t i = 0; i < 16; i++) {
		int got = raw_receive_fds(raw, fds);

		if (got == (int)type)
			return 0;
		if (got == ZI_MESSAGE_ERROR)
			return raw->reply.error.error;
		if (got != ZI_MESSAGE_NOTICE)
			return got > 0 ? -EPROTO : got ? got : -ECONNRESET;
	}
	return -EPROTO;
}

int raw_hello(struct raw *raw)
{
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR,
		                  .minor = ZI_PROTOCOL_MINOR,
		                  .features = ZI_FEATURE_NVME_STATE | ZI_FEATURE_COLL_VERSION |
		                              ZI_FEATURE_GPU,
		                  .coll_version = ZI_COLL_VERSION,
		                  .program = "raw" };
	int r;

	hello.header = header_of(raw, ZI_MESSAGE_HELLO, sizeof(hello));
	r = raw_send(raw, &hello, sizeof(hello), NULL, 0);
	return r ? r : await(raw, ZI_MESSAGE_HELLO, NULL);
}

void raw_attach_message(struct zi_attach *message, const char *job, const char *incarnation,
                        uint32_t rank, uint32_t world_size)
{
	*message =
		(struct zi_attach){ .rank = rank, .world_size = world_size, .timeout_ms = 20000 };
	message->config.param_dtype = message->config.grad_dtype = ZI_DTYPE_F32;
	message->config.optimizer = ZI_OPTIMIZER_ADAMW;
	message->config.schedule = ZI_SCHEDULE_LOCAL;
	(void)snprintf(message->job, sizeof(message->job), "%s", job);
	(void)snprintf(message->incarnation, sizeof(message->incarnation), "%s", incarnation);
}

int raw_attach(struct raw *raw, const struct zi_attach *message)
{
	struct zi_attach copy = *message;
	int fds[ZI_MESSAGE_FDS_MAX];
	void *map;
	int r;

	copy.header = header_of(raw, ZI_MESSAGE_ATTACH, sizeof(copy));
	r = raw_send(raw, &copy, sizeof(copy), NULL, 0);
	if (!r)
		r = await(raw, ZI_MESSAGE_ATTACHED, fds);
	if (r)
		return r;
	raw->attached = raw->reply.attached;
	memcpy(raw->fds, fds, 4 * sizeof(int));
	map = mmap(NULL, raw->attached.uplink_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
	           raw->fds[RAW_UPLINK], 0);
	if (map == MAP_FAILED)
		return -errno;
	raw->uplink = map;
	map = mmap(NULL, raw->attached.downlink_bytes, PROT_READ, MAP_SHARED,
	           raw->fds[RAW_DOWNLINK], 0);
	if (map == MAP_FAILED)
		return -errno;
	raw->downlink = map;
	return 0;
}

int raw_layout(struct raw *raw, uint32_t param_count, uint64_t elements)
{
	struct {
		struct zi_layout head;
		struct zi_layout_entry entries[32];
	} message = { .head.entry_count = 1 + param_count };
	size_t bytes = sizeof(message.head) + (1 + param_count) * sizeof(message.entries[0]);

	if (param_count > 31)
		return -EINVAL;
	message.head.header = header_of(raw, ZI_MESSAGE_LAYOUT, bytes);
	message.entries[0] = (struct zi_layout_entry){ .kind = ZI_LAYOUT_UNIT, .name = "unit" };
	for (uint32_t i = 1; i <= param_count; i++) {
		message.entries[i] = (struct zi_layout_entry){ .kind = ZI_LAYOUT_PARAM,
			                                       .dim_count = 1,
			                                       .shape = { elements } };
		(void)snprintf(message.entries[i].name, sizeof(message.entries[i].name),
		               "weight.%u", i);
	}
	return raw_send(raw, &message, bytes, NULL, 0);
}

int raw_send_materialize(struct raw *raw, uint32_t unit_count, uint32_t param_count)
{
	struct zi_materialize message = { .unit_count = unit_count, .param_count = param_count };

	message.header = header_of(raw, ZI_MESSAGE_MATERIALIZE, sizeof(message));
	return raw_send(raw, &message, sizeof(message), NULL, 0);
}

int raw_materialize(struct raw *raw, uint32_t param_count)
{
	int fds[ZI_MESSAGE_FDS_MAX];
	int r = raw_send_materialize(raw, 1, param_count);

	if (!r)
		r = await(raw, ZI_MESSAGE_MATERIALIZED, fds);
	if (r)
		return r;
	raw->materialized = raw->reply.materialized;
	raw->fds[RAW_PARAM] = fds[0];
	raw->fds[RAW_GRAD] = fds[1];
	return 0;
}

int raw_join(struct raw *raw, const char *path, const char *job, uint32_t rank, uint32_t world_size)
{
	struct zi_attach message;
	int r = raw_connect(raw, path);

	raw_attach_message(&message, job, "raw", rank, world_size);
	if (!r)
		r = raw_hello(raw);
	return r ? r : raw_attach(raw, &message);
}

void raw_push(struct raw *raw, const struct zi_sqe *sqe)
{
	uint32_t tail = raw->uplink->sq_tail.value;
	char *slots = (char *)raw->uplink + ZI_UPLINK_SQ_OFFSET;

	memcpy(slots + (tail & (raw->attached.ring_entries - 1)) * sizeof(*sqe), sqe, sizeof(*sqe));
	__atomic_store_n(&raw->uplink->sq_tail.value, tail + 1, __ATOMIC_SEQ_CST);
}

/* Always, whether or not the daemon sleeps. */
void raw_ring(struct raw *raw)
{
	uint64_t one = 1;

	if (write(raw->fds[RAW_DAEMON_BELL], &one, sizeof(one)) != sizeof(one))
		fprintf(stderr, "raw: the bell does not ring\n");
}

int raw_pop(struct raw *raw, struct zi_cqe *ret_cqe)
{
	const char *slots = (const char *)raw->downlink + ZI_DOWNLINK_CQ_OFFSET;
	uint32_t head = raw->uplink->cq_head.value;

	for (;;) {
		struct pollfd pollers[2] = { { .fd = raw->fds[RAW_CLIENT_BELL], .events = POLLIN },
			                     { .fd = raw->socket_fd, .events = POLLRDHUP } };
		char drain[64];

		__atomic_store_n(&raw->uplink->cq_need_wakeup.value, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&raw->downlink->cq_tail.value, __ATOMIC_SEQ_CST) != head)
			break;
		if (poll(pollers, 2, RAW_TIMEOUT_MS) <= 0)
			return -ETIMEDOUT;
		if (pollers[1].revents)
			return -ECONNRESET;
		if (read(raw->fds[RAW_CLIENT_BELL], drain, sizeof(drain)) < 0 && errno != EAGAIN)
			return -errno;
	}
	memcpy(ret_cqe, slots + (head & (raw->attached.ring_entries - 1)) * sizeof(*ret_cqe),
	       sizeof(*ret_cqe));
	__atomic_store_n(&raw->uplink->cq_head.value, head + 1, __ATOMIC_SEQ_CST);
	return 0;
}

int raw_call(struct raw *raw, uint16_t opcode, uint32_t unit)
{
	struct zi_sqe sqe = { .user_data = ++raw->sequence, .opcode = opcode, .unit = unit };
	struct zi_cqe cqe;
	int r;

	raw_push(raw, &sqe);
	raw_ring(raw);
	r = raw_pop(raw, &cqe);
	if (r)
		return r;
	return cqe.user_data == sqe.user_data ? cqe.result : -EBADMSG;
}
