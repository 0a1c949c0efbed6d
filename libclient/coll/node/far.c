/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of a group that spans nodes does in its phases (call.c); see far.h, and
 * common/wire/far.h for what lies where. Floor 2.
 *
 *   CATCH_UP   until the worker has posted the call before
 *   MEETING    posted; until the worker has posted it as well, or why there is no such call
 *   STEPPING   in pieces: staged, until the worker has exchanged them, and taken
 *
 * A member posts until when it waits (`source`), and for how long that is (`target`): the worker
 * keeps that time for all nodes. The sum of the tree, the mismatch of calls and the reason of a
 * refusal come from the worker, alike on all nodes.
 */
#include "libclient/coll/node/far.h"

#include <errno.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "kernels/copy.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/place.h"
#include "libclient/coll/node/posts.h"
#include "libclient/coll/node/small.h"
#include "libclient/coll/node/words.h"

/* The worker is the last member of this node's board. */
static uint32_t worker_of(const struct zi_node_group *group)
{
	return group->meet.member_count - 1;
}

/* ---- pieces ---- */

/* Elements of the caller's buffer. */
struct run {
	uint64_t first, count;
};

/* What @piece has of this member's block for member @to. */
static struct run source_run(const struct zi_node_group *group, const struct zi_far_piece *piece,
                             uint32_t to)
{
	const struct zi_node_call *call = &group->run.call;

	if (zi_coll_is_counted(call->operation))
		return (struct run){
			zi_coll_sum_before(call->source_counts, to) + piece->first,
			zi_far_part(piece, call->source_counts[to]),
		};
	if (!zi_coll_is_for_each(&zi_coll_shape_of(call->operation)->source))
		to = 0;
	return (struct run){ to * call->element_count + piece->first, piece->count };
}

/* And of the block from member @from, which is the target's @place-th. */
static struct run target_run(const struct zi_node_group *group, const struct zi_far_piece *piece,
                             uint32_t from, uint32_t place)
{
	const struct zi_node_call *call = &group->run.call;

	if (zi_coll_is_counted(call->operation))
		return (struct run){
			zi_coll_sum_before(call->target_counts, from) + piece->first,
			zi_far_part(piece, call->target_counts[from]),
		};
	return (struct run){ place * call->element_count + piece->first, piece->count };
}

/* Its part of block @to. */
static void stage_block(const struct zi_node_group *group, const struct zi_far_piece *piece,
                        uint32_t to)
{
	const struct zi_far_group *far = group->far;
	struct run run = source_run(group, piece, to);
	uint64_t width = far->cut.width;

	if (run.count)
		memcpy(far->slab + zi_far_source_at(&far->shape, &far->cut, piece, group->meet.self,
		                                    to),
		       (const char *)group->run.call.source + run.first * width, run.count * width);
}

/* What a member has for itself alone stays where it is. */
static void stage(const struct zi_node_group *group, uint64_t index)
{
	const struct zi_far_group *far = group->far;
	const struct zi_coll_shape *shape = zi_coll_shape_of(group->run.call.operation);
	uint32_t block_count = zi_coll_block_count(&shape->source, far->shape.member_count);
	bool is_own_left_out = !shape->is_join && zi_coll_is_for_each(&shape->source);
	struct zi_far_piece piece;

	if (!zi_node_has(group->run.with_source, far->self))
		return;
	zi_far_piece_init(&piece, &far->cut, index);
	for (uint32_t i = 0; i < block_count; i++)
		if (i != far->self || !is_own_left_out)
			stage_block(group, &piece, i);
}

/* Whether this node's targets, and what of the slab they come through, are more than stays in the
 * caches: then the targets pass by them, so that the slab is found there. */
static bool is_streaming(const struct zi_node_group *group)
{
	const struct zi_far_group *far = group->far;
	uint64_t bytes = far->shape.self_count * group->run.target_bytes;

	return bytes + ZI_MIN(bytes, far->slab_bytes) >= group->streaming_bytes;
}

/* The part of the block from member @from: out of the slab, or straight from this member's source
 * what that has for itself. */
