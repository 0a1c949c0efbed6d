/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective as a state machine; see node.h. Floor 2.
 *
 *   CATCH_UP ── posted ──▶ MEETING ──▶ OVER              the data were in the posts, or an error
 *                             ├──▶ LEAVING ──▶ OVER      everyone's share is done
 *                             └──▶ STEPPING ─▶ OVER      in pieces
 *
 * Who needs nothing from the others goes from CATCH_UP to OVER, and who leans on the root meets
 * that one alone (posts.c has the rules). A call of a group that spans nodes goes the same way, but
 * never ahead: what it does in a phase is far.c's.
 *
 * A call of which one post is a refusal, or of which two posts differ, ends as soon as that is
 * seen, whoever else has not come yet: nobody that waits has touched any data, and everyone sees
 * it, since everyone compares all posts with its own, now or later. Who waits for one member is
 * told by the others' alarms that there is something to see (differ.c).
 *
 * In pieces: at step s a rank stages piece s, works on piece s - 1, and takes the results of piece
 * s - 2; it begins when all have made step s - 1. The post is step 0. A slot is used again at
 * step s + 3, which begins when all have made step s + 2, the last that reads it; and by a piece of
 * the next call, staged before its post, when all have posted this call, hence have left the one
 * before. Where sources are read in their members' processes (read.h) there is one step, in which
 * that is done; who could not says so with it, and then all begin anew in pieces, the first of
 * which is staged at a step of its own.
 */
#include "libclient/coll/node/call.h"

#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "libclient/coll/node/check.h"
#include "libclient/coll/node/differ.h"
#include "libclient/coll/node/far.h"
#include "libclient/coll/node/join.h"
#include "libclient/coll/node/levels.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/move.h"
#include "libclient/coll/node/place.h"
#include "libclient/coll/node/posts.h"
#include "libclient/coll/node/read.h"
#include "libclient/coll/node/words.h"

/* Steps without looking up: of some milliseconds. */
#define CALL_STEPS_MAX 16u

/* Bytes of all members' buffers, as far as this one knows. */
static uint64_t touched_bytes(const struct zi_node_run *run)
{
	uint64_t sources = (uint64_t)__builtin_popcountll(run->with_source);
	uint64_t targets = (uint64_t)__builtin_popcountll(run->with_target);
	uint64_t both = (uint64_t)__builtin_popcountll(run->with_source & run->with_target);
	uint64_t bytes = sources * run->source_bytes + targets * run->target_bytes;

	if (run->is_in_place)
		bytes -= both * ZI_MIN(run->source_bytes, run->target_bytes);
	return bytes;
}

static bool is_in_place(const struct zi_node_run *run, uint32_t self)
{
	const char *source = run->call.source, *target = run->call.target;

	return zi_node_has(run->with_source & run->with_target, self) &&
	       source < target + run->target_bytes && target < source + run->source_bytes;
}

/* Where this member's data lie, and the size of pieces. */
static void prepare(struct zi_node_group *group)
{
	struct zi_node_run *run = &group->run;
	uint32_t members = group->meet.member_count, self = group->meet.self;
	uint32_t operation = run->call.operation;
	bool has_blocks = zi_coll_is_for_each(&zi_coll_shape_of(operation)->source);
	uint64_t width = zi_coll_has_data(operation) ? zi_dtype_bytes(run->call.dtype) : 1;

	run->path = run->source_bytes <= ZI_BOARD_INLINE_BYTES && !zi_coll_is_counted(operation)
	                    ? ZI_NODE_INLINE
	                    : 0;
	run->sources[self] = run->call.source;
	run->targets[self] = run->call.target;
	run->outside_sources = run->outside_targets = run->unstaged = 0;
	run->is_in_place = is_in_place(run, self);
	run->is_streaming =
		run->path != ZI_NODE_INLINE && touched_bytes(run) >= group->streaming_bytes;
	run->longest = 0;
	run->is_uneven = run->is_restaged = false;
	run->step = run->step_count = run->piece_count = 0;
	run->piece_blocks = has_blocks ? members : 1;
	run->piece_elements = zi_node_slot_bytes(group) / run->piece_blocks / ZI_LINE_BYTES *
	                      ZI_LINE_BYTES / width;
	assert(run->path == ZI_NODE_INLINE || run->piece_elements > 0);
}

