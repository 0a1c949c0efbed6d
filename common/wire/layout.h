/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared memory of one session: what lies where, and who may write it. Floor 1.
 *
 * Two sealed memfds, both made by the daemon:
 *   uplink    written by the client (mapped read-write there, read-only in the daemon):
 *             header with step options, SQ slots, resume blob, a step's groups of parameters,
 *             their betas
 *   downlink  written by the daemon (the client gets a descriptor reopened O_RDONLY):
 *             header, CQ slots, error texts
 * So each shared word has one writer, by construction and not by discipline. The geometry is fixed
 * when the session is made, is told on the socket, and is never read from the region again.
 *
 * Indices run free over 2^32; used = tail - head. A peer whose index claims more than `entries` is
 * hostile or broken: -EPROTO, end of session.
 */
#pragma once

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/types.h"

/* Parameters in a slot of GRAD_UNUSED. */
#define ZI_UNUSED_BITS 320u
/* Runs of subgroups in a slot of UNSHARD_PART, in this many words. */
#define ZI_PART_BITS  320u
#define ZI_PART_WORDS (ZI_PART_BITS / 64)

#define ZI_UPLINK_MAGIC     0x4b4e494c50554e5aull /* "ZNUPLINK" */
#define ZI_DOWNLINK_MAGIC   0x4b4e4c4e57444e5aull /* "ZNDWNLNK" */
#define ZI_REGION_VERSION   1u
#define ZI_SLOT_BYTES       64u
#define ZI_LINE_BYTES       64u
#define ZI_RING_ENTRIES     256u /* default; a power of two, told at attach */
#define ZI_RING_ENTRIES_MAX 4096u
#define ZI_TEXT_SLOTS       16u

enum zi_opcode {
	ZI_OP_NOP = 0,
	ZI_OP_UNSHARD = 1,      /* unit */
	ZI_OP_RESHARD = 2,      /* unit */
	ZI_OP_PREFETCH = 3,     /* unit */
	ZI_OP_GRAD_ACQUIRE = 4, /* unit */
	ZI_OP_REDUCE = 5,       /* unit */
	ZI_OP_STEP_BEGIN = 6,   /* options in the uplink */
	ZI_OP_STEP = 7,         /* args[0]: blob bytes in the uplink */
	ZI_OP_COMMIT = 8,       /* args[0]: blob bytes in the uplink */
	ZI_OP_BARRIER = 9,
	/* With ZI_FEATURE_TENSORS; args[0] is an id that the client chooses. */
	ZI_OP_TENSOR_ALLOC = 10, /* args[1]: bytes */
	ZI_OP_TENSOR_PUT = 11,   /* args[1]: bytes, as allocated */
	ZI_OP_TENSOR_PREFETCH = 12,
	ZI_OP_TENSOR_GET = 13,
	ZI_OP_TENSOR_RELEASE = 14,
	ZI_OP_TENSOR_FREE = 15,
	ZI_OP_CANCEL = 16, /* args[0]: user_data of a pending operation on a tensor */
	/* With ZI_TRAINING_FIND_UNUSED, before a REDUCE of the unit. args[0]: a parameter of it, a
	 * multiple of 64; args[1] to [5]: bits of the 320 from it on: they got no gradient. */
	ZI_OP_GRAD_UNUSED = 17,
	/* With ZI_FEATURE_STEPS. */
	ZI_OP_STEP_OPTIONS = 18, /* options in the uplink: of a step with ZI_STEP_DEFERRED */
	ZI_OP_GRAD_NORM = 19,
	ZI_OP_STEP_DISCARD = 20,
	/* With ZI_FEATURE_PART. Of a unit, cut into runs of args[0] subgroups, the runs whose bits
	 * are set in args[1] to [5]: the rank reads no others. */
	ZI_OP_UNSHARD_PART = 21,
	_ZI_OP_COUNT,
};

/* Submission slot. Everything not named for an opcode is zero, and checked. */
struct zi_sqe {
	uint64_t user_data; /* comes back in the completion; chosen by the client */
	uint16_t opcode;
	uint16_t flags;
	uint32_t unit;
	uint64_t args[6];
};
static_assert(sizeof(struct zi_sqe) == ZI_SLOT_BYTES, "a slot is one cache line");

/* Completion slot. */
struct zi_cqe {
	uint64_t user_data;
	int32_t result;      /* 0 or -errno */
	uint32_t text_index; /* 1 + slot of the error text in the downlink; 0: none */
	/* ZI_OP_STEP and ZI_OP_COMMIT: [0] committed step. The statistics lie in the downlink
	 * header as of this completion. ZI_OP_STEP: [1] 1 + the unit of the first gradient that
	 * was not finite; 0: none; [2] parameters that got no gradient on any rank.
	 * ZI_OP_GRAD_NORM: [0] the bits of the norm, a double. Others: zero. */
	uint64_t values[6];
};
static_assert(sizeof(struct zi_cqe) == ZI_SLOT_BYTES, "a slot is one cache line");

/* One word on a cache line of its own. */
struct zi_line {
	alignas(ZI_LINE_BYTES) uint32_t value;
	uint32_t reserved[15];
};
static_assert(sizeof(struct zi_line) == ZI_LINE_BYTES, "one word, one line");

/* For words outside the rings (spin_us, broken): one writer, any number of readers. The load's
 * acquire pairs with the store's release, so that what was written before is seen with it. */
static inline uint32_t zi_line_load(const struct zi_line *line)
{
	return __atomic_load_n(&line->value, __ATOMIC_ACQUIRE);
}
static inline void zi_line_store(struct zi_line *line, uint32_t value)
{
	__atomic_store_n(&line->value, value, __ATOMIC_RELEASE);
}