static void take_block(const struct zi_node_group *group, const struct zi_far_piece *piece,
                       uint32_t from, uint32_t place)
{
	const struct zi_far_group *far = group->far;
	const struct zi_node_call *call = &group->run.call;
	struct run run = target_run(group, piece, from, place);
	uint64_t width = far->cut.width;
	const char *source;
	void *target;

	if (!run.count)
		return;
	target = (char *)call->target + run.first * width;
	if (from == far->self && !zi_coll_is_join(call->operation))
		source = (const char *)call->source + source_run(group, piece, from).first * width;
	else
		source = far->slab +
		         zi_far_result_at(&far->shape, &far->cut, piece, from, far->self);
	if (source != target)
		kern_copy(&target, 1, source, run.count * width, is_streaming(group));
}

static void take(const struct zi_node_group *group, uint64_t index)
{
	const struct zi_far_group *far = group->far;
	const struct zi_node_call *call = &group->run.call;
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	struct zi_far_piece piece;

	if (!zi_node_has(group->run.with_target, far->self))
		return;
	zi_far_piece_init(&piece, &far->cut, index);
	if (zi_coll_is_for_each(&shape->target))
		for (uint32_t i = 0; i < far->shape.member_count; i++)
			take_block(group, &piece, i, i);
	else
		take_block(group, &piece,
		           shape->source.holder == ZI_HELD_BY_ROOT ? call->root : far->self, 0);
}

/* ---- straight from arenas ---- */

/* Where the source of the @local-th member of this node lies, as it posted; NULL: nowhere. */
static const char *source_of(const struct zi_node_group *group, uint32_t local)
{
	const struct zi_board_post *post = zi_meet_post_of(&group->meet, local, group->sequence);
	struct zi_far_places places;

	if (local == group->meet.self)
		return group->run.call.source;
	if (post->payload_bytes != sizeof(places))
		return NULL;
	memcpy(&places, zi_meet_payload_of(&group->meet, local, group->sequence, sizeof(places)),
	       sizeof(places));
	return zi_node_place_at(group, places.source, group->run.source_bytes);
}

/* What the @local-th member of this node, with @source, has for this one. */
static void take_from(const struct zi_node_group *group, uint32_t local, const char *source)
{
	const struct zi_node_run *run = &group->run;
	const struct zi_coll_shape *shape = zi_coll_shape_of(run->call.operation);
	uint64_t bytes = run->call.element_count * zi_dtype_bytes(run->call.dtype);
	uint64_t all_bytes = group->far->shape.self_count * (run->source_bytes + run->target_bytes);
	void *target = run->call.target;

	if (zi_coll_is_for_each(&shape->source))
		source += group->far->self * bytes;
	if (zi_coll_is_for_each(&shape->target))
		target = (char *)target + group->far->shape.members[local] * bytes;
	if (source != target)
		kern_copy(&target, 1, source, bytes, all_bytes >= group->streaming_bytes);
}

/* What members of this node have for this one; the rest zinf-net moves. The others are still in the
 * call: they wait until this one has told that it has taken it. */
static int take_near(const struct zi_node_group *group, struct zi_text *text)
{
	const struct zi_far_group *far = group->far;
	const struct zi_node_run *run = &group->run;

	if (zi_coll_is_join(run->call.operation) || !zi_node_has(run->with_target, far->self))
		return 0;
	for (uint32_t i = 0; i < far->shape.self_count; i++) {
		const char *source;

		if (!zi_node_has(run->with_source, far->shape.members[i]))
			continue;
		source = source_of(group, i);
		if (!source)
			return err_origin(zi_text_error(
				text, -EPROTO,
				"call %u: where member %u of the group has its data is nowhere: "
				"what it posted is damaged",
				group->sequence, far->shape.members[i]));
		take_from(group, i, source);
	}
	return 0;
}

/* ---- the call ---- */

