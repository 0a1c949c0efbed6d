/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of all nodes have used; see used.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/used.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/unused.h"

#define USED_WORDS 22u
#define WORD_BITS  64u

/* Of parameters from 64 * first on: bits; beyond the last one 0. */
struct used_vote {
	uint64_t step;
	uint32_t first, reserved;
	uint64_t words[USED_WORDS];
};
static_assert(sizeof(struct used_vote) == TALK_DATA_BYTES, "one vote");

/* Documented in the header, as is the other. */
bool used_is_known(const struct zero_job *job)
{
	return !job->across || !job->unused || job->step.used_word >= job->unused->word_count;
}

/* Words of this round. */
static uint32_t count_of(const struct zero_job *job)
{
	return ZI_MIN(job->unused->word_count - job->step.used_word, USED_WORDS);
}

/* Bits of parameters that there are, of a word. */
static uint64_t mask_of(const struct zero_job *job, uint32_t word)
{
	uint32_t count = job->layout.param_count;

	if ((word + 1) * WORD_BITS <= count)
		return UINT64_MAX;
	return word * WORD_BITS < count ? (1ull << (count - word * WORD_BITS)) - 1 : 0;
}

/* Return: false, it cannot be. */
static bool is_sane(const struct zero_job *job, const struct round_vote *vote)
{
	struct used_vote used;

	if (vote->error || vote->data_bytes != sizeof(used))
		return false;
	memcpy(&used, vote->data, sizeof(used));
	if (used.step != job->step.stats.step || used.first != job->step.used_word || used.reserved)
		return false;
	for (uint32_t i = 0; i < USED_WORDS; i++)
		if (used.words[i] & ~mask_of(job, used.first + i))
			return false;
	return true;
}

/* Return: the first node whose word cannot be; their number: there is none. */
static uint32_t insane_one(const struct zero_job *job, const struct round *round)
{
	uint32_t node = 0;

	while (node < across_node_count(job) && is_sane(job, &round->votes[node]))
		node++;
	return node;
}

static void used(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct used_vote vote;
	struct zi_text why;
	uint32_t node, count;

	(void)text; /* Its ranks have heard why. */
	if (error || !job->step.is_used_asked || job->step.phase != ZERO_STEP_STEPPING) {
		job_settle(job);
		return;
	}
	job->step.is_used_asked = false;
	count = count_of(job);
	node = insane_one(job, round);
	if (node < across_node_count(job)) {
		zi_text_set(&why,
		            "what ranks of %.80s used in step %llu, of parameters from %u on, "
		            "cannot be",
		            across_name(job, node).chars, (unsigned long long)job->step.stats.step,
		            job->step.used_word * WORD_BITS);
		group_break(job, err_origin(-EPROTO), UINT32_MAX, &why);
		job_settle(job);
		return;
	}
	for (uint32_t i = 0; i < across_node_count(job); i++) {
		memcpy(&vote, round->votes[i].data, sizeof(vote));
		for (uint32_t k = 0; k < count; k++)
			job->unused->used[job->step.used_word + k] |= vote.words[k];
	}
	job->step.used_word += count;
	step_advance(job);
	job_settle(job);
}

void used_ask(struct zero_job *job)
{
	struct round_vote vote = { .data_bytes = sizeof(struct used_vote) };
	struct used_vote words;

	if (used_is_known(job) || job->step.is_used_asked)
		return;
	memset(&words, 0, sizeof(words)); /* All of it is sent. */
	words.step = job->step.stats.step;
	words.first = job->step.used_word;
	memcpy(words.words, &job->unused->used[words.first], count_of(job) * sizeof(uint64_t));
	memcpy(vote.data, &words, sizeof(words));
	job->step.is_used_asked = true;
	across_vote(job, ROUND_USED, &vote, used);
}
