/* SPDX-License-Identifier: Apache-2.0 */
/* See keep.h: what is asked here, said, and heard; keep_lead.c is node 0's, keep_part.c what each
 * node has of it. Floor 5, shard thread. */
#include "daemon/zero/across/agree/keep.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/keep_lead.h"
#include "daemon/zero/across/agree/keep_part.h"
#include "daemon/zero/across/agree/keep_say.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/step.h"

/* ---- said ---- */

/* Documented in keep_say.h or keep.h, as are all that are not static. */
struct talk_entry keep_entry(uint32_t what, uint64_t id)
{
	return (struct talk_entry){ .kind = TALK_READY, .what = (uint8_t)what, .tag = id };
}

void keep_put_words(struct talk_entry *entry, const struct keep_words *words)
{
	entry->data_bytes = sizeof(*words);
	memcpy(entry->data, words, sizeof(*words));
}

/* The beginning of it, where it is longer. */
void keep_put_text(struct talk_entry *entry, const struct zi_text *text)
{
	entry->data_bytes = (uint32_t)ZI_MIN(strlen(text->chars), sizeof(entry->data));
	memcpy(entry->data, text->chars, entry->data_bytes);
}

static struct zi_text text_of(const struct talk_entry *entry)
{
	struct zi_text text;

	zi_text_set(&text, "%.*s", (int)entry->data_bytes, (const char *)entry->data);
	zi_utf8_clean(text.chars); /* Another node's word. */
	return text;
}

int keep_words_of(const struct talk_entry *entry, bool has_name, struct keep_words *ret_words,
                  struct zi_text *text)
{
	memcpy(ret_words, entry->data, sizeof(*ret_words));
	if (entry->data_bytes == sizeof(*ret_words) &&
	    ((!has_name && !ret_words->name[0]) ||
	     !zi_check_name(ret_words->name, sizeof(ret_words->name))))
		return 0;
	return err_origin(zi_text_error(text, -EPROTO, "the snapshot that node %u names cannot be",
	                                entry->node));
}

/* ---- what has become of it ---- */

void keep_tell_asker(struct across *across, int error, const struct zi_text *text, const char *name,
                     int64_t step)
{
	struct keep *keep = &across->keep;
	struct zi_list *link = zi_list_pop_front(&keep->asks);
	struct zero_snapshot_op *op = container_of(link, struct zero_snapshot_op, link);
	const struct zero_snapshot *snapshot;

	assert(link);
	keep->asked = 0;
	if (error) {
		op->text = *text;
	} else {
		snapshot = snapshot_find(across->zero, across->name, name);
		op->step = step;
		op->held_bytes = snapshot ? snapshot->held_bytes : 0;
		op->node_count = op->kept_count = across->node_count;
		(void)zi_copy_name(op->name, sizeof(op->name), name); /* As long. */
	}
	snapshot_op_end(across->zero, op, error);
}

static int heard_answer(struct across *across, const struct talk_entry *entry)
{
	struct zi_text text = text_of(entry);

	if (entry->node || !entry->tag || entry->tag != across->keep.asked ||
	    (!entry->error &&
	     (strlen(text.chars) >= ZI_NAME_BYTES || zi_check_name(text.chars, ZI_NAME_BYTES))))
		return err_origin(-EPROTO);
	keep_tell_asker(across, entry->error, &text, text.chars, entry->step);
	return 0;
}

/* Of all nodes' parts. */
int keep_heard_over(struct across *across, uint64_t id, int error)
{
	struct keep *keep = &across->keep;
	struct talk_entry entry = keep_entry(KEEP_HEARD, id);

	if (!id || id != keep->now.id || !keep->is_told)
		return err_origin(-EPROTO);
	keep_part_end(across, error);
	keep->is_told = false;
	if (!across->node)
		return 0;
	keep->now.id = 0;
	across_say(across, 0, &entry);
	return 0;
}

/* ---- here ---- */

/* Return: something was done. */
static bool ask(struct across *across)
{
	struct keep *keep = &across->keep;
	struct zi_list *first = keep->asks.next;
	const struct zero_snapshot_op *op = container_of(first, struct zero_snapshot_op, link);
	struct keep_turn turn;
	struct talk_entry entry;

	if (keep->asked || zi_list_is_empty(&keep->asks))
		return false;
	memset(&turn, 0, sizeof(turn)); /* All of it is sent. */
	turn.id = (uint64_t)(across->node + 1) << 32 | ++keep->ask_count;
	turn.words.keep_count = op->keep_count;
	turn.words.is_automatic = op->is_automatic;
	(void)zi_copy_name(turn.words.name, sizeof(turn.words.name), op->name); /* As long. */
	keep->asked = turn.id;
	if (!across->node) {
		keep->turns[0] = turn;
		return true;
	}
	entry = keep_entry(KEEP_ASK, turn.id);
	keep_put_words(&entry, &turn.words);
	across_say(across, 0, &entry);
	return true;
}

/* What is called from here may come back. */
static void go_on(struct across *across)
{
	struct keep *keep = &across->keep;

	if (keep->is_going || across->error)
		return;
	keep->is_going = true;
	while (ask(across) || keep_lead_begin(across))
		;
	keep->is_going = false;
}

