/* SPDX-License-Identifier: Apache-2.0 */
/* See load_nodes.h. Floor 5, shard thread. */
#include "daemon/zero/snapshot/load_nodes.h"

#include <string.h>

#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/snapshot/load.h"
#include "daemon/zero/snapshot/part.h"
#include "kernels/hash.h"

/* Ranks where they were, planes divided as they were: what the node held is what it will hold. */
static bool is_placed_alike(const struct zero_job *job, const struct catalog_job *record)
{
	const struct catalog_placement *then = &record->placement;
	const struct zi_job_training *training = &job->group.training;
	/* zero1 and zero2 with parameters on NVMe. */
	bool keeps_all = job->group.config.offload_param == ZI_OFFLOAD_NVME &&
	                 !zi_strategy_divides_params(training->strategy);
	uint64_t then_mask = 0;

	for (uint32_t i = 0; i < record->world_size; i++)
		then_mask |= (uint64_t)(then->nodes[i] == then->node) << i;
	return record->world_size == job->group.world_size && then_mask == meeting_here_mask(job) &&
	       then->strategy == training->strategy && then->shard_size == training->shard_size &&
	       (!keeps_all || part_has_params(record));
}

/* Of everything that makes a step: whatever wrote it, wherever it lies, and in whatever order rows
 * came: that of a snapshot that was made here is another one after the daemon began anew. */
static uint64_t digest_of(const struct catalog_job *record)
{
	uint64_t powers[2], sum = 0;

	for (uint32_t i = 0; i < record->extent_count; i++) {
		const struct catalog_extent *extent = &record->extents[i];
		const uint64_t words[] = {
			extent->plane,
			extent->unit,
			extent->subgroup,
			extent->extent.bytes,
			kern_hash(extent->hashes, extent->hash_count * sizeof(uint64_t)),
		};

		sum += kern_hash(words, sizeof(words));
	}
	memcpy(&powers[0], &record->beta1_power, sizeof(powers[0]));
	memcpy(&powers[1], &record->beta2_power, sizeof(powers[1]));
	return kern_hash(&(uint64_t[]){ (uint64_t)record->step, record->update_count, powers[0],
	                                powers[1], kern_hash(record->scaler, record->scaler_bytes),
	                                sum },
	                 6 * sizeof(uint64_t));
}

/* Documented in the header, as are the others. */
void load_words_make(const struct zero_job *job, struct load_words *ret_words)
{
	uint64_t come_mask = job->group.gather_masks[ZERO_GATHER_MATERIALIZE];
	const struct zero_snapshot *snapshot = job->group.ranks[__builtin_ctzll(come_mask)]->load;
	const struct catalog_job *record;

	memset(ret_words, 0, sizeof(*ret_words)); /* All of it is sent. */
	if (job->is_stored || !snapshot) {
		ret_words->kind = job->is_stored ? LOAD_STORED : LOAD_NONE;
		return;
	}
	record = snapshot->record;
	ret_words->step = record->step;
	ret_words->world_size = record->world_size;
	ret_words->node_count = record->placement.node_count;
	if (!part_is(record)) {
		ret_words->kind = LOAD_WHOLE;
		/* How many nodes had it does not matter. */
		ret_words->node_count = 0;
		ret_words->name[0] = digest_of(record);
		return;
	}
	ret_words->kind = is_placed_alike(job, record) ? LOAD_PART : LOAD_MISPLACED;
	ret_words->name[0] = record->line;
	ret_words->name[1] = record->number;
}

static const char *kind_name(uint32_t kind)
{
	static const char *const names[_LOAD_KIND_COUNT] = {
		[LOAD_NONE] = "no snapshot",
		[LOAD_STORED] = "the job as it is",
		[LOAD_WHOLE] = "a whole snapshot",
		[LOAD_PART] = "its part of a snapshot",
		[LOAD_MISPLACED] = "a part of a snapshot",
	};

	return kind < _LOAD_KIND_COUNT ? names[kind] : "?";
}

int load_words_compare(const struct zero_job *job, const struct load_words *words,
                       const struct load_words *first, uint32_t node, struct zi_text *text)
{
	if (words->kind == LOAD_MISPLACED)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"%.60s would begin with one node's part of a snapshot, of %u nodes with %u "
			"ranks: load it with as many ranks, each where it was, with the same "
			"strategy and offload_param, or zctl export it at each node, and zctl load "
			"all of it on each",
			across_name(job, node).chars, words->node_count, words->world_size));
	if (words->kind == first->kind && words->step == first->step &&
	    !memcmp(words->name, first->name, sizeof(words->name)))
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"%.60s begins with %s of step %lld (%016llx), but %.60s with %s of step %lld "
		"(%016llx): load the same on all nodes",
		across_name(job, node).chars, kind_name(words->kind), (long long)words->step,
		(unsigned long long)words->name[0], across_name(job, 0).chars,
		kind_name(first->kind), (long long)first->step,
		(unsigned long long)first->name[0]));
}

void load_words_drop(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (job->group.ranks[i])
			load_forget(job->group.ranks[i]);
}
