/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes say to each other, and hear; see across.h. Floor 5, shard thread. */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/begin.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/across/bytes/params_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"

/* ---- said ---- */

/* What the worker takes of it now; the rest when it can be written to. */
static void flush(struct across *across, uint32_t node)
{
	struct across_peer *peer = &across->peers[node];

	while (peer->sent != peer->put) {
		const struct talk_entry *entry = &peer->entries[peer->sent % ACROSS_QUEUE];

		if (across->phase != ACROSS_TALKING ||
		    net_worker_talk_send(across->worker, entry, 1))
			return; /* -EAGAIN; or its end is on its way to us. */
		peer->sent++;
	}
}

/* It takes nothing, however long. */
static void no_room(struct across *across, uint32_t node)
{
	struct zi_text text;

	if (across->fault || across->error)
		return;
	/* Its name is the job's, which may be gone. */
	zi_text_set(&text, "node %u takes nothing: %u entries wait for it", node, ACROSS_QUEUE);
	if (across->is_detached) {
		across_fail(across, -EPROTO, UINT32_MAX, &text); /* Nobody is told. */
		return;
	}
	across->fault = -EPROTO;
	across->fault_text = text;
	across_go_on(across);
}

/* Documented in across_private.h, as are all that are neither static nor across.h's. */
void across_say(struct across *across, uint32_t node, const struct talk_entry *entry)
{
	struct across_peer *peer = &across->peers[node];
	struct talk_entry *place = &peer->entries[peer->put % ACROSS_QUEUE];

	assert(node != across->node);
	if (!across_room(across, node)) {
		no_room(across, node);
		return;
	}
	*place = *entry;
	place->node = (uint16_t)node;
	peer->put++;
	flush(across, node);
}

void across_say_all(struct across *across, const struct talk_entry *entry)
{
	for (uint32_t i = 0; i < across->node_count; i++)
		if (i != across->node)
			across_say(across, i, entry);
}

uint32_t across_room(const struct across *across, uint32_t node)
{
	const struct across_peer *peer = &across->peers[node];

	return ACROSS_QUEUE - (peer->put - peer->sent);
}

void across_writable(void *arg)
{
	struct across *across = arg;

	for (uint32_t i = 0; i < across->node_count; i++)
		if (i != across->node)
			flush(across, i);
	grads_say(across);
	params_say(across);
}

/* ---- rounds ---- */

/* Two nodes are at different calls. */
static void say_differs(const struct across *across, uint32_t one, uint32_t one_kind,
                        uint32_t other, uint32_t other_kind, struct zi_text *text)
{
	struct zi_text one_name = across_name(across->job, one);
	struct zi_text other_name = across_name(across->job, other);

	zi_text_set(text, "%.80s is in %s, but %.80s in %s: all ranks must make the same calls",
	            one_name.chars, round_kind_name(one_kind), other_name.chars,
	            round_kind_name(other_kind));
}

static void round_over(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct across *across = arg;
	struct zero_job *job = across->job;

	job_unbusy(job);
	across->dones[round->number % ROUND_RING](job, round, error, text);
}

/* Whether a rank has died: ranks that leave afterwards do so because of that. */
static bool tell_death(const struct across *across, struct zi_text *text)
{
	const struct zero_group *group = across->job ? &across->job->group : NULL;

	if (!group || across->is_detached || !group->error || group->is_left)
		return false;
	*text = group->text;
	return true;
}

/* Nodes whose ranks have left, and that are through, vote no more. */
static void fail_gone(struct across *across)
{
	for (uint32_t i = 0; i < across->node_count; i++) {
		if (across->fault || !(across->gone >> i & 1) ||
		    !rounds_waits_for(&across->rounds, i))
			continue;
		across->fault = -EPIPE;
		if (!tell_death(across, &across->fault_text))
			zi_text_set(&across->fault_text,
			            "node %u: all ranks detached, but its daemon has not finished "
			            "their step",
			            i);
	}
}

/* See across.h. */
void across_vote(struct zero_job *job, enum round_kind kind, const struct round_vote *vote,
                 round_done_fn done)
{
	struct across *across = job->across;
	struct talk_entry entry;
	uint32_t other;

	assert(across && across->phase >= ACROSS_TALKING);
	across->dones[(across->rounds.cast + 1) % ROUND_RING] = done;
	job_busy(job);
	if (rounds_cast(&across->rounds, kind, vote, round_over, across, &entry, &other)) {
		say_differs(across, across->node, kind, other,
		            rounds_kind_of(&across->rounds, other, across->rounds.cast),
		            &across->fault_text);
		across->fault = -EINVAL;
	} else if (!across->error) {
		across_say_all(across, &entry);
		fail_gone(across);
	}
	/* All others may have voted before; but whoever votes is in the middle of something. */
	across_go_on(across);
}

static int heard_round(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	uint32_t node = entry->node, other;
	int r = rounds_hear(&across->rounds, node, entry, text, &other);

	if (r != ROUND_E_DIFFERS)
		return err_trace(r);
	say_differs(across, node, entry->what, other,
	            rounds_kind_of(&across->rounds, other, entry->tag), text);
	return err_origin(-EINVAL);
}

