/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rule of the fault injector: what happens to which blocks. Private to nvme/. Floor 2, any thread
 * for parsing, the engine's owner for the rest.
 *
 *   KIND=DIRECTION@WHEN[@LOW-HIGH]
 *
 * KIND is the name of an errno (EIO, ENODATA, ENOSPC, EFBIG …: it fails so, nothing moves), or one
 * of enum nvme_faulty_kind. DIRECTION: read, write, any (of both), flush. WHEN counts the blocks
 * (or flushes) that the rest of the rule allows, from 1: N the N-th, N+ from the N-th on, /N each
 * N-th, ~N one in N, drawn from the seed. LOW-HIGH: bytes of the store, of which the block has to
 * touch one. A flush has none, and can fail, be lost, stall or kill.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "nvme/backend.h"

enum nvme_faulty_kind {
	NVME_FAULTY_NONE,
	NVME_FAULTY_ERROR, /* fails with the rule's errno */
	NVME_FAULTY_SHORT, /* a part moves, as reported */
	NVME_FAULTY_LOST,  /* a write: reported as done, the old bytes stay; a flush: not made */
	NVME_FAULTY_TORN,  /* a write: only its first sectors are written, reported as done */
	NVME_FAULTY_FLIP,  /* a bit is wrong: in the buffer of a read, on the disk after a write */
	NVME_FAULTY_MISPLACE, /* moves from or to another offset of the store */
	NVME_FAULTY_STALL,    /* comes back stall_ms later */
	NVME_FAULTY_KILL,     /* the process ends by SIGKILL, after those before it have gone out */
	NVME_FAULTY_KILL_DONE, /* … when it is done, before the engine hears of it */
	_NVME_FAULTY_COUNT,
};

enum nvme_faulty_when {
	NVME_FAULTY_AT,
	NVME_FAULTY_FROM,
	NVME_FAULTY_EVERY,
	NVME_FAULTY_CHANCE,
};

struct nvme_faulty_rule {
	enum nvme_faulty_kind kind;
	int error; /* a positive errno; ERROR */
	bool directions[2];
	bool is_flush; /* of flushes; both directions are false then */
	enum nvme_faulty_when when;
	uint64_t number;
	uint64_t low_bytes, high_bytes; /* [low, high) */
	uint64_t met_count;             /* blocks, or flushes, that the rule was about */
};

/* Return: 0; -ENOENT when @key is no kind; -EINVAL with a sentence. */
int nvme_faulty_rule_parse(const char *key, const char *value, struct zi_text *text,
                           struct nvme_faulty_rule *ret_rule);
/* Counts the block, or the flush. @random: drawn anew for each call. */
bool nvme_faulty_rule_fires_at_flush(struct nvme_faulty_rule *rule, uint64_t random);
bool nvme_faulty_rule_fires(struct nvme_faulty_rule *rule, const struct nvme_block *block,
                            uint64_t random);
