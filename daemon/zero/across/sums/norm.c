/* SPDX-License-Identifier: Apache-2.0 */
/* The norm over nodes; see norm.h. Floor 5, shard thread, but for what runs on device threads. */
#include "daemon/zero/across/sums/norm.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/culprit.h"
#include "daemon/zero/step/step.h"

/* A node's words: who is to blame, then its blocks, in the order of the model. */
enum { NORM_CULPRIT_SUBGROUP, NORM_CULPRIT_RANK, NORM_BLOCKS };

static_assert(SUBTREE_NODES_MAX <= ZI_WORLD_MAX, "a place for each node");

static uint32_t block_count(const struct zero_subgroup *subgroup)
{
	return subgroup->element_count / ZI_BLOCK_ELEMENTS;
}

/* ---- tables ---- */

/* Documented in a header, as are all that are not static. */
int norm_prepare(struct grads *grads)
{
	const struct zero_job *job = grads->job;
	struct norm *norm = &grads->norm;
	uint64_t counts[ZI_WORLD_MAX] = { 0 };

	for (uint32_t i = 0; i < grads->subgroup_count; i++)
		counts[grads_finisher(job, &job->subgroups[i])] += block_count(&job->subgroups[i]);
	for (uint32_t i = 0; i < grads->node_count; i++)
		norm->firsts[i + 1] = norm->firsts[i] + NORM_BLOCKS + counts[i];
	norm->words = calloc(norm->firsts[grads->node_count], sizeof(*norm->words));
	return norm->words ? 0 : err_origin(-ENOMEM);
}

void norm_free(struct norm *norm)
{
	free(norm->words);
}

static uint64_t words_of(const struct norm *norm, uint32_t node)
{
	return norm->firsts[node + 1] - norm->firsts[node];
}

static uint32_t words_per_piece(const struct grads *grads)
{
	return (uint32_t)(grads->across->slot_bytes / sizeof(uint64_t));
}

/* ---- the own ones ---- */

/* Of what is finished here. */
static void write_culprit(const struct grads *grads, uint64_t *words)
{
	const struct zero_job *job = grads->job;

	words[NORM_CULPRIT_SUBGROUP] = UINT64_MAX;
	words[NORM_CULPRIT_RANK] = UINT64_MAX;
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];

		if (!job_finishes(job, subgroup) || subgroup->culprit == CULPRIT_NONE)
			continue;
		words[NORM_CULPRIT_SUBGROUP] = i;
		words[NORM_CULPRIT_RANK] = subgroup->culprit;
		return;
	}
}

/* Between norm_blocks, where each is in its place, and the nodes' words. */
static void copy_blocks(const struct grads *grads, uint64_t nodes, bool is_from_words)
{
	struct zero_job *job = grads->job;
	uint64_t next[ZI_WORLD_MAX];

	static_assert(sizeof(*job->norm_blocks) == sizeof(uint64_t), "a word each");
	for (uint32_t i = 0; i < grads->node_count; i++)
		next[i] = grads->norm.firsts[i] + NORM_BLOCKS;
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];
		uint32_t node = grads_finisher(job, subgroup), count = block_count(subgroup);
		double *blocks = &job->norm_blocks[subgroup->block_first];
		uint64_t *words = &grads->norm.words[next[node]];

		next[node] += count;
		if (!(nodes >> node & 1))
			continue;
		if (is_from_words)
			memcpy(blocks, words, count * sizeof(*words));
		else
			memcpy(words, blocks, count * sizeof(*words));
	}
}

/* ---- what is served ---- */

bool norm_asked(const struct grads *grads, const struct talk_entry *entry)
{
	const struct norm *norm = &grads->norm;
	uint64_t words = words_of(norm, grads->across->node);
	uint64_t begin = (uint64_t)entry->piece * words_per_piece(grads);

	return (entry->micro == norm->number || entry->micro == norm->number + 1) &&
	       entry->micro > 0 && begin < words &&
	       entry->bytes ==
	               ZI_MIN(words - begin, (uint64_t)words_per_piece(grads)) * sizeof(uint64_t);
}

bool norm_is_made(const struct grads *grads, uint32_t number)
{
	return grads->norm.number >= number;
}

void norm_fill(struct across_serve *serve)
{
	const struct grads *grads = serve->across->grads;
	const struct norm *norm = &grads->norm;
	uint64_t begin = norm->firsts[serve->across->node] +
	                 (uint64_t)serve->entry.piece * words_per_piece(grads);

	memcpy(serve->memory, &norm->words[begin], serve->entry.bytes);
}