/* ---- ends ---- */

/* See across.h. */
void across_left(struct zero_job *job, uint32_t rank, int error, const struct zi_text *text)
{
	struct talk_entry entry = { .kind = TALK_BYE, .unit = rank, .error = error };

	if (!across_talks(job) || job->across->is_left)
		return;
	entry.data_bytes = (uint32_t)ZI_MIN(strlen(text->chars), sizeof(entry.data));
	memcpy(entry.data, text->chars, entry.data_bytes);
	across_say_all(job->across, &entry);
}

/* What the ranks here hear of a rank that has left its node: now, if it died or is waited for, or
 * when it is needed next. */
static void rank_left(struct across *across, const struct talk_entry *entry)
{
	struct zero_group *group = &across->job->group;
	uint32_t culprit = entry->unit;
	struct zi_text text;

	zi_text_set(&text, "%.*s (on node %u)", (int)entry->data_bytes, (const char *)entry->data,
	            entry->node);
	zi_utf8_clean(text.chars); /* Another node's word. */
	if (!entry->error)
		group_cause(across->job, &culprit, &text);
	if (entry->error || rounds_waits_for(&across->rounds, entry->node)) {
		group_break_after_step(across->job, -EPIPE, culprit, &text);
		return;
	}
	if (group->error)
		return;
	group->error = -EPIPE;
	group->culprit = culprit;
	group->text = text;
	group->is_left = true;
}

/* All ranks of a node have left it, in the middle of a step that needs what it has. */
static void node_left(struct across *across, uint32_t node)
{
	const struct zero_job *job = across->job;
	bool is_needed = job->step.phase == ZERO_STEP_STEPPING || !params_are_there(job);
	struct zi_text text;

	if (!is_needed || job->group.phase != ZERO_GROUP_LIVE)
		return;
	if (!tell_death(across, &text))
		zi_text_set(&text, "the ranks of %.120s have left within a step",
		            across_name(job, node).chars);
	across_fail(across, -EPIPE, job->group.error ? job->group.culprit : UINT32_MAX, &text);
}

static int heard_bye(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	if (entry->unit == UINT32_MAX) {
		across->gone |= 1ull << entry->node;
		if (across->is_detached)
			across_go_on(across);
		else
			node_left(across, entry->node);
		fail_gone(across);
		if (across->fault)
			across_go_on(across);
		return 0;
	}
	if (across->is_detached || across->is_left)
		return 0;
	if (entry->unit >= across->job->group.world_size ||
	    across->nodes[entry->unit] != entry->node)
		return err_origin(
			zi_text_error(text, -EPROTO,
		                      "node %u reported that rank %u left, but rank %u is "
		                      "not on node %u",
		                      entry->node, entry->unit, entry->unit, entry->node));
	if (across->job->group.phase == ZERO_GROUP_LIVE ||
	    across->job->group.phase == ZERO_GROUP_FORMING)
		rank_left(across, entry);
	return 0;
}

/* ---- heard ---- */

static int heard(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	if (entry->node >= across->node_count || entry->node == across->node)
		return err_origin(zi_text_error(text, -EPROTO,
		                                "zinf-net has heard of node %u: there are %u, and "
		                                "this one is %u",
		                                entry->node, across->node_count, across->node));
	switch (entry->kind) {
	case TALK_ROUND:
		return across->is_detached ? 0 : err_trace(heard_round(across, entry, text));
	case TALK_BYE:
		return err_trace(heard_bye(across, entry, text));
	case TALK_WHY:
		late_asked(across, entry);
		return 0;
	case TALK_BECAUSE:
		return err_trace(late_answered(across, entry, text));
	case TALK_READY:
		if (entry->what == PARAMS_READY)
			return err_trace(params_heard(across, entry, text));
		if (keep_is_word(entry->what))
			return err_trace(keep_heard(across, entry, text));
		if (entry->what == AGREE_READY_GROUPS)
			return err_trace(agree_groups_heard(across, entry, text));
		return err_trace(grads_heard(across, entry, text));
	case TALK_PULL:
		return err_trace(serve_asked(across, entry, text));
	case TALK_CAME:
	case TALK_REFUSED:
		return err_trace(pull_answered(across, entry, text));
	case TALK_GONE:
		return err_trace(serve_gone(across, entry, text));
	default:
		return err_origin(zi_text_error(text, -EPROTO,
		                                "node %u sent an unexpected message: kind %u, %u",
		                                entry->node, entry->kind, entry->what));
	}
}

void across_talked(void *arg, const struct talk_entry *entries, uint32_t count)
{
	struct across *across = arg;
	struct zero *zero = across->zero;
	struct zi_text text = { "" };
	int r = 0;

	for (uint32_t i = 0; i < count && !r && !across->error; i++)
		r = heard(across, &entries[i], &text);
	if (r)
		across_fail(across, r, UINT32_MAX, &text);
	else if (!across->error)
		rounds_end(&across->rounds);
	zero_drain(zero);
}
