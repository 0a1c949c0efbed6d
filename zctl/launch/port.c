/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port is free when it can be bound: tried, and let go at once, for it is rank 0 that will
 * listen. Somebody may take it in between; then rank 0 says so.
 */
#include "zctl/launch/port.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"

/* Of two ports side by side the second is taken now and then; so often in a row never. */
#define TRY_MAX  100u
#define PORT_MAX 65535u

/* Return: 0 with a bound socket; -errno. */
static int bind_at(const struct addrinfo *place, uint32_t port, int *ret_fd)
{
	struct sockaddr_storage address = { 0 };
	_cleanup_(zi_closep) int fd = -1;
	const int one = 1;

	memcpy(&address, place->ai_addr, place->ai_addrlen);
	if (place->ai_family == AF_INET6)
		((struct sockaddr_in6 *)&address)->sin6_port = htons((uint16_t)port);
	else
		((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
	fd = socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_origin(-errno);
	/* As those who listen do: connections of a former run that linger are no hindrance. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&address, place->ai_addrlen))
		return err_origin(-errno);
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

static int try_port(const struct addrinfo *place, uint32_t port)
{
	_cleanup_(zi_closep) int fd = -1;

	return err_trace(bind_at(place, port, &fd));
}

static uint32_t port_of(int fd)
{
	struct sockaddr_storage address = { 0 };
	socklen_t bytes = sizeof(address);

	(void)getsockname(fd, (struct sockaddr *)&address, &bytes); /* It is bound: cannot fail. */
	return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
	                                           : ((struct sockaddr_in *)&address)->sin_port);
}

/* The kernel's choice, and its neighbour. */
static int find_pair(const struct addrinfo *place, uint32_t *ret_port)
{
	int r = -EADDRINUSE;

	for (uint32_t i = 0; i < TRY_MAX; i++) {
		_cleanup_(zi_closep) int fd = -1;
		uint32_t port;

		r = bind_at(place, 0, &fd);
		if (r)
			return err_trace(r);
		port = port_of(fd);
		if (port < PORT_MAX && !try_port(place, port + 1)) {
			*ret_port = port;
			return 0;
		}
	}
	return err_origin(-EADDRINUSE);
}

static int refuse(int r, const char *address, uint32_t port, struct zi_text *text)
{
	if (r == -EADDRINUSE)
		return zi_text_error(text, r,
		                     "port %u of %s is in use: give another --master-port, or "
		                     "--standalone for any free port",
		                     port, address);
	if (r == -EADDRNOTAVAIL)
		return zi_text_error(text, r,
		                     "%s is no address of this machine: leave out "
		                     "--master-addr, or name an own address",
		                     address);
	return zi_text_error(text, r, "port %u of %s cannot be bound: %s", port, address,
	                     strerror(-r));
}

/* See port.h. */
int launch_port_choose(const char *address, uint32_t port, bool is_fixed, uint32_t *ret_port,
                       struct zi_text *text)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char bare[256];
	size_t bytes = strlen(address);
	int r;

	if (bytes > 2 && address[0] == '[' && address[bytes - 1] == ']')
		(void)snprintf(bare, sizeof(bare), "%.*s", (int)(bytes - 2), address + 1);
	else
		(void)snprintf(bare, sizeof(bare), "%s", address);
	r = getaddrinfo(bare, NULL, &hints, &found);
	if (r)
		return zi_text_error(text, -EINVAL, "--master-addr %s: %s", address,
		                     gai_strerror(r));
	r = port ? try_port(found, port) : -EADDRINUSE;
	if (!r)
		*ret_port = port;
	else if (!port || (r == -EADDRINUSE && !is_fixed))
		r = find_pair(found, ret_port);
	freeaddrinfo(found);
	return r ? refuse(r, address, port, text) : 0;
}
