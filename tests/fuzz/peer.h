/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the house: its end of the socket, the shared memory it received, and what it
 * remembers of the model. Nothing it does is checked by itself: it may lie as it likes. */
#pragma once

#include <stdbool.h>

#include "common/wire/control.h"
#include "common/wire/layout.h"
#include "tests/fuzz/fuzz.h"

#define PEERS 3u

struct peer {
	int fd; /* -1: not connected */
	uint32_t sequence;
	uint64_t sent_count; /* house.sent_count at the newest peer_receive() */
	int doorbell_fd, wakeup_fd;
	char *uplink; /* NULL: not attached */
	const char *downlink;
	uint64_t uplink_bytes, downlink_bytes;
	uint32_t entries;
	uint32_t sq_tail, cq_head; /* what it last wrote there */
	char *grad;                /* NULL: not materialised */
	uint64_t grad_bytes;
	char *staging; /* the newest copy of a unit; NULL: none */
	uint64_t staging_bytes;
	char *board; /* the newest of a group; NULL: none */
	uint64_t board_bytes;
	char *window; /* of tensors, or of a load: the newest that it may write; NULL: none */
	uint64_t window_bytes;
	uint32_t unit_count, param_count; /* of the layout it streamed */
};

/* What a client of protocol @major can do. */
static inline struct zi_hello peer_hello(uint32_t major)
{
	return (struct zi_hello){ .major = (uint16_t)major,
		                  .features = ZI_FEATURE_NVME_STATE | ZI_FEATURE_NVME_PARAM |
		                              ZI_FEATURE_EARLY | ZI_FEATURE_COLL_VERSION |
		                              ZI_FEATURE_TRAINING | ZI_FEATURE_SETS |
		                              ZI_FEATURE_NODES | ZI_FEATURE_STATE_NODES |
		                              ZI_FEATURE_TENSORS | ZI_FEATURE_GPU,
		                  .coll_version = ZI_COLL_VERSION };
}

void peer_init(struct peer *peer);
void peer_connect(struct peer *peer);
/* Closes and unmaps everything. */
void peer_close(struct peer *peer);
/* A message that is well-formed as far as its header goes. */
void peer_send(struct peer *peer, void *message, uint16_t type, uint32_t bytes);
/* Anything, with that many descriptors of a pipe. */
void peer_send_packet(struct peer *peer, const void *bytes, size_t byte_count, uint32_t fd_count);
/* Takes in whatever the daemon has sent, and checks that it is well-formed. */
void peer_receive(struct peer *peer);
/* Into the slot behind the newest, and told of. */
void peer_push(struct peer *peer, const struct zi_sqe *sqe);
/* Takes completions in: as many as there are. */
void peer_reap(struct peer *peer);