static void stage(const struct zi_node_group *group, uint32_t piece)
{
	const struct zi_node_run *run = &group->run;

	if (!zi_node_has(run->with_source & run->outside_sources, group->meet.self))
		return;
	if (zi_coll_is_join(run->call.operation))
		zi_node_join_stage(group, piece);
	else
		zi_node_move_stage(group, piece);
}

/* Whoever's source lies outside the arenas knows that there will be pieces, but for a call that is
 * pushed; its first one comes with the post. Or it says where its takers may read it. */
static void stage_first(struct zi_node_group *group, struct zi_board_call *said)
{
	struct zi_node_run *run = &group->run;
	uint32_t self = group->meet.self;
	bool is_in_place =
		run->call.operation == ZI_COLL_ALL_TO_ALL && run->call.source == run->call.target;

	run->stagings[self] = group->staging;
	/* Blocks change places: none may be written before it has been staged. */
	if (is_in_place)
		said->source = said->target = ZI_BOARD_NOWHERE;
	if (!zi_node_has(run->with_source, self) || said->source != ZI_BOARD_NOWHERE ||
	    !run->source_bytes)
		return;
	if (!is_in_place && zi_node_is_read(group)) {
		said->source = zi_cma_place_of(run->call.source, run->source_bytes);
		return;
	}
	run->outside_sources = 1ull << self;
	stage(group, 0);
}

static void post(struct zi_node_group *group)
{
	struct zi_node_run *run = &group->run;
	struct zi_board_call said = zi_node_board_call(&run->call);
	uint32_t members = group->meet.member_count, bytes = 0;
	uint64_t counts[2 * ZI_WORLD_MAX];
	const void *payload = run->call.source;

	if (run->needs != ZI_NEEDS_ALL)
		said.flags = run->needs == ZI_NEEDS_ROOT ? ZI_BOARD_LEANS : ZI_BOARD_AHEAD;
	if (run->path == ZI_NODE_INLINE) {
		if (zi_node_has(run->with_source, group->meet.self))
			bytes = (uint32_t)run->source_bytes;
	} else {
		said.source = zi_node_place_of(group, run->call.source, run->source_bytes);
		said.target = zi_node_place_of(group, run->call.target, run->target_bytes);
		stage_first(group, &said);
	}
	if (zi_coll_is_counted(run->call.operation)) {
		bytes = ZI_BOARD_COUNTS_BYTES(members);
		memcpy(counts, run->call.source_counts, bytes / 2);
		memcpy(counts + members, run->call.target_counts, bytes / 2);
		payload = counts;
	}
	zi_node_say(group, &said, (uint64_t)(group->staging - group->arenas), payload, bytes);
}

/* The data were in the posts. */
static void finish_inline(struct zi_node_group *group)
{
	group->run.phase = ZI_NODE_OVER;
	if (group->sequence % ZI_NODE_TOLD_EVERY == 0)
		zi_line_store(&group->meet.members[group->meet.self].finished, group->sequence);
}

/* Nothing comes from the others; a scatter's root has a block for itself. */
static void go_ahead(struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;

	if (run->source_bytes && zi_node_has(run->with_target, group->meet.self))
		zi_node_move(group);
	finish_inline(group);
}

/* Numbers the call, and posts it, or that this member refuses it. */
static int begin(struct zi_node_group *group, struct zi_text *text)
{
	struct zi_node_run *run = &group->run;

	if (group->seen == group->sequence)
		group->unseen_timeout_ns = 0;
	group->unseen_timeout_ns = ZI_MAX(group->unseen_timeout_ns, run->call.timeout_ns);
	group->sequence++;
	if (run->refused || group->due.error) {
		zi_node_say_refused(group);
		run->phase = ZI_NODE_OVER;
		group->culprit = run->culprit;
		zi_text_set(text, "%s", run->reason.chars);
		return err_trace(run->refused);
	}
	run->phase = ZI_NODE_MEETING;
	if (group->far) {
		zi_node_post_far(group);
		return 0;
	}
	prepare(group);
	post(group);
	if (run->needs == ZI_NEEDS_NOBODY)
		go_ahead(group);
	return 0;
}

