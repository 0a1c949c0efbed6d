/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a store's client; see store_link.h. Floor 3. One thread at a time. */
#include "daemon/worker/store_link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/store_alive.h"

/* Between two attempts to connect: the first node's worker starts within tenths of a second. */
#define LINK_PAUSE_NS (50 * ZI_NS_PER_MS)
/* An address that answers nothing at all must not use up the time of the others. */
#define LINK_ATTEMPT_NS (3 * ZI_NS_PER_S)

/* Return: 0, -EMFILE, -ENFILE, -ENOMEM. */
int store_link_init(struct store_link *link)
{
	*link = (struct store_link){ .fd = -1 };
	link->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return link->cancel_fd < 0 ? err_origin(-errno) : 0;
}

/* Also one that was never connected. */
void store_link_deinit(struct store_link *link)
{
	link->fd = zi_close(link->fd);
	link->cancel_fd = zi_close(link->cancel_fd);
}

void store_link_cancel(struct store_link *link)
{
	(void)eventfd_write(link->cancel_fd, 1); /* Full: it is readable already. */
}

/* Until @fd (-1: none) is ready, or @deadline_ns. */
static int await(const struct store_link *link, int fd, short events, uint64_t deadline_ns)
{
	struct pollfd polled[2] = { { .fd = link->cancel_fd, .events = POLLIN },
		                    { .fd = fd, .events = events } };
	int r;

	do
		r = poll(polled, 2, zi_clock_poll_ms(deadline_ns));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return err_origin(-errno);
	if (polled[0].revents)
		return err_origin(-ECANCELED);
	return r ? 0 : err_origin(-ETIMEDOUT);
}

static int connect_one(struct store_link *link, const struct addrinfo *address,
                       uint64_t deadline_ns)
{
	_cleanup_(zi_closep) int fd = -1;
	uint64_t attempt_ns = zi_clock_deadline_ns(LINK_ATTEMPT_NS);
	socklen_t bytes = sizeof(int);
	int one = 1, error = 0, r;

	fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* Else slower. */
	store_alive_watch(fd);
	store_alive_end_by_reset(fd);
	if (connect(fd, address->ai_addr, address->ai_addrlen)) {
		if (errno != EINPROGRESS)
			return -errno;
		r = await(link, fd, POLLOUT, ZI_MIN(attempt_ns, deadline_ns));
		if (r)
			return r;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes))
			return -errno;
		if (error)
			return -error;
	}
	link->fd = zi_steal_fd(fd);
	return 0;
}

int store_link_pause(struct store_link *link, uint64_t deadline_ns)
{
	uint64_t pause_ns = zi_clock_deadline_ns(LINK_PAUSE_NS);
	int r;

	link->fd = zi_close(link->fd);
	if (zi_clock_now_ns() >= deadline_ns)
		return err_origin(-ETIMEDOUT);
	r = await(link, -1, 0, ZI_MIN(pause_ns, deadline_ns));
	return r == -ETIMEDOUT ? 0 : err_trace(r);
}

/* Every address once. Return: 0, or the last one's error. */
static int connect_any(struct store_link *link, const struct addrinfo *addresses,
                       uint64_t deadline_ns)
{
	int r = -EADDRNOTAVAIL;

	for (const struct addrinfo *address = addresses; address && r && r != -ECANCELED;
	     address = address->ai_next)
		r = connect_one(link, address, deadline_ns);
	return r;
}

int store_link_connect(struct store_link *link, const char *host, uint16_t port,
                       uint64_t deadline_ns, struct zi_text *text)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *addresses;
	uint64_t started_ns = zi_clock_now_ns();
	char service[8];
	int r, last;

	(void)snprintf(service, sizeof(service), "%u", port); /* Fits. */
	while ((r = getaddrinfo(host, service, &hints, &addresses)))
		if (r != EAI_AGAIN || store_link_pause(link, deadline_ns))
			return err_origin(zi_text_error(
				text, -ENOENT, "the name '%s' (MASTER_ADDR) is not resolved: %s",
				host, gai_strerror(r)));
	do
		last = connect_any(link, addresses, deadline_ns);
	while (last && last != -ECANCELED && !(r = store_link_pause(link, deadline_ns)));
	freeaddrinfo(addresses);
	if (!last)
		return 0;
	if (last == -ECANCELED || r == -ECANCELED)
		return err_origin(
			zi_text_error(text, -ECANCELED, "connecting to the store was broken off"));
	return err_origin(zi_text_error(
		text, -ETIMEDOUT,
		"no store at %s, port %u, within %lu ms (last: %s): check MASTER_ADDR, the "
		"firewall, and that the ranks of the first node are started",
		host, port, (unsigned long)((zi_clock_now_ns() - started_ns) / ZI_NS_PER_MS),
		strerror(-last)));
}

int store_link_send(struct store_link *link, const void *header, size_t header_bytes,
                    const void *payload, size_t payload_bytes, uint64_t deadline_ns)
{
	size_t sent_bytes = 0;
	int r;

	while (sent_bytes < header_bytes + payload_bytes) {
		size_t at = sent_bytes < header_bytes ? sent_bytes : header_bytes;
		size_t past = sent_bytes - at;
		struct iovec parts[2] = {
			{ (char *)header + at, header_bytes - at },
			{ (char *)payload + past, payload_bytes - past },
		};
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
		ssize_t bytes = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (bytes >= 0) {
			sent_bytes += (size_t)bytes;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return err_origin(-EPIPE);
		r = await(link, link->fd, POLLOUT, deadline_ns);
		if (r)
			return err_trace(r);
	}
	return 0;
}

int store_link_receive(struct store_link *link, void *target, size_t bytes, uint64_t deadline_ns)
{
	size_t received_bytes = 0;
	int r;

	while (received_bytes < bytes) {
		ssize_t count = recv(link->fd, (char *)target + received_bytes,
		                     bytes - received_bytes, MSG_DONTWAIT);

		if (count > 0) {
			received_bytes += (size_t)count;
			continue;
		}
		if (count < 0 && errno == EINTR)
			continue;
		if (!count || (errno != EAGAIN && errno != EWOULDBLOCK))
			return err_origin(-EPIPE);
		r = await(link, link->fd, POLLIN, deadline_ns);
		if (r)
			return err_trace(r);
	}
	return 0;
}
