/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of healing; see heal.h. Floor 5, shard thread. */
#pragma once

#include "daemon/zero/across/agree/chosen.h"
#include "daemon/zero/across/agree/heal.h"
#include "daemon/zero/across/agree/resume.h"
#include "daemon/zero/across/bytes/heal_pull.h"
#include "daemon/zero/across/bytes/heal_serve.h"
#include "daemon/zero/across/bytes/offer.h"
#include "daemon/zero/step/ahead.h"

/* Which of a node's offers is what was chosen. */
#define HEAL_NONE UINT8_MAX

struct heal {
	struct across *across;
	struct zero_job *job;
	struct offers offers;
	/* chosen */
	bool is_due;
	struct chosen said; /* what this node has said of it */
	bool is_back;       /* it is the one before what is in force here */
	bool is_waiting;    /* for what others were given of offers to have gone */
	bool is_closed;     /* all nodes have what they lacked: nothing is given any more */
	struct resume_choice chosen;
	uint8_t which[SUBTREE_NODES_MAX]; /* of each node: its offer, or HEAL_NONE */
	uint32_t source;                  /* a node that offers it */
	uint64_t number; /* of the commit that follows it, beyond all that are known */
	/* done */
	heal_done_fn done, committed, released;
	struct zero_marks marks;     /* of the commit that follows */
	uint8_t present;             /* which of its offers this node stands at; HEAL_NONE: none */
	uint32_t blob_index;         /* of the commit that follows */
	struct tier_segment *memory; /* buffers of both: */
	struct heal_serve serve;
	struct heal_pull pull;
};

/* The offer of @node that was chosen; NULL: it makes none. */
static inline const struct offer *heal_offer_of(const struct heal *heal, uint32_t node)
{
	return heal->which[node] == HEAL_NONE ? NULL
	                                      : offers_of(&heal->offers, node, heal->which[node]);
}

/* Nodes are asked where to go on: what this one offers. What was there of a former question, which
 * nobody asks any more, goes; -EBUSY: somebody does, which no node does that has voted since.
 * -ENOMEM. Both with @text. */
int heal_begin(struct heal *heal, struct across *across, struct zi_text *text);
/* This node shall have that plane of it, and has nothing that is of what was chosen. */
bool heal_lacks(const struct heal *heal, uint32_t subgroup, uint32_t plane);

/* ---- heal_choose.c ---- */

/* Of all offers; the same on all nodes. 0; -ENODATA nothing is whole; -EINVAL
 * nodes say different things of one commit; -EPROTO there are none. */
int heal_choose(struct heal *heal, struct zi_text *text);

/* ---- heal_commit.c ---- */

/* All that this node lacked is written. @done as heal_start() has it. */
void heal_commit(struct heal *heal, heal_done_fn done);