static struct zi_far_places places_of(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	struct zi_far_places places = { ZI_BOARD_NOWHERE, ZI_BOARD_NOWHERE };

	if (zi_node_has(run->with_source, group->far->self))
		places.source = zi_node_place_of(group, run->call.source, run->source_bytes);
	if (zi_node_has(run->with_target, group->far->self))
		places.target = zi_node_place_of(group, run->call.target, run->target_bytes);
	return places;
}

/* ---- pieces in both directions ---- */

static void cut_call(struct zi_node_group *group, uint64_t element_count)
{
	struct zi_far_group *far = group->far;

	zi_far_cut_init(&far->cut, &far->shape, far->slab_bytes, group->run.call.operation,
	                group->run.call.dtype, element_count);
	far->cut.number = zi_far_number(far->pieces, group->sequence);
	far->staged = far->taken = 0;
}

static uint32_t step_of(const struct zi_far_group *far, uint64_t index)
{
	return (uint32_t)(far->cut.number + index + 1);
}

static void stage_ahead(struct zi_node_group *group)
{
	struct zi_far_group *far = group->far;
	uint64_t end = ZI_MIN(far->cut.piece_count, far->taken + ZI_FAR_AHEAD);

	for (; far->staged < end; far->staged++) {
		if (!far->is_direct)
			stage(group, far->staged);
		zi_meet_tell_one(&group->meet, worker_of(group),
		                 &group->meet.members[group->meet.self].step.value,
		                 step_of(far, far->staged));
	}
}

/* Whether the call, which is not small, may yet go without pieces, or be cut in another way. */
static bool may_do_without(const struct zi_node_group *group, const struct zi_far_places *places)
{
	enum zi_coll_operation operation = group->run.call.operation;
	uint32_t self = group->far->self;

	if (!zi_coll_has_data(operation) || zi_coll_is_counted(operation))
		return true;
	return zi_far_can_be_direct(&group->far->shape, operation) &&
	       (!zi_node_has(group->run.with_source, self) || places->source != ZI_BOARD_NOWHERE) &&
	       (!zi_node_has(group->run.with_target, self) || places->target != ZI_BOARD_NOWHERE);
}

/* Of a refused call a member may be staging still while others, who have heard, are here: where
 * these pieces belong as well. Who has posted this call is over it, as they know by the worker's
 * answer. A call before that was refused in whatever way was not agreed on. */
static bool may_be_early(const struct zi_node_group *group)
{
	return group->far->agreed == group->sequence - 1;
}

void zi_node_post_far(struct zi_node_group *group)
{
	const struct zi_node_call *call = &group->run.call;
	struct zi_board_call said = zi_node_board_call(call);
	struct zi_far_places places = places_of(group);
	uint64_t now_ns = zi_clock_now_ns(), counts[2 * ZI_WORLD_MAX];
	uint32_t members = group->far->shape.member_count, bytes = 0;

	/* The worker's deadline comes before the call's: by the time in which the nodes agree. */
	said.source =
		call->deadline_ns ? call->deadline_ns : zi_clock_deadline_ns(call->timeout_ns);
	said.target = said.source > now_ns ? (said.source - now_ns) / ZI_NS_PER_MS : 0;
	if (said.source != ZI_DEADLINE_NEVER)
		said.source -= zi_far_margin_ns(said.source > now_ns ? said.source - now_ns : 0);
	if (zi_coll_is_counted(call->operation)) {
		bytes = ZI_BOARD_COUNTS_BYTES(members);
		memcpy(counts, call->source_counts, bytes / 2);
		memcpy(counts + members, call->target_counts, bytes / 2);
	}
	group->far->staged = 0;
	group->far->is_cut = group->far->is_direct = false;
	if (bytes) {
		zi_node_say(group, &said, 0, counts, bytes);
	} else if (zi_node_is_small(group, &bytes)) {
		zi_node_say(group, &said, 0, call->source,
		            zi_node_has(group->run.with_source, group->far->self) ? bytes : 0);
	} else {
		zi_node_say(group, &said, 0, &places, sizeof(places));
		if (may_do_without(group, &places))
			return;
		cut_call(group, call->element_count);
		group->far->is_cut = true;
		if (may_be_early(group))
			stage_ahead(group);
	}
}