static void begin_steps(struct zi_node_group *group)
{
	struct zi_node_run *run = &group->run;
	enum zi_coll_operation operation = run->call.operation;

	run->phase = ZI_NODE_STEPPING;
	run->step = !run->is_restaged;
	run->step_count = 2; /* the post, and what is read */
	if (run->path == ZI_NODE_LEVELS)
		run->step_count = zi_levels_step_count(group);
	if (run->path != ZI_NODE_PIECES)
		return;
	/* Pieces of a join live three steps, others two. */
	run->step_count = run->piece_count + 1;
	if (run->piece_count && zi_coll_is_join(operation) && operation != ZI_COLL_REDUCE_SCATTER)
		run->step_count++;
	if (!zi_coll_is_join(operation))
		zi_node_get_to_know(group);
}

/* All have posted the same: this member's share of the work. */
static int work(struct zi_node_group *group, struct zi_text *text)
{
	struct zi_node_run *run = &group->run;
	enum zi_coll_operation operation = run->call.operation;
	uint32_t *finished = &group->meet.members[group->meet.self].finished.value;
	int r = zi_coll_is_counted(operation) ? zi_node_compare_counts(group, text) : 0;

	/* The board is not what it was when places were taken from it. */
	if (!r && run->is_uneven)
		r = err_origin(zi_text_error(text, -EPROTO,
		                             "call %u: counts changed after they were posted: "
		                             "memory of a member is damaged",
		                             group->sequence));
	if (r)
		return err_trace(r);
	zi_node_choose_path(group);
	if (run->path == ZI_NODE_PIECES || run->path == ZI_NODE_LEVELS ||
	    run->path == ZI_NODE_CMA) {
		begin_steps(group);
		return 0;
	}
	if (run->source_bytes && zi_coll_is_join(operation))
		zi_node_join(group);
	else if (run->source_bytes || zi_coll_is_counted(operation))
		zi_node_move(group);
	if (run->path == ZI_NODE_INLINE) {
		finish_inline(group);
		return 0;
	}
	run->phase = ZI_NODE_LEAVING;
	zi_meet_tell(&group->meet, finished, group->sequence);
	return 0;
}

static int meet(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text)
{
	int r = group->run.needs == ZI_NEEDS_ROOT
	                ? zi_node_look_at_root(group, wants, text)
	                : zi_node_look_at(group, group->sequence, wants, text);

	if (r && r != ZI_NODE_E_WAITS)
		zi_node_told(group, group->sequence);
	return r ? r : err_trace(work(group, text));
}

/* How many steps there are others' counts say (all_to_allv), and that a step has been made their
 * words do: who never waits looks up now and then, for the clock and the verdict. */
static int look_up(struct zi_node_group *group, struct zi_meet_wants *wants)
{
	struct zi_meet *meet = &group->meet;
	const uint32_t *own = &meet->members[meet->self].step.value;

	zi_meet_want(wants, meet, own, zi_meet_load(own)); /* It has come. */
	return ZI_NODE_E_WAITS;
}

static bool is_any_source_inside(const struct zi_node_run *run)
{
	return run->with_source & ~run->outside_sources;
}

static void make_step(struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	uint32_t step = run->step, self = group->meet.self;
	bool is_join = zi_coll_is_join(run->call.operation);

	if (run->path == ZI_NODE_LEVELS) {
		zi_levels_step(group);
		return;
	}
	if (run->path == ZI_NODE_CMA) {
		zi_node_read(group);
		return;
	}
	if (step >= 2 && step - 2 < run->piece_count && run->step_count == run->piece_count + 2 &&
	    zi_node_has(run->with_target & run->outside_targets, self))
		zi_node_join_take(group, step - 2);
	if (step - 1 < run->piece_count) {
		if (is_join)
			zi_node_join_work(group, step - 1);
		else
			zi_node_move_work(group, step - 1);
	}
	if (step < run->piece_count)
		stage(group, step);
}

