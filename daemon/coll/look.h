/* SPDX-License-Identifier: Apache-2.0 */
/* What the boards say: copied, never trusted. Floor 3, shard thread. */
#pragma once

#include "daemon/coll/coll.h"

/* A call as its member posted it; any field may be a lie. */
struct coll_call {
	uint32_t sequence; /* 0: none */
	uint32_t operation, dtype, reduce_op;
	uint32_t root; /* member */
	uint64_t element_count;
	bool is_refused; /* its member does not make it after all */
	bool is_ahead;   /* its member does not wait for the others in it, … */
	bool is_leaning; /* … or for the root alone */
	uint32_t unseen; /* calls before it whose posts its member had yet to look at */
	bool is_long;    /* it is over when all have left its data, not when all have come */
};

/* A message that its member waits in. */
struct coll_message {
	bool is_send;
	uint32_t peer; /* rank */
	uint32_t dtype;
	uint64_t element_count;
};

/* Whether @member has posted call @sequence; then what it is. */
bool coll_look(const struct coll_group *group, uint32_t member, uint32_t sequence,
               struct coll_call *ret_call);
/* The newest call that it has posted; sequence 0: it made none. */
void coll_look_newest(const struct coll_group *group, uint32_t member, struct coll_call *ret_call);
/* Members that have posted call @sequence, and those that have left its data. */
uint64_t coll_look_come(const struct coll_group *group, uint32_t sequence);
uint64_t coll_look_finished(const struct coll_group *group, uint32_t sequence);
/* Of the others, which have all come, those that have made the fewest steps: in a call in pieces
 * whoever is ahead waits for them; in any other all of them are level. Where the group spans nodes
 * only those that have not done what the worker waits for: 0, when that is other nodes' ranks. */
uint64_t coll_look_behind(const struct coll_group *group, uint32_t sequence);
/* The root of @call, which @member has posted and leans on, while it has not come: a bit; or 0. */
uint64_t coll_look_leant_on(const struct coll_group *group, uint32_t member,
                            const struct coll_call *call);
/* Members that @member waits for in a call, if it is in one: bits; 0: it is in none. @call: its
 * newest one; what it waits in, an older one perhaps, where it was ahead. */
uint64_t coll_look_awaited(const struct coll_group *group, uint32_t member, struct coll_call *call);
/* Whether @member is in @call, its newest one, and waits there for ranks of other nodes alone. */
bool coll_look_awaits_nodes(const struct coll_group *group, uint32_t member,
                            const struct coll_call *call);
/* The messages that @member waits in, one after the other. @cursor: begins as 0. False: no more. */
bool coll_look_message(const struct coll_group *group, uint32_t member, uint32_t *cursor,
                       struct coll_message *ret_message);
/* Members whose private memory all others read, and in @ret_unread those whose somebody has found
 * out not to be able to read. */
uint64_t coll_look_read(const struct coll_group *group, uint64_t *ret_unread);
static inline uint64_t coll_all_members(const struct coll_group *group)
{
	return group->member_count == 64 ? UINT64_MAX : (1ull << group->member_count) - 1;
}