/* Step options as they travel: the client writes them before it submits STEP_BEGIN, or
 * STEP_OPTIONS; the daemon copies them out once, checks the copy, and uses only the copy. */
struct zi_step_options {
	double lr, beta1, beta2, eps, weight_decay, max_norm, unscale;
	uint32_t micro_batches;
	uint32_t flags; /* ZI_STEP_* */
	/* Under ZI_FEATURE_TRAINING, as are the last three flags; else zero. */
	double lr_decay; /* Adagrad's */
	uint32_t
		group_count; /* that lie behind the blob, instead of lr and weight_decay; 0: none */
	uint32_t reserved0;
	uint64_t reserved[6];
};
static_assert(sizeof(struct zi_step_options) == 128, "options are two lines");
#define ZI_STEP_NESTEROV           (1u << 0)
#define ZI_STEP_SUM                (1u << 1)
#define ZI_STEP_SKIP_NONFINITE     (1u << 2)
#define ZI_STEP_WANT_NORM          (1u << 3)
#define ZI_STEP_UPDATE_EARLY       (1u << 4)
#define ZI_STEP_NO_BIAS_CORRECTION (1u << 5)
#define ZI_STEP_JOINED             (1u << 6) /* this rank has no data left */
#define ZI_STEP_DIVIDES_BY_LIVE    (1u << 7) /* joined: the average is over the others */
/* Under ZI_FEATURE_STEPS. */
#define ZI_STEP_DEFERRED  (1u << 8) /* STEP_BEGIN: STEP_OPTIONS brings the hyperparameters */
#define ZI_STEP_BETAS     (1u << 9) /* structs zi_step_betas lie behind the groups */
#define ZI_STEP_FLAGS_ALL 0x3ffu

/* What a group of parameters has of its own in a step; written and read as the options are. */
struct zi_step_group {
	double lr, weight_decay;
	uint64_t reserved[2];
};
static_assert(sizeof(struct zi_step_group) == 32, "a step's group");
#define ZI_PARAM_GROUPS_MAX 64u

/* What a group has as well, with ZI_STEP_BETAS: as many as there are groups. */
struct zi_step_betas {
	double beta1, beta2, eps;
};
static_assert(sizeof(struct zi_step_betas) == 24, "rings of 64 slots or more do not grow");

struct zi_step_stats {
	uint64_t step;
	uint32_t is_skipped;
	uint32_t culprit; /* rank of the first gradient that was not finite; UINT32_MAX: not told */
	double norm, clip;
	uint64_t read_bytes, write_bytes;
	uint64_t step_ns, grad_wait_ns, norm_wait_ns, io_read_ns, io_write_ns, cpu_ns, commit_ns;
	int64_t committed_step;
	uint64_t update_count; /* steps that changed the parameters, with this one: in force */
	double loss_scale;     /* of the next step; 1 without a scaler */
};
static_assert(sizeof(struct zi_step_stats) == 128, "statistics are two lines");

/* writer: client */
struct zi_uplink_header {
	uint64_t magic;
	uint32_t version;
	uint32_t entries; /* of the SQ, for people who look; never trusted */
	uint64_t reserved[6];
	struct zi_line sq_tail;
	struct zi_line cq_head;
	struct zi_line cq_need_wakeup; /* the client sleeps on its eventfd */
	struct zi_step_options step_options;
	uint64_t reserved1[8];
};
static_assert(sizeof(struct zi_uplink_header) == 448, "header of the uplink");

/* writer: daemon */
struct zi_downlink_header {
	uint64_t magic;
	uint32_t version;
	uint32_t entries;
	uint64_t reserved[6];
	struct zi_line sq_head;
	struct zi_line cq_tail;
	struct zi_line sq_need_wakeup; /* the daemon sleeps on the client's doorbell */
	struct zi_line spin_us;        /* how long the client may spin before it sleeps; 0: not */
	struct zi_line broken;      /* errno (positive) once the session or group is over; else 0 */
	struct zi_step_stats stats; /* of the newest STEP completion, written before its CQE */
};
static_assert(sizeof(struct zi_downlink_header) == 512, "header of the downlink");

/* Offsets of the parts. @entries: power of two up to ZI_RING_ENTRIES_MAX. */
#define ZI_UPLINK_SQ_OFFSET   512u
#define ZI_DOWNLINK_CQ_OFFSET 512u
#define ZI_BLOB_BYTES         65536u
static inline uint64_t zi_uplink_blob_offset(uint32_t entries)
{
	return ZI_UPLINK_SQ_OFFSET + (uint64_t)entries * ZI_SLOT_BYTES;
}
/* Behind the blob, so that what was there before has not moved. */
static inline uint64_t zi_uplink_groups_offset(uint32_t entries)
{
	return zi_uplink_blob_offset(entries) + ZI_BLOB_BYTES;
}
static inline uint64_t zi_uplink_betas_offset(uint32_t entries)
{
	return zi_uplink_groups_offset(entries) +
	       ZI_PARAM_GROUPS_MAX * sizeof(struct zi_step_group);
}
static inline uint64_t zi_downlink_text_offset(uint32_t entries)
{
	return ZI_DOWNLINK_CQ_OFFSET + (uint64_t)entries * ZI_SLOT_BYTES;
}
#define ZI_ERROR_TEXT_BYTES 256u
uint64_t zi_uplink_bytes(uint32_t entries);   /* whole pages */
uint64_t zi_downlink_bytes(uint32_t entries); /* whole pages */

const char *zi_opcode_name(uint16_t opcode);
