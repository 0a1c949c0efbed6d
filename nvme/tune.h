/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A short measurement of a store: which block size and depth move the most bytes, reading and
 * writing each for itself. Floor 2, owner thread of the engine.
 *
 * Driven by completions alone, so that the thread goes on serving others: their requests run beside
 * (and disturb the figures, which is told). It works in an extent that is nobody's and leaves
 * nothing behind but its bytes there.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "nvme/nvme.h"

#define NVME_TUNE_ROWS_MAX 20u
/* Each combination's share of the time must be some completions long. */
#define NVME_TUNE_NS_MIN 200000000ull
/* Bytes of the extent: at least this, and whole ones. More is better, up to MAX: a device's own
 * cache shows less. */
#define NVME_TUNE_EXTENT_GRAIN_BYTES (16ull << 20)
#define NVME_TUNE_EXTENT_MAX_BYTES   (256ull << 20)
/* What is written, and where reads go: nobody looks at it. Of one block at least. */
#define NVME_TUNE_BUFFER_BYTES (8ull << 20)

struct nvme_tune;

/* One combination, the better of two measurements. */
struct nvme_tune_row {
	enum nvme_direction direction;
	uint32_t block_bytes, depth;
	uint64_t bytes_per_s;   /* 0: left out, the store is too slow for that much in flight */
	uint64_t cpu_ns_per_gb; /* user and system time of the owner thread, per 1e9 bytes */
	bool is_chosen;
};

struct nvme_tune_report {
	int result; /* 0, -ECANCELED, or the first error of I/O; then `text` */
	struct zi_text text;
	struct nvme_tune_row rows[NVME_TUNE_ROWS_MAX];
	uint32_t row_count;
	struct nvme_tuning chosen;
	uint64_t duration_ns;
	uint64_t own_bytes, other_bytes; /* moved by the engine meanwhile: for this, for others */
};

struct nvme_tune_options {
	struct nvme_engine *engine;
	const struct nvme_store *store; /* open until `done` ran */
	struct zi_extent extent;        /* whole NVME_TUNE_EXTENT_GRAIN_BYTES; read and written */
	void *buffer;                   /* (NVME_TUNE_BUFFER_BYTES,), registered best of all */
	uint64_t duration_ns;           /* about, at least NVME_TUNE_NS_MIN */
	/* Runs once, from nvme_engine_reap(); nvme_tune_free() comes next. */
	void (*done)(void *arg);
	void *arg;
};

/* -ENOSPC: the engine has no place for another store; -ENOMEM. */
int nvme_tune_start(const struct nvme_tune_options *options, struct nvme_tune **ret_tune);
/* `done` follows, with -ECANCELED. */
void nvme_tune_cancel(struct nvme_tune *tune);
/* Whole when `done` runs; lives as long as @tune. */
const struct nvme_tune_report *nvme_tune_report(const struct nvme_tune *tune);
/* NULL-safe; not before `done`, but from it. */
struct nvme_tune *nvme_tune_free(struct nvme_tune *tune);
ZI_DEFINE_CLEANUP(struct nvme_tune *, nvme_tune_free)