/* Until all have told @step of this call: the post is step 0. */
static int await_step(struct zi_node_group *group, uint32_t step, struct zi_meet_wants *wants)
{
	struct zi_node_run *run = &group->run;
	struct zi_meet *meet = &group->meet;

	for (; (step || run->is_restaged) && run->member < meet->member_count; run->member++) {
		const uint32_t *word = &meet->members[run->member].step.value;

		if (run->member == meet->self || zi_meet_has_come(word, group->steps + step))
			continue;
		zi_meet_want(wants, meet, word, group->steps + step);
		return ZI_NODE_E_WAITS;
	}
	run->member = 0;
	return 0;
}

static int step(struct zi_node_group *group, struct zi_meet_wants *wants)
{
	struct zi_node_run *run = &group->run;
	struct zi_meet *meet = &group->meet;
	/* Of the last step nobody needs to know, unless in it memory of others is used. */
	bool is_last_told = run->path == ZI_NODE_LEVELS || run->path == ZI_NODE_CMA ||
	                    (run->step_count == run->piece_count + 1 && is_any_source_inside(run));
	uint32_t made_count = 0;

	for (; run->step < run->step_count; run->step++) {
		if (run->step && await_step(group, run->step - 1, wants))
			return ZI_NODE_E_WAITS;
		make_step(group);
		if (run->step + 1 < run->step_count || is_last_told)
			zi_meet_tell(meet, &meet->members[meet->self].step.value,
			             group->steps + run->step);
		if (++made_count < CALL_STEPS_MAX)
			continue;
		run->step++;
		return look_up(group, wants);
	}
	if (is_last_told && await_step(group, run->step_count - 1, wants))
		return ZI_NODE_E_WAITS;
	if (run->path == ZI_NODE_CMA && zi_node_is_any_unread(group)) {
		group->steps += run->step_count;
		run->is_restaged = true;
		run->path = ZI_NODE_PIECES;
		begin_steps(group);
		return 0;
	}
	/* Nobody waits for it: for whoever asks who is behind, and see ZI_NODE_TOLD_EVERY. */
	zi_line_store(&meet->members[meet->self].finished, group->sequence);
	group->steps += run->step_count;
	if (run->path != ZI_NODE_CMA)
		group->slot = (group->slot + run->piece_count) % ZI_NODE_SLOTS;
	run->phase = ZI_NODE_OVER;
	return 0;
}

/* A member that has gone on to the next call has left this one. */
static int leave(struct zi_node_group *group, struct zi_meet_wants *wants)
{
	struct zi_node_run *run = &group->run;
	struct zi_meet *meet = &group->meet;

	for (; run->member < meet->member_count; run->member++) {
		const uint32_t *word = &meet->members[run->member].finished.value;

		if (run->member == meet->self || zi_meet_has_come(word, group->sequence))
			continue;
		zi_meet_want(wants, meet, word, group->sequence);
		return ZI_NODE_E_WAITS;
	}
	run->phase = ZI_NODE_OVER;
	return 0;
}

void zi_node_begin(struct zi_node_group *group, const struct zi_node_call *call)
{
	struct zi_node_run *run = &group->run;

	group->culprit = ZI_NODE_NOBODY;
	run->call = *call;
	run->phase = ZI_NODE_CATCH_UP;
	run->member = 0;
	run->is_too_far = false;
	run->refused = zi_node_check(group, &run->call, &run->reason);
	run->culprit = zi_node_self(group);
	run->needs = ZI_NEEDS_ALL;
	if (!run->refused && !group->due.error)
		run->needs = zi_node_needs(group);
}

int zi_node_ready(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text)
{
	return group->far ? zi_node_catch_up_far(group, wants)
	                  : zi_node_catch_up(group, wants, text);
}

int zi_node_poll(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text)
{
	struct zi_node_run *run = &group->run;
	bool is_far = group->far;
	int r = 0;

	while (!r && run->phase != ZI_NODE_OVER) {
		switch (run->phase) {
		case ZI_NODE_CATCH_UP:
			r = zi_node_ready(group, wants, text);
			if (!r)
				r = begin(group, text);
			break;
		case ZI_NODE_MEETING:
			r = is_far ? zi_node_meet_far(group, wants, text)
			           : meet(group, wants, text);
			break;
		case ZI_NODE_STEPPING:
			r = is_far ? zi_node_step_far(group, wants) : step(group, wants);
			break;
		case ZI_NODE_LEAVING:
			r = leave(group, wants);
			break;
		default:
			assert(false && "a phase");
		}
	}
	return r;
}
