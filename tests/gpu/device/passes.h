/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bench measures: passes of a rank over its units, and plain copies of the driver that move
 * as many bytes. A pass begins with nothing queued on the GPU, and ends when all has ended that it
 * queued, so that the bytes and the time of a pass belong together.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/gpu/device/rank.h"

/* Which copies run. */
enum passes_way { PASSES_UP, PASSES_DOWN, PASSES_BOTH, _PASSES_WAY_COUNT };

/* What a forward consists of. */
enum passes_part { PASSES_COPIES = 1, PASSES_COMPUTE = 2 };

struct passes {
	struct rank *rank;
	struct trial_span target; /* a unit, which kernels write */
	void *up, *down;          /* plain memory of cuMemHostAlloc(): all units of one way */
	struct trial_span plain;  /* two units of GPU memory, for plain copies */
	uint32_t rounds;          /* of a kernel on a unit */
	double *call_s;           /* (call_count,) of call_capacity: a unit's unshard and reshard */
	uint32_t call_count, call_capacity;
};

struct passes_time {
	double seconds;
	uint64_t bytes; /* both ways */
};

/* Memory beside that of the rank. passes_deinit() also after a failure. Return: 0; -errno with
 * rank->text. */
int passes_init(struct passes *passes, struct rank *rank);
void passes_deinit(struct passes *passes);

/* All units once through libzinf. PASSES_DOWN and PASSES_BOTH are a step that is discarded. Return:
 * 0; -errno with rank->text. */
int passes_zinf(struct passes *passes, enum passes_way way, struct passes_time *ret_time);
/* The same bytes by plain copies, unit by unit, on a stream each way. */
int passes_plain(struct passes *passes, enum passes_way way, struct passes_time *ret_time);
/* @pass_count forwards: units come, a kernel on each, units go. @parts: of enum passes_part. */
int passes_forward(struct passes *passes, int parts, uint32_t pass_count,
                   struct passes_time *ret_time);