/* Until the worker has posted the newest call. */
static int await_worker(struct zi_node_group *group, struct zi_meet_wants *wants)
{
	const struct zi_board_post *post =
		zi_meet_post_of(&group->meet, worker_of(group), group->sequence);

	if (!zi_meet_has_come(&post->sequence, group->sequence)) {
		zi_meet_want(wants, &group->meet, &post->sequence, group->sequence);
		return ZI_NODE_E_WAITS;
	}
	group->seen = group->sequence;
	return 0;
}

int zi_node_catch_up_far(struct zi_node_group *group, struct zi_meet_wants *wants)
{
	return group->seen == group->sequence ? 0 : await_worker(group, wants);
}

/* Every member of this node can write where the worker posts. Nothing is taken from there that this
 * member knows by itself; of all_to_allv the longest block of all, by which it cuts its own. */
static bool is_plausible(const struct zi_node_group *group, const struct zi_board_call *said)
{
	const struct zi_node_call *call = &group->run.call;
	uint32_t bytes, way = 0;

	if (said->operation != call->operation)
		return false;
	if (zi_coll_is_counted(call->operation))
		return !said->flags;
	if (zi_node_is_small(group, &bytes))
		way = ZI_BOARD_SMALL;
	else if (zi_coll_has_data(call->operation) && !group->far->is_cut)
		way = said->flags & ZI_BOARD_DIRECT;
	return said->flags == way && said->element_count == call->element_count;
}

/* What all nodes say of the call. */
static int take_answer(struct zi_node_group *group, struct zi_text *text)
{
	struct zi_far_group *far = group->far;
	struct zi_board_call said =
		zi_meet_post_of(&group->meet, worker_of(group), group->sequence)->call;

	if (said.flags & ZI_BOARD_REFUSED) {
		*text = zi_meet_reason_of(&group->meet, worker_of(group), group->sequence);
		return err_origin(zi_verdict_refusal_of(said.root));
	}
	if (!is_plausible(group, &said))
		return err_origin(zi_text_error(text, -EPROTO,
		                                "call %u: what zinf-net posted makes no sense: its "
		                                "memory is damaged, or it is another version",
		                                group->sequence));
	far->agreed = group->sequence;
	if (!far->is_cut)
		cut_call(group, said.element_count);
	far->is_direct = said.flags & ZI_BOARD_DIRECT;
	if (far->is_direct) {
		/* One piece; with no other member here it is behind. */
		far->cut.piece_count = 1;
		far->taken = far->shape.self_count == 1;
		return err_trace(take_near(group, text));
	} else if (said.flags & ZI_BOARD_SMALL) {
		far->cut.piece_count = 0;
		zi_node_take_small(group);
	}
	return 0;
}

int zi_node_meet_far(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text)
{
	int r = await_worker(group, wants);

	if (!r)
		r = take_answer(group, text);
	if (!r)
		group->run.phase = ZI_NODE_STEPPING;
	return r;
}

int zi_node_step_far(struct zi_node_group *group, struct zi_meet_wants *wants)
{
	struct zi_far_group *far = group->far;
	struct zi_board_member *members = group->meet.members;
	const uint32_t *done = &members[worker_of(group)].step.value;

	for (; far->taken < far->cut.piece_count; far->taken++) {
		uint32_t next = step_of(far, far->taken);

		stage_ahead(group);
		if (!zi_meet_has_come(done, next)) {
			zi_meet_want(wants, &group->meet, done, next);
			return ZI_NODE_E_WAITS;
		}
		if (!far->is_direct)
			take(group, far->taken);
	}
	far->pieces += far->cut.piece_count;
	/* Nobody waits for it; the daemon reads it when it looks for whoever holds up a call. */
	__atomic_store_n(&members[group->meet.self].finished.value, group->sequence,
	                 __ATOMIC_RELEASE);
	group->run.phase = ZI_NODE_OVER;
	return 0;
}
