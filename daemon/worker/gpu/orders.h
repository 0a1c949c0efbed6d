/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon orders of a zinf-gpu, message by message (gpu.h). Floor 3, of zinf-gpu; its only
 * thread, which waits for the next message while nothing is ordered, and in the driver otherwise.
 */
#pragma once

#include "daemon/worker/gpu/chunks.h"

/* Exit codes of zinf-gpu: 0 the daemon closed its end; 1 it was started wrongly. */
#define ORDERS_EXIT_PROTOCOL 4 /* a message that no daemon sends */

/* The CREATE in progress. */
struct orders_create {
	uint64_t cookie; /* 0: there is none */
	uint64_t chunk_bytes;
	uint64_t before_id; /* the newest chunk when it began */
	uint32_t count, made;
};

struct orders {
	int fd; /* the socket, which waits */
	struct chunks chunks;
	struct orders_create create;
};

/* Tells the daemon how many GPUs this process sees. Return: as orders_greet(). */
int orders_seen(int fd, uint32_t device_count);
/* Greets the daemon. @device_count: GPUs that this process sees. Return: 0; -EPIPE the daemon has
 * gone. */
int orders_greet(struct orders *orders, uint32_t device_count);
/* Tells the daemon that there is no GPU, and waits until it closes its end. */
void orders_fail(int fd, int error, const struct zi_text *text);
/* Serves until the daemon closes its end. Return: the exit code. */
int orders_serve(struct orders *orders);
