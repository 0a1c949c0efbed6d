/* SPDX-License-Identifier: Apache-2.0 */
/* What a node knows of snapshots that all keep; see keep.h. Floor 5, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/worker/subtree.h"
#include "daemon/worker/talk.h"

struct zero_snapshot;

/* To one node and not yet taken by it there are at most a question or its answers, and of the
 * snapshot under way what is to be done, told, and become of it. */
#define KEEP_ENTRIES 8u

/* What is sent; name: "" in a question: that of the step. */
struct keep_words {
	uint64_t number, line; /* of the commit */
	uint32_t keep_count, is_automatic;
	char name[ZI_NAME_BYTES];
};

static_assert(sizeof(struct keep_words) <= TALK_DATA_BYTES, "in one entry");

struct keep_turn {
	uint64_t id; /* 0: the node asks for nothing */
	struct keep_words words;
};

struct keep {
	/* here */
	struct zi_list asks; /* struct zero_snapshot_op, by link: the first one's question is out */
	uint64_t asked;      /* by this id; 0: none is */
	uint32_t ask_count;
	/* of all nodes; id 0: none is under way */
	struct keep_turn now;
	int64_t step;
	struct zero_snapshot *snapshot; /* this node's part; NULL: it has none, or had it before */
	bool is_told;
	/* on node 0 */
	struct keep_turn turns[SUBTREE_NODES_MAX];
	uint32_t last;    /* node whose turn was the last */
	uint64_t waiting; /* nodes that have not told: bits, */
	uint64_t had;     /* and those that had it before */
	int error;        /* of the first that cannot */
	struct zi_text text;
	bool is_decided;  /* all have told; `waiting`: nodes that have not heard what it is */
	bool is_released; /* what keep_holds() held may go on */
	bool is_going;    /* keep.c is in the middle of it */
};
