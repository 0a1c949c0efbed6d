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
#include "daemon/zero/job/op_expire.h"
#include "daemon/zero/step/step_late.h"

/* Asked instead of a round's number: what keeps the bytes that a call waits for? */
#define LATE_BYTES UINT64_MAX
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
	[ROUND_HEAL] = ZERO_GATHER_MATERIALIZE,
	[ROUND_HEALED] = ZERO_GATHER_MATERIALIZE,
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
	if (step_say_late(job, &absent)) {
		zi_text_set(text, "its ranks have come, and %.220s", absent.chars);
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

/* Who does not answer at all may be what ranks of the others wait for. */
static void conclude(struct across *across)
{
	struct across_late *late = &across->late;
	struct zero_job *job = across->job;
	struct zi_text text;

	if (late->asked) {
		late->culprit = UINT32_MAX;
		zi_text_set(&text, "%.60s: %.120s does not report what it waits for",
		            late->what.chars,
		            across_name(job, (uint32_t)__builtin_ctzll(late->asked)).chars);
	} else {
		zi_text_set(&text, "%.60s: %.190s", late->what.chars, late->text.chars);
	}
	group_break(job, -ETIMEDOUT, late->culprit, &text);
}

/* Those that have not voted yet, of whom that is asked. */
static uint64_t still_silent(const struct across *across)
{
	uint64_t silent = across->late.silent;

	for (uint32_t i = 0; i < across->node_count; i++)
		if (across->rounds.heard[i] >= across->late.number)
			silent &= ~(1ull << i);
	return silent;
}

int late_answered(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct across_late *late = &across->late;
	const struct zero_job *job = across->job;
	bool is_named;

	(void)text;
	if (across->is_detached || across->is_left || entry->tag != late->number ||
	    !(late->asked >> entry->node & 1) || job->group.phase == ZERO_GROUP_BROKEN ||
	    late->number <= across->rounds.ended)
		return 0; /* Of something that is over. */
	if (job->group.phase != ZERO_GROUP_LIVE && job->group.phase != ZERO_GROUP_FORMING)
		return 0;
	is_named = entry->unit < job->group.world_size && across->nodes[entry->unit] == entry->node;
	late->asked &= ~(1ull << entry->node);
	if (still_silent(across) >> entry->node & 1 && (is_named || !late->text.chars[0])) {
		zi_text_set(&late->text, "%.*s", (int)entry->data_bytes, (const char *)entry->data);
		zi_utf8_clean(late->text.chars); /* Another node's word. */
		if (!late->text.chars[0])
			zi_text_set(&late->text, "node %u gives no reason", entry->node);
		late->culprit = is_named ? entry->unit : UINT32_MAX;
	}
	if (!late->asked && late->text.chars[0] && still_silent(across))
		conclude(across);
	return 0;
}

/* All are asked, also those that have voted: whether they are there. Of @silent it counts what they
 * say. */
static void ask(struct across *across, uint64_t silent, uint64_t number, const struct zi_text *what)
{
	uint64_t others = job_mask_of(across->node_count) & ~(1ull << across->node) & ~across->gone;
	uint32_t kind = number == LATE_BYTES
	                        ? ROUND_STEP
	                        : rounds_kind_of(&across->rounds, across->node, number);

	across->late = (struct across_late){ .number = number,
		                             .silent = silent,
		                             .asked = others | silent,
		                             .due_ns = zi_clock_deadline_ns(ZI_NODE_ANSWER_NS),
		                             .culprit = UINT32_MAX,
		                             .what = *what };
	for (others |= silent; others; others &= others - 1)
		across_say(across, (uint32_t)__builtin_ctzll(others),
		           &(struct talk_entry){
				   .kind = TALK_WHY, .what = (uint8_t)kind, .tag = number });
}

static void say_what(const struct zero_op *op, struct zi_text *text)
{
	zi_text_set(text, "%s timed out after %.1f s", op_name(op->opcode),
	            (double)op_timeout_ns(op) / (double)ZI_NS_PER_S);
}

/* Documented in the header. */
bool late_bytes_expired(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	struct across *across = job->across;
	uint64_t now_ns = zi_clock_now_ns();
	struct zi_text text;

	if (!across_talks(job) || across->is_left)
		return false;
	if (across->late.number == LATE_BYTES && now_ns < across->late.due_ns) {
		/* Another rank's time, while they are asked. */
		op_prolong(op, across->late.due_ns);
		return true;
	}
	/* Later than that it was another call's question. */
	if (across->late.number == LATE_BYTES && now_ns < across->late.due_ns + ZI_NODE_ANSWER_NS) {
		if (!across->late.asked)
			return false; /* All are there: it is this call's own affair. */
		conclude(across);
		return true;
	}
	say_what(op, &text);
	ask(across, 0, LATE_BYTES, &text);
	op_prolong(op, across->late.due_ns);
	return true;
}

bool late_say_silent(const struct zero_job *job, struct zi_text *ret_text)
{
	const struct across *across = job->across;
	uint64_t number = 0, silent;
	struct zi_text more = { "" };
	uint32_t kind;

	if (!across_talks(job))
		return false;
	silent = rounds_silent(&across->rounds, &number);
	if (!silent)
		return false;
	kind = rounds_kind_of(&across->rounds, across->node, number);
	if (silent & (silent - 1))
		zi_text_set(&more, " (and %d other nodes)", __builtin_popcountll(silent) - 1);
	zi_text_set(ret_text, "%.90s%s has yet to ",
	            across_name(job, (uint32_t)__builtin_ctzll(silent)).chars, more.chars);
	if (kind == ROUND_PREPARED)
		zi_text_append(ret_text, "write what it has of step %llu, as this node has",
		               (unsigned long long)job->step.stats.step);
	else if (kind == ROUND_COMMITTED)
		zi_text_append(ret_text, "commit step %llu, as this node has",
		               (unsigned long long)job->step.stats.step);
	else
		zi_text_append(ret_text, "come to %s", round_kind_name(kind));
	return true;
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
		return late_bytes_expired(op);
	say_what(op, &text);
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
	op_prolong(op, across->late.due_ns);
	return true;
}
