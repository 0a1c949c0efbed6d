/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and members of groups, for people. Texts are cut where they end. Floor 3, shard thread. */
#pragma once

#include "daemon/coll/coll.h"

struct coll_call;
struct coll_message;

/* "rank 3 (pid 99)" */
void coll_append_rank(struct zi_text *text, const struct coll *coll, uint32_t rank);
/* "ranks 1, 2, 5" of the members in @mask. */
void coll_append_members(struct zi_text *text, const struct coll_group *group, uint64_t mask);
/* "all_reduce (f32 x 1048576, sum)"; with @is_numbered "all_reduce #17 of group 2 (…)". */
void coll_append_call(struct zi_text *text, const struct coll_group *group,
                      const struct coll_call *call, bool is_numbered);
/* "send (f32 x 4, to rank 1)"; with @is_numbered "send of group 2 (…)". */
void coll_append_message(struct zi_text *text, const struct coll_group *group,
                         const struct coll_message *message, bool is_numbered);
/* What @member does instead of coming to @group: "it is in barrier #5 of group 0, which waits for
 * rank 1", "… for ranks of other nodes", "it is in send of group 0 (f32 x 4, to rank 3)", "its last
 * call there is broadcast #16 …", "it has made no call there". */
void coll_append_doing(struct zi_text *text, const struct coll *coll,
                       const struct coll_group *group, uint32_t member);
