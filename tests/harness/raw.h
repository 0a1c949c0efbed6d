/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that has never heard of libzinf: it speaks the wire's structs with its own calls, so
 * that it can say what no libzinf would. Nothing here asserts; every wait is bounded.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/control.h"
#include "common/wire/layout.h"

#define RAW_TIMEOUT_MS 10000

enum {
	RAW_UPLINK,
	RAW_DOWNLINK,
	RAW_DAEMON_BELL,
	RAW_CLIENT_BELL,
	RAW_PARAM,
	RAW_GRAD,
	_RAW_FD_COUNT
};

struct raw {
	int socket_fd;
	uint32_t sequence;
	int fds[_RAW_FD_COUNT]; /* -1: not received */
	struct zi_attached attached;
	struct zi_materialized materialized;
	struct zi_uplink_header *uplink;
	const struct zi_downlink_header *downlink;
	union {
		struct zi_message_header header;
		struct zi_error_message error;
		struct zi_notice notice;
		struct zi_attached attached;
		struct zi_materialized materialized;
		unsigned char bytes[ZI_MESSAGE_BYTES_MAX];
	} reply; /* the newest message */
};

int raw_connect(struct raw *raw, const char *path);
void raw_close(struct raw *raw);

/* One packet, as it is. 0 or -errno; never waits longer than RAW_TIMEOUT_MS, never SIGPIPE. */
int raw_send(struct raw *raw, const void *bytes, size_t byte_count, const int *fds,
             uint32_t fd_count);
/* A header by itself. */
int raw_send_plain(struct raw *raw, enum zi_message_type type);
/* The next message into ->reply; descriptors into @fds ((8,), -1 for none), or closed when NULL.
 * Its type; 0: the daemon has closed; -ETIMEDOUT. */
int raw_receive_fds(struct raw *raw, int *fds);
int raw_receive(struct raw *raw);
/* Whether the daemon closes this connection within RAW_TIMEOUT_MS, whatever it says before. */
bool raw_is_ended(struct raw *raw);

/* The steps of a session; 0, or the -errno of the daemon's ERROR, or what raw_receive() says. */
int raw_hello(struct raw *raw);
void raw_attach_message(struct zi_attach *message, const char *job, const char *incarnation,
                        uint32_t rank, uint32_t world_size);
int raw_attach(struct raw *raw, const struct zi_attach *message);
/* One unit of @param_count parameters of @elements each. */
int raw_layout(struct raw *raw, uint32_t param_count, uint64_t elements);
int raw_materialize(struct raw *raw, uint32_t param_count);
/* Sends MATERIALIZE and does not wait. */
int raw_send_materialize(struct raw *raw, uint32_t unit_count, uint32_t param_count);
/* connect, HELLO, ATTACH. */
int raw_join(struct raw *raw, const char *path, const char *job, uint32_t rank,
             uint32_t world_size);

/* The ring by hand. */
void raw_push(struct raw *raw, const struct zi_sqe *sqe);
void raw_ring(struct raw *raw);
/* Waits for the next completion (polls the bell, bounded). 0, -ETIMEDOUT, -ECONNRESET. */
int raw_pop(struct raw *raw, struct zi_cqe *ret_cqe);
/* Push, ring, pop: its result. */
int raw_call(struct raw *raw, uint16_t opcode, uint32_t unit);
