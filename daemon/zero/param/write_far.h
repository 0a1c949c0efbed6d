/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where nodes have pools: a node's part of a unit that a rank of another node has written. Into its
 * shard; or, on its way to the store, into memory of its own. Floor 5, shard thread.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct zero_job;

/* It is there: in the shard, or in job->write_source, unless the group has broken meanwhile; or
 * there is no memory: @error with @text. */
typedef void (*write_gathered_fn)(struct zero_job *job, int error, const struct zi_text *text);

struct write_far {
	uint32_t unit, root;
	write_gathered_fn done;
	int error;
	struct zi_text text;
};

/* @done: from the loop, or at once. Counted in busy_count until then. */
void write_far_gather(struct zero_job *job, uint32_t unit, uint32_t root, write_gathered_fn done);
