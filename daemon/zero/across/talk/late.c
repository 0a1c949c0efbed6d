/* SPDX-License-Identifier: Apache-2.0 */
/* Who is waited for; see late.h. Floor 5, shard thread. */
#include "daemon/zero/across/talk/late.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* A node may take so long to say what keeps it. */
#define LATE_ANSWER_NS (300 * ZI_NS_PER_MS)
/* Answers that nobody waits for any more need no room. */
#define LATE_ROOM (ROUND_WINDOW + ZI_WORLD_MAX + 2)

static const enum zero_gather gathers[_ROUND_KIND_COUNT] = {
	[ROUND_MODEL] = ZERO_GATHER_MATERIALIZE,
	[ROUND_LAYOUT] = ZERO_GATHER_MATERIALIZE,
	[ROUND_SEARCH] = ZERO_GATHER_MATERIALIZE,
	[ROUND_MADE] = ZERO_GATHER_MATERIALIZE,
	[ROUND_WRITE_END] = ZERO_GATHER_WRITE_END,
	[ROUND_COMMIT] = ZERO_GATHER_COMMIT,
	/* Who has not begun has not ended either. */
	[ROUND_STEP_BEGIN] = ZERO_GATHER_STEP,
	[ROUND_STEP] = ZERO_GATHER_STEP,
	[ROUND_BARRIER] = ZERO_GATHER_BARRIER,
	[ROUND_SUMMED] = ZERO_GATHER_STEP,
	[ROUND_PREPARED] = ZERO_GATHER_STEP,
	[ROUND_COMMITTED] = ZERO_GATHER_STEP,
	[ROUND_RESUME] = ZERO_GATHER_MATERIALIZE,
	[ROUND_WRITTEN] = ZERO_GATHER_WRITE_END,
	[ROUND_USED] = ZERO_GATHER_STEP,
};

/* ---- what keeps this node ---- */

/* Return: the rank that it is, or UINT32_MAX. */
static uint32_t say_why(const struct across *across, const struct talk_entry *entry,
                        struct zi_text *text)
{
	const struct zero_job *job = across->job;
	struct zi_text absent = { "" };
	uint32_t culprit;

	text->chars[0] = '\0';
	if (across->is_detached || across->is_left) {
		zi_text_set(text, "its ranks have left");
		return UINT32_MAX;
	}
	if (across->rounds.cast >= entry->tag) {
		zi_text_set(text, "it has come, and waits as well: look at the network between");
		return UINT32_MAX;
	}
	if (job->step.phase == ZERO_STEP_UPDATING || job->step.phase == ZERO_STEP_COMMITTING) {
		zi_text_set(text, "its ranks have come, and it is still writing");
		return UINT32_MAX;
	}
	culprit = op_say_absent(job, gathers[entry->what], &absent);
	zi_text_set(text, "%s", absent.chars + 2 * (strncmp(absent.chars, "; ", 2) == 0));
	if (culprit == UINT32_MAX)
		zi_text_set(text, "its ranks have come, but it has yet to end what came before");
	return culprit;
}

/* Documented in across_private.h, as is the next. */
void late_asked(struct across *across, const struct talk_entry *entry)
{
	struct talk_entry answer = { .kind = TALK_BECAUSE, .tag = entry->tag };
	struct zi_text text, told;

	if (!entry->what || entry->what >= _ROUND_KIND_COUNT ||
	    across_room(across, entry->node) < LATE_ROOM)
		return; /* It gets along without. */
	answer.unit = say_why(across, entry, &text);
	told = across_where(across, &text);
	answer.data_bytes = (uint32_t)ZI_MIN(strlen(told.chars), sizeof(answer.data));
	memcpy(answer.data, told.chars, answer.data_bytes);
	across_say(across, entry->node, &answer);
}

/* ---- what keeps others ---- */

