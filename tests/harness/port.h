/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of this machine for what a test serves there. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* A port of the loopback interface that nobody listens at now. */
static inline uint16_t harness_free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) ||
	    getsockname(fd, (struct sockaddr *)&address, &bytes))
		abort();
	(void)close(fd);
	return ntohs(address.sin_port);
}
