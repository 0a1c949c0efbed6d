/* SPDX-License-Identifier: Apache-2.0 */
/* What the boards say; see look.h. Floor 3, shard thread. */
#include "daemon/coll/look.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"

/* Short ones travel with the posts. Of all_to_allv the counts do, whatever they come to. */
static bool is_long(const struct coll_group *group, const struct zi_board_call *call)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	uint64_t blocks = zi_coll_block_count(&shape->source, group->member_count), bytes;

	if (!blocks || !call->dtype || call->dtype >= _ZI_DTYPE_COUNT)
		return false;
	if (zi_coll_is_counted(call->operation))
		return true;
	if (!zi_checked_mul(call->element_count,
	                    blocks * zi_dtype_bytes((enum zi_dtype)call->dtype), &bytes))
		return true;
	return bytes > ZI_BOARD_INLINE_BYTES;
}

static void take(const struct coll_group *group, uint32_t member, uint32_t slot,
                 struct coll_call *ret_call)
{
	struct zi_board_post post;

	assert(member < group->member_count);
	zi_board_look(&group->board[member].posts[slot], &post);
	*ret_call = (struct coll_call){
		.sequence = post.sequence,
		.operation = post.call.operation,
		.dtype = post.call.dtype,
		.reduce_op = post.call.reduce_op,
		/* Of a call that its member refuses it is the errno. */
		.root = post.call.flags & ZI_BOARD_REFUSED ? 0 : post.call.root,
		.element_count = post.call.element_count,
		.is_refused = post.call.flags & ZI_BOARD_REFUSED,
		.is_ahead = post.call.flags & ZI_BOARD_AHEAD,
		.is_leaning = post.call.flags & ZI_BOARD_LEANS,
		.unseen = post.unseen,
		.is_long = is_long(group, &post.call),
	};
}

/* See look.h. */
bool coll_look(const struct coll_group *group, uint32_t member, uint32_t sequence,
               struct coll_call *ret_call)
{
	take(group, member, sequence % ZI_BOARD_SLOTS, ret_call);
	return sequence && ret_call->sequence == sequence;
}

/* See look.h. */
void coll_look_newest(const struct coll_group *group, uint32_t member, struct coll_call *ret_call)
{
	take(group, member, 0, ret_call);
	for (uint32_t slot = 1; slot < ZI_BOARD_SLOTS; slot++) {
		struct coll_call other;

		take(group, member, slot, &other);
		/* Numbers run freely: the later of two that are near each other. */
		if (!ret_call->sequence ||
		    (other.sequence && (int32_t)(other.sequence - ret_call->sequence) > 0))
			*ret_call = other;
	}
}

/* See look.h. */
uint64_t coll_look_come(const struct coll_group *group, uint32_t sequence)
{
	struct coll_call call;
	uint64_t mask = 0;

	for (uint32_t i = 0; i < group->member_count; i++)
		if (coll_look(group, i, sequence, &call))
			mask |= 1ull << i;
	return mask;
}

/* See look.h. */
uint64_t coll_look_finished(const struct coll_group *group, uint32_t sequence)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < group->member_count; i++)
		if ((int32_t)(zi_line_load(&group->board[i].finished) - sequence) >= 0)
			mask |= 1ull << i;
	return mask;
}

/* Of those that have not finished call @sequence who has made the fewest steps. */
static uint64_t slowest(const struct coll_group *group, uint32_t sequence, uint32_t *ret_step)
{
	uint64_t unfinished = coll_all_members(group) & ~coll_look_finished(group, sequence);
	uint64_t behind = 0;
	uint32_t lowest = 0;

	for (uint32_t i = 0; i < group->member_count; i++) {
		uint32_t step = zi_line_load(&group->board[i].step);

		if (!(unfinished >> i & 1) || (behind && (int32_t)(step - lowest) > 0))
			continue;
		if (step != lowest)
			behind = 0;
		lowest = step;
		behind |= 1ull << i;
	}
	*ret_step = lowest;
	return behind;
}

/* Whether zinf-net, whose part of the board follows those of the members, waits in call @sequence
 * for one of this node that has made @step steps. Before it posts that call, and of one that has no
 * pieces, it waits for nobody here. */
static bool keeps_worker(const struct coll_group *group, uint32_t sequence, uint32_t step)
{
	const struct zi_board_member *worker = &group->board[group->member_count];
	struct zi_board_post post;

	zi_board_look(&worker->posts[sequence % ZI_BOARD_SLOTS], &post);
	return post.sequence == sequence && !post.call.flags &&
	       (int32_t)(step - zi_line_load(&worker->step)) <= 0;
}

/* See look.h. */
uint64_t coll_look_behind(const struct coll_group *group, uint32_t sequence)
{
	uint32_t step;
	uint64_t behind = slowest(group, sequence, &step);

	return !group->far_mask || keeps_worker(group, sequence, step) ? behind : 0;
}

/* Whether a member has said that it does not make call @sequence, or the nodes of the group that it
 * is none, so that nobody makes it. */
static bool is_off(const struct coll_group *group, uint32_t sequence)
{
	struct zi_board_post post;
	struct coll_call call;

	if (group->far_mask) {
		zi_board_look(&group->board[group->member_count].posts[sequence % ZI_BOARD_SLOTS],
		              &post);
		if (post.sequence == sequence && post.call.flags & ZI_BOARD_REFUSED)
			return true;
	}
	for (uint32_t i = 0; i < group->member_count; i++)
		if (coll_look(group, i, sequence, &call) && call.is_refused)
			return true;
	return false;
}

/* ---- messages ---- */

