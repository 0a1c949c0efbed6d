/* SPDX-License-Identifier: Apache-2.0 */
/*
 * At which commit a job of several nodes goes on: what each node that has come offers, and the one
 * of these that all of them take. Pure, so that all choose alike. Floor 5, any thread.
 *
 * Nodes may have died between any two moments of a commit, may have gone on without others, may
 * come back with an older state, with none, or not at all. An offer can be taken when those who
 * make it have all of it between them.
 */
#pragma once

#include <stdint.h>

#include "common/base/types.h"

/* A commit that a node has, or a part of it. One is known by its number and its line: offers that
 * have both alike must have one step, which whoever hears them of others has looked at before. */
struct resume_offer {
	uint64_t number, line;
	int64_t step;  /* -1: nothing was committed yet; nobody needs anything of that */
	uint32_t node; /* who makes it */
	/* A bit for each plane of each subgroup that the node holds of it, in an order that all
	 * share; (⌈bit_count / 64⌉,) */
	const uint64_t *bits;
};

struct resume_choice {
	uint64_t number, line;
	int64_t step;
	uint64_t node_mask; /* who offers it */
	/* INCOMPLETE: of the newest; bits that nobody has */
	uint64_t missing_count, missing_first;
};

/* Conditions of resume_choose(): nobody offers anything; nothing that is offered is whole. */
enum { _RESUME_E_SUCCESS, RESUME_E_NONE, RESUME_E_INCOMPLETE };

int resume_choose(const struct resume_offer *offers, uint32_t offer_count, uint64_t bit_count,
                  struct resume_choice *ret_choice);
