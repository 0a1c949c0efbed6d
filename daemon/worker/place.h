/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the nodes of a job meet (the launcher's variables), and which of this node's addresses it
 * is reached at. Floor 3. Any thread.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

#define PLACE_HOST_BYTES      256u /* a name of the DNS, NUL included */
#define PLACE_INTERFACE_BYTES 16u  /* IFNAMSIZ */

struct place {
	char host[PLACE_HOST_BYTES];
	uint16_t port;
};

/**
 * place_from_variables() - host and port of the store
 * @master_addr, @master_port, @zinf_port: values of MASTER_ADDR, MASTER_PORT, ZINF_PORT, or NULL
 *
 * ZINF_PORT counts where it is set, else MASTER_PORT + 1: under torchrun MASTER_PORT is its own.
 * Return: 0, or -EINVAL with @text naming the variable.
 */
int place_from_variables(const char *master_addr, const char *master_port, const char *zinf_port,
                         struct zi_text *text, struct place *ret_place);

struct place_address {
	char interface[PLACE_INTERFACE_BYTES]; /* "" where none has the address */
	char address[INET6_ADDRSTRLEN];        /* numeric */
	bool is_loopback;
};

/**
 * place_own_address() - the address of this node that others of the job reach
 * @interface: its name, as configured; NULL or "": the one the way to @place leaves by
 *
 * Loopback only when the place itself is reached by it, or when that is configured.
 * Return: 0; -ENODEV, -EADDRNOTAVAIL (an interface without an address), -ENETUNREACH (no way),
 * -ENOENT (the name is not resolved), each with @text.
 */
int place_own_address(const struct place *place, const char *interface, struct zi_text *text,
                      struct place_address *ret_address);