struct across *keep_way(const struct zero_job *job)
{
	if (job->across)
		return across_talks(job) ? job->across : NULL;
	zi_list_for_each(link, &job->zero->acrosses) {
		struct across *across = container_of(link, struct across, link);
		uint64_t others = job_mask_of(across->node_count) & ~(1ull << across->node);

		if (!strcmp(across->name, job->name) && across->phase == ACROSS_TALKING &&
		    !across->error && !across->is_answered && (across->gone & others) != others)
			return across;
	}
	return NULL;
}

void keep_ask(struct across *across, struct zero_snapshot_op *op)
{
	zi_list_push_back(&across->keep.asks, &op->link);
	go_on(across);
}

void keep_retry(struct zero_job *job)
{
	struct across *across = keep_way(job);

	if (across)
		go_on(across);
}

bool keep_holds(const struct zero_job *job)
{
	const struct keep *keep = job->across ? &job->across->keep : NULL;

	return keep && keep->waiting && !keep->is_decided && !job_is_nvme(job);
}

void keep_release(struct across *across)
{
	if (!across->keep.is_released)
		return;
	across->keep.is_released = false;
	if (!across->is_detached)
		step_advance(across->job);
}

uint32_t keep_waits(const struct zero_job *job)
{
	const struct rounds *rounds = job->across ? &job->across->rounds : NULL;
	uint32_t count = 0;

	for (uint64_t i = rounds ? rounds->ended + 1 : 1; rounds && i <= rounds->cast; i++)
		count += rounds->ring[i % ROUND_RING].kind == ROUND_BARRIER;
	return count;
}

void keep_tell(struct across *across, int error, bool had, const struct zi_text *text)
{
	struct keep *keep = &across->keep;
	struct talk_entry entry = keep_entry(KEEP_TOLD, keep->now.id);

	keep->is_told = true;
	if (!across->node) {
		(void)keep_lead_told(across, 0, keep->now.id, error, had,
		                     text); /* It is waited for. */
		go_on(across);
		return;
	}
	entry.error = error;
	entry.piece = had;
	keep_put_text(&entry, text);
	across_say(across, 0, &entry);
}

/* ---- heard ---- */

static int heard_take(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct keep *keep = &across->keep;
	struct keep_words words;
	int r = keep_words_of(entry, true, &words, text);

	if (r)
		return err_trace(r);
	if (entry->node || keep->now.id || !entry->tag)
		return err_origin(zi_text_error(
			text, -EPROTO, "node %u has a snapshot made out of its turn", entry->node));
	keep->now = (struct keep_turn){ .id = entry->tag, .words = words };
	keep->step = entry->step;
	keep_part_begin(across, keep_job(across));
	return 0;
}

bool keep_is_word(uint32_t what)
{
	return what >= KEEP_ASK && what < _KEEP_END;
}

int keep_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct zi_text why = text_of(entry);
	int r = 0;

	if (entry->what == KEEP_ASK)
		r = keep_lead_asked(across, entry, text);
	else if (entry->what == KEEP_TAKE)
		r = heard_take(across, entry, text);
	else if (entry->what == KEEP_TOLD)
		r = keep_lead_told(across, entry->node, entry->tag, entry->error, entry->piece,
		                   &why);
	else if (entry->what == KEEP_OVER)
		r = entry->node ? err_origin(-EPROTO)
		                : keep_heard_over(across, entry->tag, entry->error);
	else if (entry->what == KEEP_HEARD)
		r = keep_lead_heard(across, entry->node, entry->tag);
	else
		r = heard_answer(across, entry);
	if (r && !text->chars[0])
		zi_text_set(text, "node %u sent an invalid snapshot message (%u)", entry->node,
		            entry->what);
	if (!r)
		go_on(across);
	return err_trace(r);
}

/* ---- the end ---- */

static void end(struct across *across, int error, const struct zi_text *text)
{
	struct keep *keep = &across->keep;

	keep_part_leave(across);
	keep->now.id = 0;
	keep->is_told = false;
	keep->is_decided = false;
	keep->waiting = 0;
	memset(keep->turns, 0, sizeof(keep->turns));
	while (!zi_list_is_empty(&keep->asks))
		keep_tell_asker(across, error, text, "", 0);
}

void keep_over(struct across *across)
{
	struct zi_text text;

	zi_text_set(&text,
	            "the nodes of job '%.60s' ended before all had said that they keep it: ask "
	            "again, or see what some have (zctl snapshot list)%s%.60s",
	            across->name, across->text.chars[0] ? ": " : "", across->text.chars);
	end(across, across->error ? across->error : -ECANCELED, &text);
}

static void stop(struct across *across)
{
	struct zi_text text;

	zi_text_set(&text, "the daemon is stopping");
	if (across)
		end(across, -ESHUTDOWN, &text);
}

void keep_stop(struct zero *zero)
{
	zi_list_for_each(link, &zero->acrosses)
		stop(container_of(link, struct across, link));
	zi_list_for_each(link, &zero->jobs)
		stop(container_of(link, struct zero_job, jobs_link)->across);
}