static void conclude(struct across *across)
{
	struct across_late *late = &across->late;
	struct zero_job *job = across->job;
	struct zi_text text;

	if (late->text.chars[0])
		zi_text_set(&text, "%.60s: %.190s", late->what.chars, late->text.chars);
	else
		zi_text_set(&text, "%.60s: %.120s does not say what keeps it", late->what.chars,
		            across_name(job, (uint32_t)__builtin_ctzll(late->asked)).chars);
	group_break(job, -ETIMEDOUT, late->culprit, &text);
}

int late_answered(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct across_late *late = &across->late;
	const struct zero_job *job = across->job;
	bool is_named;

	(void)text;
	if (across->is_detached || across->is_left || entry->tag != late->number ||
	    !(late->asked >> entry->node & 1) || job->group.phase == ZERO_GROUP_BROKEN ||
	    late->number <= across->rounds.ended ||
	    across->rounds.heard[entry->node] >= late->number)
		return 0; /* Of something that is over. */
	if (job->group.phase != ZERO_GROUP_LIVE && job->group.phase != ZERO_GROUP_FORMING)
		return 0;
	is_named = entry->unit < job->group.world_size && across->nodes[entry->unit] == entry->node;
	late->asked &= ~(1ull << entry->node);
	if (is_named || !late->text.chars[0]) {
		zi_text_set(&late->text, "%.*s", (int)entry->data_bytes, (const char *)entry->data);
		zi_utf8_clean(late->text.chars); /* Another node's word. */
		if (!late->text.chars[0])
			zi_text_set(&late->text, "node %u gives no reason", entry->node);
		late->culprit = is_named ? entry->unit : UINT32_MAX;
	}
	if (is_named || !late->asked)
		conclude(across);
	return 0;
}

static void ask(struct across *across, uint64_t silent, uint64_t number, const struct zi_text *what)
{
	uint32_t kind = rounds_kind_of(&across->rounds, across->node, number);

	across->late = (struct across_late){
		.number = number, .asked = silent, .culprit = UINT32_MAX, .what = *what
	};
	for (; silent; silent &= silent - 1)
		across_say(across, (uint32_t)__builtin_ctzll(silent),
		           &(struct talk_entry){
				   .kind = TALK_WHY, .what = (uint8_t)kind, .tag = number });
}

/* What all ranks have come to is the daemons' to end; these ask each other again. */
static bool votes_are_out(const struct across *across)
{
	uint64_t number = 0;
	uint32_t kind;

	if (!rounds_silent(&across->rounds, &number))
		return false;
	kind = rounds_kind_of(&across->rounds, across->node, number);
	return kind == ROUND_SUMMED || kind == ROUND_PREPARED || kind == ROUND_COMMITTED ||
	       kind == ROUND_USED;
}

/* Documented in the header. */
bool late_expired(struct zero_op *op, enum zero_gather gather)
{
	struct zero_job *job = op->rank->job;
	struct across *across = job->across;
	uint64_t number = 0, silent;
	struct zi_text text;
	uint32_t culprit;

	if (!across_talks(job) || across->is_left || gather == ZERO_GATHER_COLL_OPEN ||
	    gather == ZERO_GATHER_COLL_GROUP)
		return false;
	if (job->group.held >> gather & 1)
		return false; /* No node has been asked: what these owe is another call's. */
	if (gather_is_agreed(job, gather) && !votes_are_out(across))
		return false;
	zi_text_set(&text, "%s timed out after %.1f s", op_name(op->opcode),
	            (double)op_timeout_ns(op) / (double)ZI_NS_PER_S);
	culprit = op_say_absent(job, gather, &text);
	if (culprit != UINT32_MAX) {
		group_break(job, -ETIMEDOUT, culprit, &text);
		return true;
	}
	silent = rounds_silent(&across->rounds, &number);
	if (!silent)
		return false;
	if (across->late.number == number) {
		/* Another rank's time, while they are asked: that one's moment counts. */
		if (zi_clock_now_ns() >= across->late.due_ns)
			conclude(across);
		else
			op_prolong(op, across->late.due_ns);
		return true;
	}
	ask(across, silent, number, &text);
	across->late.due_ns = zi_clock_deadline_ns(LATE_ANSWER_NS);
	op_prolong(op, across->late.due_ns);
	return true;
}
