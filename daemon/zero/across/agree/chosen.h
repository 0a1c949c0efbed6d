/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node goes on from, as it says it to the others before it does anything by it, and again
 * before it commits. Each node chooses for itself, by what others have said; one of these may have
 * said one thing here and another there. Floor 5, shard thread.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "daemon/zero/across/agree/names.h"

struct heal;
struct round;
struct round_vote;
struct zero_job;

/* Alike on all nodes; at the front of each vote of the rounds HEAL and HEALED. */
struct chosen {
	struct commit_name commit;
	uint64_t next, next_line; /* what it, or the commit that follows, is called then */
	uint64_t is_pulled;       /* nodes have asked each other for more than names */
	uint64_t digest;          /* so: of all else that is taken over from it */
};

/* As names alone say. */
struct chosen chosen_by_name(const struct commit_name *commit, uint64_t next, uint64_t next_line);
/* Of what heal_choose() chose. */
struct chosen chosen_by_offer(const struct heal *heal);
void chosen_vote(const struct chosen *chosen, struct round_vote *ret_vote);
/* This node's vote of @round. */
struct chosen chosen_of(const struct zero_job *job, const struct round *round);
/* Whether all can go on, and from the same. Return: 0; a node's error, with its text; -EPROTO: they
 * differ, and the group is told who. */
int chosen_check(struct zero_job *job, const struct round *round, struct zi_text *ret_text);