/* ---- what is pulled ---- */

static void take_run(struct fetch *fetch)
{
	struct norm_take *take = container_of(fetch, struct norm_take, fetch);

	memcpy(take->target, take->pull.memory, take->pull.bytes);
}

static void take_next(struct grads *grads, struct norm_take *take);

static void all_came(struct grads *grads)
{
	struct norm *norm = &grads->norm;

	norm->is_coming = false;
	norm->is_there = true;
	copy_blocks(grads, ~(1ull << grads->across->node), true);
	step_advance(grads->job);
}

static void take_ended(struct fetch *fetch, bool is_whole)
{
	struct norm_take *take = container_of(fetch, struct norm_take, fetch);
	struct norm *norm = &take->grads->norm;

	if (!is_whole)
		return;
	assert(norm->active_count > 0);
	norm->active_count--;
	take_next(take->grads, take);
	if (!norm->active_count)
		all_came(take->grads);
}

/* The next piece, if one is left. */
static void take_next(struct grads *grads, struct norm_take *take)
{
	struct norm *norm = &grads->norm;
	uint32_t piece_words = words_per_piece(grads);
	uint64_t begin, count;

	if (norm->node == grads->across->node)
		norm->node++;
	if (norm->node >= grads->node_count)
		return;
	begin = (uint64_t)norm->piece * piece_words;
	count = ZI_MIN(words_of(norm, norm->node) - begin, (uint64_t)piece_words);
	take->grads = grads;
	take->target = &norm->words[norm->firsts[norm->node] + begin];
	take->pull = (struct pull){
		.node = norm->node,
		.what = PULL_NORM,
		.number = norm->number,
		.piece = norm->piece++,
		.bytes = count * sizeof(uint64_t),
	};
	if (begin + count == words_of(norm, norm->node)) {
		norm->node++;
		norm->piece = 0;
	}
	take->fetch = (struct fetch){ .across = grads->across,
		                      .run = take_run,
		                      .ended = take_ended,
		                      .pulls = &take->pull,
		                      .pull_count = 1 };
	norm->active_count++;
	fetch_start(&take->fetch);
}

bool norm_have(struct zero_job *job)
{
	struct grads *grads = job->across ? job->across->grads : NULL;
	struct norm *norm = grads ? &grads->norm : NULL;

	if (!norm)
		return true;
	if (norm->is_there) {
		norm->is_there = false;
		return true;
	}
	if (norm->is_coming || job->across->error)
		return false;
	norm->is_coming = true;
	norm->number++;
	norm->node = 0;
	norm->piece = 0;
	write_culprit(grads, &norm->words[norm->firsts[grads->across->node]]);
	copy_blocks(grads, 1ull << grads->across->node, false);
	serve_more(grads->across); /* Who was sooner waits for it. */
	for (uint32_t i = 0; i < NORM_DEPTH; i++)
		take_next(grads, &norm->takes[i]);
	return false;
}

bool norm_culprit(const struct zero_job *job, uint32_t *ret_rank, uint32_t *ret_unit)
{
	const struct grads *grads = job->across ? job->across->grads : NULL;
	uint64_t first = UINT64_MAX, rank = UINT64_MAX;

	if (!grads)
		return culprit_find(job, ret_rank, ret_unit);
	for (uint32_t i = 0; i < grads->node_count; i++) {
		const uint64_t *words = &grads->norm.words[grads->norm.firsts[i]];

		if (words[NORM_CULPRIT_SUBGROUP] >= first)
			continue;
		first = words[NORM_CULPRIT_SUBGROUP];
		rank = words[NORM_CULPRIT_RANK];
	}
	if (first >= job->subgroup_count)
		return false; /* Nobody's; or another node's word makes no sense. */
	*ret_rank = rank < job->world ? (uint32_t)rank : UINT32_MAX;
	*ret_unit = job->subgroups[first].unit;
	return true;
}

bool norm_say_late(const struct zero_job *job, struct zi_text *ret_text)
{
	const struct grads *grads = job->across ? job->across->grads : NULL;

	for (uint32_t i = 0; grads && grads->norm.is_coming && i < NORM_DEPTH; i++) {
		const struct norm_take *take = &grads->norm.takes[i];

		if (!fetch_is_active(&take->fetch))
			continue;
		zi_text_set(ret_text, "what %.120s adds to the norm has not come",
		            across_name(job, take->pull.node).chars);
		return true;
	}
	return false;
}
