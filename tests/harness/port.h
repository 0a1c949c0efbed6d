/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of this machine for what a test serves there. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Below what the kernel gives to sockets that ask for none: else a connection, or another
 * listener of this machine, could take the port before it is served at, or a connection to it be
 * its own end.
 */
#define HARNESS_PORT_FIRST 12000u
#define HARNESS_PORT_COUNT 18000u

static inline bool harness_is_port_free(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_port = htons(port),
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool is_free;

	if (fd < 0)
		abort();
	is_free = !bind(fd, (struct sockaddr *)&address, sizeof(address));
	(void)close(fd);
	return is_free;
}

/* A port of the loopback interface that nobody listens at. Drawn: tests run beside each other. */
static inline uint16_t harness_free_port(void)
{
	uint16_t drawn;

	do {
		if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
			abort();
		drawn = (uint16_t)(HARNESS_PORT_FIRST + drawn % HARNESS_PORT_COUNT);
	} while (!harness_is_port_free(drawn));
	return drawn;
}
