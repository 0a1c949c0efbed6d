/* SPDX-License-Identifier: Apache-2.0 */
/* See keep_lead.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/keep_lead.h"

#include <stdio.h>

#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/keep_part.h"
#include "daemon/zero/across/agree/keep_say.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/commit.h"

/* Who has asked hears it when all know. */
static void say_answer(struct across *across, const struct keep_turn *turn, int error,
                       const struct zi_text *text)
{
	uint32_t node = (uint32_t)(turn->id >> 32) - 1;
	struct talk_entry entry = keep_entry(KEEP_ANSWER, turn->id);
	struct zi_text name;

	zi_text_set(&name, "%s", turn->words.name);
	entry.error = error;
	entry.step = across->keep.step;
	keep_put_text(&entry, error ? text : &name);
	if (node == across->node)
		keep_tell_asker(across, error, text, name.chars, entry.step);
	else
		across_say(across, node, &entry);
}

/* All have told. */
static void decide(struct across *across)
{
	struct keep *keep = &across->keep;
	struct talk_entry entry = keep_entry(KEEP_OVER, keep->now.id);

	if (!keep->error && keep->had == job_mask_of(across->node_count))
		keep->error = zi_text_error(&keep->text, -EEXIST, "snapshot '%s/%s' exists",
		                            across->name, keep->now.words.name);
	keep->is_decided = true;
	keep->waiting = job_mask_of(across->node_count) & ~1ull;
	entry.error = keep->error;
	across_say_all(across, &entry);
	(void)keep_heard_over(across, keep->now.id, keep->error); /* It has told. */
	keep->is_released = true;
	across_go_on(across); /* Whoever told may be in the middle of something. */
}

/* All know. */
int keep_lead_heard(struct across *across, uint32_t node, uint64_t id)
{
	struct keep *keep = &across->keep;

	if (across->node || id != keep->now.id || !keep->is_decided || !(keep->waiting >> node & 1))
		return err_origin(-EPROTO);
	keep->waiting &= ~(1ull << node);
	if (keep->waiting)
		return 0;
	keep->is_decided = false;
	say_answer(across, &keep->now, keep->error, &keep->text);
	keep->now.id = 0;
	return 0;
}

/* Documented in the header, as are all that are not static. */
int keep_lead_told(struct across *across, uint32_t node, uint64_t id, int error, bool had,
                   const struct zi_text *text)
{
	struct keep *keep = &across->keep;

	if (across->node || id != keep->now.id || keep->is_decided || !(keep->waiting >> node & 1))
		return err_origin(-EPROTO);
	keep->waiting &= ~(1ull << node);
	keep->had |= (uint64_t)had << node;
	if (error && !keep->error) {
		keep->error = error;
		zi_text_set(&keep->text, "node %u cannot keep it, so none does: %.200s", node,
		            text->chars);
	}
	if (!keep->waiting)
		decide(across);
	return 0;
}

static int turn_check(const struct across *across, const struct zero_job *job, struct zi_text *text)
{
	int r = change_check(across->zero, text);

	if (r)
		return err_trace(r);
	if (!job || job->is_deleting)
		return err_origin(
			zi_text_error(text, -ENOENT, "job '%s' is no more", across->name));
	if (job->committed_step < 0)
		return err_origin(zi_text_error(
			text, -ENODATA, "job '%s' has not committed anything yet", across->name));
	return 0;
}

/* It stands at a commit that all nodes have, and is in the middle of no other. */
static bool is_ready(const struct across *across, const struct zero_job *job)
{
	bool is_theirs = across == job->across && !across->is_left;

	if (job->group.phase != (is_theirs ? ZERO_GROUP_LIVE : ZERO_GROUP_NONE))
		return false;
	/* Once it has voted that a step's sums are there the others may begin to update. */
	if (!job_is_nvme(job))
		return snapshot_is_writable(job, true) && !job->step.is_asked;
	return job->step.phase != ZERO_STEP_COMMITTING && !job->is_materializing;
}

/* The next node's turn, if there is one. Return: something was done. */
bool keep_lead_begin(struct across *across)
{
	struct keep *keep = &across->keep;
	struct zero_job *job = keep_job(across);
	struct zi_text text = { "" };
	struct talk_entry entry;
	struct keep_turn turn;
	uint32_t node = keep->last;
	int r;

	if (across->node || keep->now.id)
		return false;
	do {
		node = (node + 1) % across->node_count;
	} while (node != keep->last && !keep->turns[node].id);
	turn = keep->turns[node];
	if (!turn.id)
		return false;
	r = turn_check(across, job, &text);
	if (!r && !is_ready(across, job))
		return false;
	keep->last = node;
	keep->turns[node].id = 0;
	if (r) {
		say_answer(across, &turn, r, &text);
		return true;
	}
	turn.words.number = job->committed.number;
	turn.words.line = job->committed.line;
	if (!turn.words.name[0])
		(void)snprintf(turn.words.name, sizeof(turn.words.name), "step-%lld",
		               (long long)job->committed_step); /* Fits. */
	keep->now = turn;
	keep->step = job->committed_step;
	keep->waiting = job_mask_of(across->node_count);
	keep->had = 0;
	keep->error = 0;
	entry = keep_entry(KEEP_TAKE, turn.id);
	entry.step = keep->step;
	keep_put_words(&entry, &turn.words);
	across_say_all(across, &entry);
	keep_part_begin(across, job);
	return true;
}

int keep_lead_asked(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct keep_turn *turn = &across->keep.turns[entry->node];
	struct keep_words words;
	int r = keep_words_of(entry, false, &words, text);

	if (r)
		return err_trace(r);
	if (across->node || turn->id || entry->tag >> 32 != entry->node + 1ul)
		return err_origin(zi_text_error(
			text, -EPROTO, "node %u asks for a snapshot out of its turn", entry->node));
	turn->id = entry->tag;
	turn->words = words;
	return 0;
}
