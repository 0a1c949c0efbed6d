/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that read and write optimizer state. Floor 5, shard thread. */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/zero/state/state_run.h"

struct tier_segment;
struct zero_job;
struct zero_op;
struct zero_rank;

/* Of a rank that opened it: its window, and what it reads. */
struct zero_state {
	struct zero_job *job;
	struct zero_rank *rank;      /* NULL: it left */
	struct tier_segment *window; /* ZI_STATE_WINDOW_ELEMENTS of 32 bits; the rank writes it */
	struct zero_op *op;          /* open or read under way; NULL: it timed out, or none is */
	bool is_ready;
	bool is_busy; /* the window is being made, or filled */
	struct dev_task task;
	int error;
	struct zi_text text;
	struct state_run run;
};

/* Of a job: the write of all ranks, or what follows zinf_param_write_end(). */
struct zero_state_put {
	bool is_on;
	bool is_count_written; /* the update count, and not committed */
	struct state_run run;
	void (*followed)(struct zero_job *job, int error, const struct zi_text *text);
};

/* -EBUSY: the rank reads optimizer state, which its next call would change; a write of all ranks is
 * under way; either of them, or a step; after zinf_state_write() a commit comes before the next
 * step. */
int state_check_rank(const struct zero_rank *rank, struct zi_text *text);
int state_check_busy(const struct zero_job *job, struct zi_text *text);
int state_check_idle(const struct zero_rank *rank, struct zi_text *text);
int state_check_commit(const struct zero_job *job, struct zi_text *text);
/* Of a read or write: -EINVAL, the optimizer has no such state, or the unit no such range; the rank
 * has no window. */
int state_check_range(const struct zero_job *job, struct zero_op *op);
int state_check_window(const struct zero_rank *rank, struct zero_op *op);
enum { _STATE_E_SUCCESS, STATE_E_STARTED };
/* The unit's parameters were written: the master of 16-bit parameters follows them. Return: 0,
 * there is nothing to do; STATE_E_STARTED, @followed runs once, never from here; -ENOSPC, -EDQUOT
 * with figures. */
int state_follow(struct zero_job *job, uint32_t unit,
                 void (*followed)(struct zero_job *job, int error, const struct zi_text *text),
                 struct zi_text *text);
/* The rank leaves. */
void state_forget(struct zero_rank *rank);
/* What was written and not committed is void: back to the committed count of updates. */
void state_unload(struct zero_job *job);
/* It is committed. */
void state_committed(struct zero_job *job);
