/* SPDX-License-Identifier: Apache-2.0 */
/* Messages about optimizer state (docs/PROTOCOL.md), under ZI_FEATURE_STATE. Floor 1. */
#pragma once

#include "common/wire/control.h"

/* PARAM_WRITE_END: the unit's optimizer state stays; all ranks alike. Under ZI_FEATURE_STATE. */
#define ZI_PARAM_WRITE_KEEP (1u << 0)

/* What a rank may have of the optimizer state of an element (docs/ARITHMETIC.md), 32 bits each. */
enum zi_state_kind {
	ZI_STATE_REMAINDER = 1, /* of 16-bit parameters: int32, what one lacks of its fp32 master */
	ZI_STATE_FIRST = 2,     /* f32: exp_avg; SGD: momentum; Adagrad: sum of squares */
	ZI_STATE_SECOND = 3,    /* f32: exp_avg_sq of Adam and AdamW */
	_ZI_STATE_COUNT,
};

/* Elements of a rank's window, and so of a range. Four subgroups: 4 MiB. */
#define ZI_STATE_WINDOW_ELEMENTS (4 * ZI_SUBGROUP_ELEMENTS)
/* Steps and updates are counted in f64 by others, too. */
#define ZI_UPDATE_COUNT_MAX (1ull << 53)

/* STATE_OPEN: once in a session, after MATERIALIZED; header only. */
struct zi_state_opened {
	struct zi_message_header header;
	uint64_t bytes; /* of the window's segment */
	uint64_t reserved[4];
};
static_assert(sizeof(struct zi_state_opened) == 56, "state opened");

/* STATE_READ: a range of a unit's state into the window, from its beginning. DONE. @root: 0.
 * STATE_WRITE: the other way, from the root's window; every rank sends the same. DONE. */
struct zi_state_range {
	struct zi_message_header header;
	uint32_t unit;
	uint32_t kind;         /* enum zi_state_kind */
	uint64_t first, count; /* elements of the unit; count: 1 to ZI_STATE_WINDOW_ELEMENTS */
	uint32_t root;
	uint32_t reserved0;
	uint64_t reserved[3];
};
static_assert(sizeof(struct zi_state_range) == 72, "state range");

/* STATE_COUNT: how many updates the optimizer state has seen; every rank sends the same. DONE. */
struct zi_state_count {
	struct zi_message_header header;
	uint64_t update_count;
	double beta1, beta2; /* of these updates: the bias correction of the next one */
	uint64_t reserved[3];
};
static_assert(sizeof(struct zi_state_count) == 64, "state count");
