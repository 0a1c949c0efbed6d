/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon orders of a zinf-gpu; see orders.h. Floor 3, of zinf-gpu. */
#include "daemon/worker/gpu/orders.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/gpu/driver.h"

/* The end of serving, beside errors: the peer is no daemon of this release. */
#define ORDERS_E_PROTOCOL 1

/* Waits while the socket is full. Return: 0; -EPIPE the daemon has closed its end. */
static int send_message(int fd, const struct gpu_header *header, const int *fds, uint32_t fd_count)
{
	char control[CMSG_SPACE(GPU_FDS_MAX * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { (void *)header, header->bytes }; /* Only read. */
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t r;

	assert(fd_count <= GPU_FDS_MAX);
	if (fd_count)
		zi_fd_pass(&packet, control, fds, fd_count);
	do
		r = sendmsg(fd, &packet, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? err_origin(-errno) : 0;
}

static int answer(struct orders *orders, uint64_t cookie, int error, const struct zi_text *text)
{
	struct gpu_done done = { .header = gpu_header_of(GPU_DONE, cookie),
		                 .error = error,
		                 .held_count = orders->chunks.count,
		                 .held_bytes = orders->chunks.held_bytes };

	if (error)
		zi_text_set(&done.text, "%s", text->chars);
	return err_trace(send_message(orders->fd, &done.header, NULL, 0));
}

/* ---- CREATE ---- */

/* The create ends with @error: none of its chunks stays. */
static int undo_create(struct orders *orders, int error, const struct zi_text *text)
{
	struct orders_create create = orders->create;
	struct zi_text why;

	chunks_release_after(&orders->chunks, create.before_id);
	orders->create = (struct orders_create){ 0 };
	zi_text_set(&why, "%u of %u chunks were made and released: %s", create.made, create.count,
	            text->chars);
	return err_trace(answer(orders, create.cookie, error, &why));
}

/* Makes the next chunks, and sends them; or the answer where all have been taken. */
static int go_on(struct orders *orders)
{
	struct orders_create *create = &orders->create;
	struct gpu_chunks batch = { .header = gpu_header_of(GPU_CHUNKS, create->cookie),
		                    .first = create->made };
	int fds[GPU_FDS_MAX];
	struct zi_text text = { "" };
	int r = 0;

	if (create->made == create->count) {
		uint64_t cookie = create->cookie;

		*create = (struct orders_create){ 0 };
		return err_trace(answer(orders, cookie, 0, NULL));
	}
	while (!r && batch.count < GPU_FDS_MAX && create->made < create->count) {
		r = chunks_create(&orders->chunks, create->chunk_bytes, &text,
		                  &batch.ids[batch.count], &fds[batch.count]);
		if (r)
			break;
		batch.count++;
		create->made++;
	}
	if (!r)
		r = send_message(orders->fd, &batch.header, fds, batch.count);
	for (uint32_t i = 0; i < batch.count; i++)
		(void)zi_close(fds[i]); /* The daemon's copies are in the socket. */
	if (r == -ETOOMANYREFS)
		zi_text_set(&text, "the daemon's user has too many descriptors in flight: raise "
		                   "LimitNOFILE of zinfd");
	return r && text.chars[0] ? err_trace(undo_create(orders, r, &text)) : err_trace(r);
}

static int take_create(struct orders *orders, const struct gpu_create *message)
{
	struct zi_text text;
	int r;

	if (orders->create.cookie || !message->header.cookie || message->reserved)
		return ORDERS_E_PROTOCOL;
	r = chunks_check(&orders->chunks, message->count, message->chunk_bytes, &text);
	if (r)
		return err_trace(answer(orders, message->header.cookie, r, &text));
	orders->create = (struct orders_create){ .cookie = message->header.cookie,
		                                 .chunk_bytes = message->chunk_bytes,
		                                 .before_id = orders->chunks.last_id,
		                                 .count = message->count };
	return err_trace(go_on(orders));
}

static int take_taken(struct orders *orders, const struct gpu_taken *message)
{
	struct zi_text text;

	if (!orders->create.cookie || message->header.cookie != orders->create.cookie ||
	    message->error > 0 || message->reserved)
		return ORDERS_E_PROTOCOL;
	if (!message->error)
		return err_trace(go_on(orders));
	zi_text_set(&text, "zinfd could not take their descriptors");
	return err_trace(undo_create(orders, message->error, &text));
}

/* ---- the other orders ---- */

static int take_release(struct orders *orders, const struct gpu_release *message)
{
	struct zi_text text, first = { "" };
	int error = 0;

	if (orders->create.cookie || !message->header.cookie || message->reserved ||
	    !message->count || message->count > GPU_RELEASES_MAX)
		return ORDERS_E_PROTOCOL;
	for (uint32_t i = 0; i < message->count; i++) {
		int r = chunks_release(&orders->chunks, message->ids[i], &text);

		if (r && !error) {
			error = r;
			first = text;
		}
	}
	return err_trace(answer(orders, message->header.cookie, error, &first));
}

static int take(struct orders *orders, const union gpu_message *message)
{
	struct gpu_header pong = gpu_header_of(GPU_PONG, 0);

	switch (message->header.type) {
	case GPU_CREATE:
		return take_create(orders, &message->create);
	case GPU_TAKEN:
		return take_taken(orders, &message->taken);
	case GPU_RELEASE:
		return take_release(orders, &message->release);
	case GPU_PING:
		return err_trace(send_message(orders->fd, &pong, NULL, 0));
	default:
		return ORDERS_E_PROTOCOL; /* The worker's own words. */
	}
}

/* Descriptors that come with a message: no order has one. */
static bool has_descriptors(struct msghdr *packet)
{
	struct cmsghdr *extra = CMSG_FIRSTHDR(packet);
	uint32_t count;
	int fds[GPU_FDS_MAX];

	if (!extra || extra->cmsg_level != SOL_SOCKET || extra->cmsg_type != SCM_RIGHTS)
		return extra != NULL || packet->msg_flags & MSG_CTRUNC;
	count = (uint32_t)ZI_MIN((extra->cmsg_len - CMSG_LEN(0)) / sizeof(int), GPU_FDS_MAX);
	memcpy(fds, CMSG_DATA(extra), count * sizeof(int));
	for (uint32_t i = 0; i < count; i++)
		(void)zi_close(fds[i]);
	return true;
}

/* Documented in the header, as are the others. */
int orders_seen(int fd, uint32_t device_count)
{
	struct gpu_seen seen = { .header = gpu_header_of(GPU_SEEN, 0), .count = device_count };

	return err_trace(send_message(fd, &seen.header, NULL, 0));
}

int orders_greet(struct orders *orders, uint32_t device_count)
{
	const struct zi_gpu_device *device = &orders->chunks.device;
	struct gpu_hello hello = {
		.header = gpu_header_of(GPU_HELLO, 0),
		.bytes = device->bytes,
		.granularity_bytes = device->granularity_bytes,
		.driver_version = orders->chunks.driver->version,
		.capability = device->capability,
		.compute_mode = device->compute_mode,
		.host_numa = device->host_numa,
		.index = (uint32_t)device->index,
		.count = device_count,
		.flags = (device->has_vmm ? GPU_FLAG_VMM : 0) |
		         (device->has_posix_fds ? GPU_FLAG_POSIX_FDS : 0) |
		         (device->is_mig ? GPU_FLAG_MIG : 0),
	};

	/* All have room: the texts are the driver's module's, with their NUL. */
	(void)snprintf(hello.uuid, sizeof(hello.uuid), "%s", device->uuid);
	(void)snprintf(hello.name, sizeof(hello.name), "%s", device->name);
	(void)snprintf(hello.pci, sizeof(hello.pci), "%s", device->pci);
	return err_trace(send_message(orders->fd, &hello.header, NULL, 0));
}

void orders_fail(int fd, int error, const struct zi_text *text)
{
	struct gpu_failed failed = { .header = gpu_header_of(GPU_FAILED, 0), .error = error };
	char rest[64];
	ssize_t bytes;

	zi_text_set(&failed.text, "%s", text->chars);
	if (send_message(fd, &failed.header, NULL, 0))
		return;
	/* The end of this process could reach the daemon before the message does. */
	do
		bytes = recv(fd, rest, sizeof(rest), 0);
	while (bytes > 0 || (bytes < 0 && errno == EINTR));
}

int orders_serve(struct orders *orders)
{
	for (;;) {
		char control[CMSG_SPACE(GPU_FDS_MAX * sizeof(int))] __attribute__((aligned(8)));
		union gpu_message message;
		struct iovec part = { &message, sizeof(message) };
		struct msghdr packet = { .msg_iov = &part,
			                 .msg_iovlen = 1,
			                 .msg_control = control,
			                 .msg_controllen = sizeof(control) };
		ssize_t bytes = recvmsg(orders->fd, &packet, MSG_CMSG_CLOEXEC);
		int r;

		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes <= 0)
			return 0;
		if (has_descriptors(&packet) || packet.msg_flags & MSG_TRUNC ||
		    !gpu_message_is_whole(&message, (uint64_t)bytes))
			r = ORDERS_E_PROTOCOL;
		else
			r = take(orders, &message);
		if (r < 0)
			return 0; /* The daemon closed its end while something was sent. */
		if (r) {
			log_error("zinf-gpu: a packet of %zd bytes is no message of zinfd", bytes);
			return ORDERS_EXIT_PROTOCOL;
		}
	}
}
