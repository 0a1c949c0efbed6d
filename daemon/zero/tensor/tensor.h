/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of a rank: activations and other blobs that outgrow memory. They belong to its session:
 * no commit names them, and they go with it. Floor 5, shard thread, but for what tensor_io.c says
 * of its device tasks.
 *
 *   tensor.c       what a rank asks: alloc, put, prefetch, get, release, free, cancel
 *   tensor_wait.c  what of it waits, and goes on when something came back
 *   tensor_table.c their table, their segment, and the end of both
 *   tensor_room.c  where in the rank's segment a tensor lies, and which must go for it
 *   tensor_io.c    checksums, and the way to the store and back
 *
 * A rank has one segment, which it may write, and the daemon alone says what lies where in it: no
 * offset ever comes from the rank. What it holds goes to the store as soon as it is put, so that
 * its room can be given to another at any time without waiting.
 *
 *            alloc         put            checksums            written, or given up
 *     FREE ────────▶ OPEN ─────▶ HASHING ──────────▶ STORING ──────────────────────▶ KEPT
 *                                   └─ no store ───────────────────────────────────▶ │ ▲
 *                                                                    get, prefetch ▼ │ verified
 *                                                                  LOADING ──▶ CHECKING
 * KEPT is resident (in the segment), stored, or both. The contents of a segment are the rank's to
 * spoil at any time: it harms itself alone, and what comes back from the store is verified.
 */
#pragma once

#include "daemon/device/device.h"
#include "daemon/tier/account.h"
#include "daemon/tier/move.h"
#include "daemon/zero/param/room.h"

struct zero;
struct zero_op;
struct zero_rank;

#define ZERO_TENSORS_MAX 4096u /* of a rank */
/* Each piece has a checksum: as small as 64 KiB while they are at most so many. */
#define ZERO_TENSOR_PIECES_MAX      64u
#define ZERO_TENSOR_PIECE_BYTES_MIN 65536u
/* In the hands of the disk, per rank: steps of other jobs are not kept waiting long. */
#define ZERO_TENSOR_MOVES_MAX 4u

enum zero_tensor_stage {
	ZERO_TENSOR_FREE,
	ZERO_TENSOR_OPEN, /* the rank writes it */
	ZERO_TENSOR_HASHING,
	ZERO_TENSOR_STORING,
	ZERO_TENSOR_KEPT,
	ZERO_TENSOR_LOADING,
	ZERO_TENSOR_CHECKING
};

struct zero_tensor {
	struct zero_tensors *tensors;
	uint64_t id, bytes;
	enum zero_tensor_stage stage;
	uint32_t next; /* of the same hash, or free; UINT32_MAX: none */
	bool is_resident, is_stored;
	bool is_moving;     /* STORING, LOADING: the disk has it; else it is queued */
	bool is_given_up;   /* nobody waits for what is in flight */
	bool is_dropped;    /* freed; goes when what is in flight is back */
	bool is_prefetched; /* and not yet used */
	uint64_t put_number, prefetch_number; /* what came first is smaller */
	uint32_t pin_count;                   /* gets that were not released */
	uint32_t slot_first, slot_count;
	struct tier_extent extent;
	struct tier_charge charge;
	uint64_t piece_bytes;
	uint64_t hashes[ZERO_TENSOR_PIECES_MAX];
	struct zi_list link; /* in a queue */
	struct tier_move move;
	struct dev_task task;
	int error;
	struct zi_text text;
};

/* Those of a rank. Outlives it while something is in flight. */
struct zero_tensors {
	struct zero *zero;
	struct zero_rank *rank; /* NULL: has left */
	struct tier *nvme_tier; /* NULL: in memory alone */
	struct tier_account *account;
	struct nvme_flow *flow;   /* the job's; both stay as long as anything is charged to it */
	struct tier_tally *tally; /* the job's */
	struct dev *device;
	char job_name[ZI_NAME_BYTES];
	uint32_t rank_number;
	struct tier_segment *segment;
	bool is_ready; /* the segment is built and handed out */
	struct dev_task build_task;
	int build_error;
	struct zi_text build_text;

	struct zero_tensor *entries; /* (ZERO_TENSORS_MAX,) */
	uint32_t *heads;             /* (ZERO_TENSORS_MAX,) by hash of the id */
	uint32_t free_first, count;
	uint64_t next_number;
	struct zero_run *runs; /* (run_count,) of ZERO_TENSORS_MAX: what lies in the segment */
	uint32_t run_count, slot_count;
	struct zi_list loads, stores; /* struct zero_tensor: that wait for the disk */
	uint32_t moving_count;
	uint32_t busy_count; /* moves and tasks in flight */
	uint64_t read_bytes, write_bytes, evicted_count;
};