static bool is_later(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* Whose the line number @line of a member's is: first those for members here, then those for
 * members elsewhere. COLL_NOBODY: there are no more. */
static uint32_t rank_of_line(const struct coll_group *group, uint32_t line)
{
	uint64_t others = group->far_mask;

	if (line < group->member_count)
		return group->ranks[line];
	for (uint32_t i = 0; i < group->member_count; i++)
		others &= ~(1ull << group->ranks[i]);
	for (line -= group->member_count; line && others; line--)
		others &= others - 1;
	return others ? (uint32_t)__builtin_ctzll(others) : COLL_NOBODY;
}

/* Whether @member is in a send on that line: it has posted one that the peer has not left, and
 * neither side refuses. What a peer elsewhere has left the sender says itself. */
static bool is_in_send(const struct coll_group *group, uint32_t member, uint32_t line,
                       struct coll_message *ret_message)
{
	struct zi_board_send send = group->board[member].sends[line];
	struct zi_board_take take = { .sequence = 0 };

	*ret_message = (struct coll_message){ .is_send = true,
		                              .dtype = send.dtype,
		                              .element_count = send.element_count };
	if (line >= group->member_count)
		return send.sequence && !send.is_over && send.refused != send.sequence;
	take = group->board[line].takes[member];
	return is_later(send.sequence, take.done) && is_later(send.sequence, send.refused) &&
	       is_later(send.sequence, take.refused);
}

static bool is_in_recv(const struct coll_group *group, uint32_t member, uint32_t line,
                       struct coll_message *ret_message)
{
	struct zi_board_take take = group->board[member].takes[line];

	*ret_message =
		(struct coll_message){ .dtype = take.dtype, .element_count = take.element_count };
	return take.sequence != take.done;
}

/* See look.h. */
bool coll_look_message(const struct coll_group *group, uint32_t member, uint32_t *cursor,
                       struct coll_message *ret_message)
{
	for (; *cursor < 2 * ZI_WORLD_MAX; (*cursor)++) {
		uint32_t line = *cursor / 2, peer = rank_of_line(group, line);
		bool is_in = false;

		if (peer == COLL_NOBODY)
			break;
		if (*cursor % 2)
			is_in = is_in_send(group, member, line, ret_message);
		else
			is_in = is_in_recv(group, member, line, ret_message);
		if (!is_in)
			continue;
		ret_message->peer = peer;
		(*cursor)++;
		return true;
	}
	return false;
}

/* ---- who is waited for ---- */

/* Whether @member, which does not wait in its newest call, waits for posts of that or of calls
 * before: whoever sleeps, and is in no message. */
static bool is_catching_up(const struct coll_group *group, uint32_t member)
{
	struct coll_message message;
	uint32_t cursor = 0;

	return zi_line_load(&group->board[member].sleeping) &&
	       !coll_look_message(group, member, &cursor, &message);
}

/* See look.h. */
uint64_t coll_look_leant_on(const struct coll_group *group, uint32_t member,
                            const struct coll_call *call)
{
	struct coll_call of_root;

	if (!call->is_leaning || call->root >= group->member_count || call->root == member ||
	    coll_look(group, call->root, call->sequence, &of_root))
		return 0;
	return 1ull << call->root;
}

/* See look.h. */
uint64_t coll_look_awaited(const struct coll_group *group, uint32_t member, struct coll_call *call)
{
	/* Or it has refused this call, or was told at once that others make another one. (Who was
	 * ahead may have told who sleeps there.) */
	bool is_told = zi_line_load(&group->board[member].alarm) == call->sequence;
	bool is_through = call->is_ahead || call->is_leaning || is_told;
	uint64_t awaited = is_told ? 0 : coll_look_leant_on(group, member, call);
	struct coll_call older;
	uint32_t step;

	if (awaited)
		return awaited;
	if (!call->sequence || (is_through && !is_catching_up(group, member)))
		return 0;
	/* Also who refused it, by an echo, while it was ahead. */
	if (call->unseen &&
	    coll_look(group, member, call->sequence - ZI_MIN(call->unseen, ZI_BOARD_SLOTS - 1),
	              &older))
		*call = older;
	awaited = coll_all_members(group) & ~coll_look_come(group, call->sequence);
	/* A peer may write anything: nobody waits for itself to come. */
	awaited &= ~(1ull << member);
	if (awaited || is_through || !call->is_long || is_off(group, call->sequence))
		return awaited;
	return slowest(group, call->sequence, &step);
}

/* See look.h. */
bool coll_look_awaits_nodes(const struct coll_group *group, uint32_t member,
                            const struct coll_call *call)
{
	const struct zi_board_member *own = &group->board[member];
	const struct zi_board_member *worker = &group->board[group->member_count];
	struct zi_board_post post;

	if (!group->far_mask || !call->sequence || call->is_refused ||
	    zi_line_load(&own->alarm) == call->sequence ||
	    (call->is_ahead && !is_catching_up(group, member)) ||
	    coll_look_come(group, call->sequence) != coll_all_members(group))
		return false;
	zi_board_look(&worker->posts[call->sequence % ZI_BOARD_SLOTS], &post);
	if (post.sequence != call->sequence)
		return true; /* The nodes have not told each other of it. */
	return !post.call.flags && (int32_t)(zi_line_load(&own->finished) - call->sequence) < 0 &&
	       !coll_look_behind(group, call->sequence);
}

/* See look.h. */
uint64_t coll_look_read(const struct coll_group *group, uint64_t *ret_unread)
{
	uint64_t all = coll_all_members(group), read = group->member_count > 1 ? all : 0;

	*ret_unread = 0;
	for (uint32_t i = 0; i < group->member_count; i++) {
		struct zi_board_cma line = group->board[i].cma;

		read &= line.reads | 1ull << i;
		*ret_unread |= line.tried & ~line.reads & all;
	}
	return read;
}
