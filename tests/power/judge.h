/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of what a daemon finds on a disk, against what the recorded life was promised. */
#pragma once

#include "tests/power/life.h"

/* What may have happened to the disk, beside the power. */
enum judge_trial {
	JUDGE_HONEST,
	JUDGE_DAMAGED,     /* something is not what was written: to be named, never used */
	JUDGE_LOG_DAMAGED, /* as above in the catalog's log: what it said last may not be known */
};

enum judge_verdict {
	JUDGE_WHOLE, /* every job as it was promised */
	JUDGE_NAMED, /* something is lost or damaged and said so, as `process` allows */
	JUDGE_WRONG, /* a promise is broken */
};

/* Starts a daemon on @directory, as it may be after a power failure at place @cut, and carries each
 * job on by a step. @text: what is wrong, or lost. */
enum judge_verdict judge_disk(const struct life *life, enum judge_trial trial,
                              const char *directory, uint64_t cut, struct zi_text *text);
