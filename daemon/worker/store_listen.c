/* SPDX-License-Identifier: Apache-2.0 */
/* The socket the store listens at; see store_server.h. Floor 3. The loop's thread. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/store_private.h"

/* All nodes come at once. */
#define STORE_BACKLOG 128

/* IPv6's any address takes IPv4 as well; a node without IPv6 has IPv4's. */
static int listen_at(const struct addrinfo *address, uint16_t *ret_port, int *ret_fd)
{
	_cleanup_(zi_closep) int fd = -1;
	struct sockaddr_storage name = { 0 };
	socklen_t name_bytes = sizeof(name);
	int one = 1, zero = 0;

	fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* The port of a store that just ended is free again. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		return -errno;
	if (address->ai_family == AF_INET6 &&
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero)))
		return -errno;
	if (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, STORE_BACKLOG) ||
	    getsockname(fd, (struct sockaddr *)&name, &name_bytes))
		return -errno;
	*ret_port = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
	                                             : ((struct sockaddr_in *)&name)->sin_port);
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

static int listen_any(const struct addrinfo *addresses, int family, uint16_t *ret_port, int *ret_fd)
{
	int r = -EADDRNOTAVAIL;

	for (; addresses && r && r != -EADDRINUSE; addresses = addresses->ai_next)
		if (addresses->ai_family == family)
			r = listen_at(addresses, ret_port, ret_fd);
	return r;
}

static int explain_listen(int r, const struct store_server_options *options, struct zi_text *text)
{
	const char *host = options->host ? options->host : "any address";

	if (r == -EADDRINUSE)
		return zi_text_error(text, r,
		                     "port %u of %s is in use on this node, by another job's store "
		                     "or another program: set ZINF_PORT to a free one on all nodes",
		                     options->port, host);
	if (r == -EADDRNOTAVAIL)
		return zi_text_error(text, r,
		                     "'%s' is no address of this node, which serves the store: "
		                     "MASTER_ADDR must name the node of the first rank",
		                     host);
	return zi_text_error(text, r, "listening at %s, port %u: %s%s", host, options->port,
	                     strerror(-r), r == -EACCES ? " (ports below 1024 are root's)" : "");
}

/* Documented in store_private.h. */
int store_listen(const struct store_server_options *options, struct zi_text *text,
                 uint16_t *ret_port, int *ret_fd)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *addresses = NULL;
	char port[8];
	int r;

	(void)snprintf(port, sizeof(port), "%u", options->port); /* Fits. */
	r = getaddrinfo(options->host, port, &hints, &addresses);
	if (r)
		return err_origin(zi_text_error(text, -ENOENT,
		                                "the name '%s' (MASTER_ADDR) is not resolved: %s",
		                                options->host, gai_strerror(r)));
	/* IPv6 first, for it serves both. Where a port is taken for one of the two, clients of
	 * that one would come to somebody else. */
	r = listen_any(addresses, AF_INET6, ret_port, ret_fd);
	if (r && r != -EADDRINUSE)
		r = listen_any(addresses, AF_INET, ret_port, ret_fd);
	freeaddrinfo(addresses);
	if (r)
		return err_origin(explain_listen(r, options, text));
	return 0;
}
