/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is a rank of NCCL on the run's GPU, on a chunk that another process made. NCCL is
 * opened by its path; its declarations are this program's own, of functions that all of NCCL 2 has.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "tests/gpu/device/peer.h"

struct trial;

#define NCCL_ID_BYTES 128u

struct nccl_news {
	int64_t error;          /* 0; -errno with text */
	int64_t version;        /* 22809: 2.28.9 */
	uint64_t abort_ns;      /* of nccl_peer_abort(): until the stream was free */
	char id[NCCL_ID_BYTES]; /* of rank 0 */
	struct zi_text text;
};

/* Rank @rank of two opens the library. Return: 0; -errno, with the words in *ret_news. */
int nccl_peer_start(const struct trial *trial, const char *library, uint32_t rank,
                    struct peer *ret_peer, struct nccl_news *ret_news);
/* An order, which nccl_peer_hear() awaits the end of. @fd: a chunk of the sizes' chunk_bytes. The
 * ranks gather into it, and compare. */
int nccl_peer_gather(const struct peer *peer, const char *id, int fd);
/* Gathers once more, which cannot end since the other rank is stopped; aborts after a second. */
int nccl_peer_abort(const struct peer *peer);
/* Return: 0; -errno, with the words in *ret_news. */
int nccl_peer_hear(const struct peer *peer, struct nccl_news *ret_news);
