/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the engine call of each other; see node.h. Floor 2. */
#pragma once

#include <errno.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/far.h"
#include "libclient/coll/node/node.h"

/* A condition: what was polled waits for what it has put into the wants. */
#define ZI_NODE_E_WAITS 1

/* Steps that a piece lives: it is staged, worked on, and its results are taken. */
#define ZI_NODE_SLOTS 3u

static inline bool zi_node_has(uint64_t members, uint32_t member)
{
	return members >> member & 1;
}

static inline uint64_t zi_node_everyone(const struct zi_node_group *group)
{
	return UINT64_MAX >> (64 - zi_node_members(group));
}

/* Elements of a share end on lines, so that no two ranks write one line. */
static inline uint64_t zi_node_share(uint64_t element_count, uint32_t width, uint32_t part,
                                     uint32_t part_count)
{
	uint64_t line_elements = ZI_LINE_BYTES / width;
	uint64_t lines = (element_count + line_elements - 1) / line_elements;
	uint64_t end = lines * part / part_count * line_elements;

	return end < element_count ? end : element_count;
}

/* Elements before block @member of those that lie one after the other, as all_to_allv has them. */
static inline uint64_t zi_node_sum_before(const uint64_t *counts, uint32_t member)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < member; i++)
		sum += counts[i];
	return sum;
}

/* ---- check.c ---- */

struct zi_node_words {
	char chars[96];
};
/* "all_reduce of 17 × f32 (sum)". */
struct zi_node_words zi_node_words_of(const struct zi_board_call *call);
/* What of @call is equal on all members. */
struct zi_board_call zi_node_board_call(const struct zi_node_call *call);

/* Checks @call as far as this member knows, and prepares group->run for it. Return: 0; -EINVAL,
 * -EOVERFLOW, what the caller refuses it by; with @text. */
int zi_node_check(struct zi_node_group *group, const struct zi_node_call *call,
                  struct zi_text *text);
/* As above, of a message. */
int zi_node_check_p2p(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                      struct zi_text *text);
/* Whether @other, of @member, is what this member calls. Return: 0; the error of one that was
 * refused; 0 and *ret_differs: ask whose is the odd one. */
int zi_node_compare(const struct zi_node_group *group, uint32_t member,
                    const struct zi_board_call *other, struct zi_text *text, bool *ret_differs);
/* Posts of the newest call differ: names the odd one, and whose call most others make, or the first
 * of several. Return: -EINVAL, ZI_NODE_E_WAITS more must come to tell; others as above; -EPROTO. */
int zi_node_tell_apart(struct zi_node_group *group, struct zi_meet_wants *wants,
                       struct zi_text *text);
/* all_to_allv, once all have posted: -EINVAL when two members' counts do not match. */
int zi_node_compare_counts(const struct zi_node_group *group, struct zi_text *text);

/* ---- place.c ---- */

/* Where @pointer, of @bytes, lies in the arenas: ZI_BOARD_NOWHERE when not in this rank's. */
uint64_t zi_node_place_of(const struct zi_node_group *group, const void *pointer, uint64_t bytes);
/* NULL: a peer's word is taken only as far as it lies in the arenas. */
char *zi_node_place_at(const struct zi_node_group *group, uint64_t place, uint64_t bytes);
/* Bytes of a piece in the staging part, and of one on its way to a peer. */
uint64_t zi_node_slot_bytes(const struct zi_node_group *group);
uint64_t zi_node_letter_bytes(const struct zi_node_group *group);
/* Two letters to @peer. */
char *zi_node_letters(const struct zi_node_group *group, uint32_t peer);
/* Takes down where the data of @member lie. Return: 0, -EPROTO, -EFAULT. */
int zi_node_take_post(struct zi_node_group *group, uint32_t member,
                      const struct zi_board_post *post);
/* Once every post has been taken: chooses run->path, the same on all members. */
void zi_node_choose_path(struct zi_node_group *group);
/* Where @member stages @piece. */
static inline char *zi_node_slot(const struct zi_node_group *group, uint32_t member, uint32_t piece)
{
	return group->run.stagings[member] +
	       (group->slot + piece) % ZI_NODE_SLOTS * zi_node_slot_bytes(group);
}

/* ---- join.c, move.c ---- */

/* This member's part of a call that is not in pieces. */
void zi_node_join(const struct zi_node_group *group);
void zi_node_move(const struct zi_node_group *group);
/* Of a piece: what others need of the own source; the work; what others have for the own target. */
void zi_node_join_stage(const struct zi_node_group *group, uint32_t piece);
void zi_node_join_work(const struct zi_node_group *group, uint32_t piece);
void zi_node_join_take(const struct zi_node_group *group, uint32_t piece);
void zi_node_move_stage(const struct zi_node_group *group, uint32_t piece);
void zi_node_move_work(const struct zi_node_group *group, uint32_t piece);

/* ---- far.c ---- */

/* As zi_node_poll(), of a group that spans nodes. */
int zi_node_poll_far(struct zi_node_group *group, struct zi_meet_wants *wants,
                     struct zi_text *text);

/* ---- call.c, pair.c, op.c ---- */

/* Tells peers that this member does not make the call that it has just numbered, and why. */
void zi_node_post_refusal(struct zi_node_group *group, int error, const struct zi_text *reason);

/* @call is the group's from here on; nothing is posted yet. */
void zi_node_begin(struct zi_node_group *group, const struct zi_node_call *call);
/* Return: 0, an error, ZI_NODE_E_WAITS. */
int zi_node_poll(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text);
/* One message in its turn. Return: as above. */
int zi_node_poll_message(struct zi_node_group *group, struct zi_node_p2p *p2p,
                         struct zi_meet_wants *wants, struct zi_text *text);
/* Goes on with @op as far as it can. Return: 0 it is done; ZI_NODE_E_WAITS. */
int zi_node_op_poll(struct zi_node_op *op, uint64_t pass, struct zi_meet_wants *wants);
/* @op, begun, ends with @error, and so does its group. */
void zi_node_op_fail(struct zi_node_op *op, int error);
/* Until @op is done. */
void zi_node_op_run(struct zi_node_op *op);
