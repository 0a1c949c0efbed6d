/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the models of two nodes differ: a search by digests of parts, each round of votes with
 * those of the part that differed. A function of votes alone, so that all nodes take the same way.
 * Floor 5, shard thread; pure.
 *
 * Entries of a model in one line: sets, units, parameters. All nodes count by the longest of each.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/zero/across/talk/round.h"

struct zero_layout;

#define SEARCH_PARTS 23u
/* Of each kind; a model of more is searched that far. */
#define SEARCH_MAX (1u << 20)

struct search_sizes {
	uint32_t set_count, unit_count, param_count;
};

struct search {
	struct search_sizes sizes;
	uint64_t begin, count; /* entries among which the first different one is */
	uint32_t odd;          /* the first node whose entries are not those of node 0 */
};

/* Of all entries. */
uint64_t search_digest(const struct zero_layout *layout, struct search_sizes *ret_sizes);
/* The longest. */
void search_widen(struct search_sizes *sizes, const struct search_sizes *other);
void search_begin(struct search *search, const struct search_sizes *sizes);
/* What this node says next: digests of parts; of one entry, that itself. */
void search_vote(const struct search *search, const struct zero_layout *layout,
                 struct round_vote *ret_vote);
/* Return: true, it goes on; false, @round has the entries themselves. */
bool search_narrow(struct search *search, const struct round *round, uint32_t node_count);
/* "parameter 3 is 'w' (4, 5) of unit 1 in node 0, but 'w' (4, 6) of unit 1": of the odd one. */
void search_say(const struct search *search, const struct round *round, struct zi_text *text);
