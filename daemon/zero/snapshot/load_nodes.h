/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job over several nodes begins with a snapshot: each node takes what it is to hold from one of
 * its own, and all must be of the same step. Either each has all of it (an export that was loaded
 * on every node), or each has its part, of one commit, and ranks are where they were. Floor 5,
 * shard thread.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct zero_job;

enum load_kind {
	LOAD_NONE,      /* the job is new here, and begins with nothing */
	LOAD_STORED,    /* the catalog has it: whatever is loaded is left alone, on all nodes */
	LOAD_WHOLE,     /* @name: a digest of what it holds */
	LOAD_PART,      /* @name: of the commit */
	LOAD_MISPLACED, /* a part of another division */
	_LOAD_KIND_COUNT,
};

/* What a node says of it; no padding. */
struct load_words {
	uint32_t kind, node_count, world_size, reserved;
	int64_t step;
	uint64_t name[2];
};

/* Of this node, which has met the others. */
void load_words_make(const struct zero_job *job, struct load_words *ret_words);
/* @words: of @node; @first: of node 0. Return: 0; -EINVAL they begin with different steps;
 * -EOPNOTSUPP with a part of another division. */
int load_words_compare(const struct zero_job *job, const struct load_words *words,
                       const struct load_words *first, uint32_t node, struct zi_text *text);
/* Some node has the job already. */
void load_words_drop(struct zero_job *job);
