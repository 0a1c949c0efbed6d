/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes lack of the commit that was chosen; see heal.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/heal.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/strategy.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/step/commit.h"

/* Documented in a header, as are all that are not static. */
bool heal_is_due(const struct zero_job *job)
{
	return job->across && job->across->heal && job->across->heal->is_due;
}

bool heal_lacks(const struct heal *heal, uint32_t subgroup, uint32_t plane)
{
	const struct offer *mine = heal_offer_of(heal, heal->across->node);

	return job_keeps(&heal->job->subgroups[subgroup], plane) &&
	       !(mine && offer_has_plane(mine, subgroup, plane));
}

/* ---- what is needed for it ---- */

/* What was chosen is not as this node is to have it: it lacks some, has too much, or ranks were
 * elsewhere. */
static bool needs_any(const struct heal *heal)
{
	const struct zero_job *job = heal->job;
	const struct offer *mine = heal_offer_of(heal, heal->across->node);
	struct catalog_placement placement = record_placement(job);

	if (!mine || mine->world != job->world ||
	    memcmp(&mine->placement, &placement, sizeof(placement)) != 0)
		return true;
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		if (offer_has(mine, i) != job->subgroups[i].is_here ||
		    offer_keeps(mine, i) != job->subgroups[i].is_kept)
			return true;
	return false;
}

static uint64_t plane_bytes(const struct heal *heal, uint32_t index, uint32_t plane)
{
	const struct zero_job *job = heal->job;
	const struct zero_subgroup *subgroup = &job->subgroups[index];
	const struct offer *source;

	if (!heal_lacks(heal, index, plane))
		return 0;
	if (plane == ZERO_PLANE_PARAM)
		return job_subgroup_param_bytes(job, subgroup);
	source = heal_offer_of(heal, heal_source(heal, index, plane));
	return offer_has_state(source, index) ? job_subgroup_state_bytes(job, subgroup) : 0;
}

/* Room for all that comes. Return: 0; -ENOSPC with the figure. */
static int reserve(struct heal *heal, struct zi_text *text)
{
	struct zero_job *job = heal->job;
	uint64_t free_bytes, wanted_bytes = 0;
	int r = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			wanted_bytes += plane_bytes(heal, i, plane);
	if (!wanted_bytes)
		return 0;
	tier_stripe_weigh(job->nvme_tier);
	free_bytes = tier_extent_free_bytes(job->nvme_tier);
	for (uint32_t i = 0; i < job->subgroup_count && !r; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT && !r; plane++) {
			uint64_t bytes = plane_bytes(heal, i, plane);

			if (bytes)
				r = tier_extent_reserve(job->nvme_tier, plane, bytes,
				                        &job->subgroups[i].places[plane].next);
		}
	if (!r)
		return 0;
	extents_release_next(job);
	if (r != TIER_E_FULL)
		return err_fold(r);
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"job '%.60s' takes over %s from other nodes, and %s has %s free: make room there",
		job->name, zi_format_bytes(wanted_bytes).chars, job->nvme_tier->name,
		zi_format_bytes(free_bytes).chars));
}

/* Memory of both sides, paid for as all of the job's is. */
static int make_buffers(struct heal *heal, struct zi_text *text)
{
	struct zero_job *job = heal->job;
	uint64_t buffer_bytes = 0;
	char *memory;
	int r;

	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];

		buffer_bytes = ZI_MAX(buffer_bytes, job_subgroup_param_bytes(job, subgroup));
		buffer_bytes = ZI_MAX(buffer_bytes, job_subgroup_state_bytes(job, subgroup));
	}
	r = tier_segment_new(job->cpu_tier, &job->account->account, "zinf-heal",
	                     (HEAL_BUFFERS + HEAL_TAKES) * buffer_bytes, TIER_PAGES_SMALL, text,
	                     &heal->memory);
	if (r)
		return err_trace(r);
	memory = heal->memory->region.base;
	heal_serve_begin(&heal->serve, heal->across, memory, buffer_bytes);
	if (heal_pull_begin(&heal->pull, heal, memory + HEAL_BUFFERS * buffer_bytes, buffer_bytes))
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	return 0;
}

/* Nothing of it is in flight. */
static void drop_buffers(struct heal *heal)
{
	assert(heal_serve_is_idle(&heal->serve));
	heal_pull_end(&heal->pull);
	heal->memory = tier_segment_unref(heal->memory);
}

int heal_begin(struct heal *heal, struct across *across, struct zi_text *text)
{
	if (!heal_serve_is_idle(&heal->serve) || heal->offers.use_count)
		return err_origin(
			zi_text_error(text, -EBUSY, "another node takes what was offered before"));
	drop_buffers(heal);
	offers_free(&heal->offers);
	*heal = (struct heal){ .across = across, .job = across->job };
	memset(heal->which, HEAL_NONE, sizeof(heal->which));
	if (offers_make(&heal->offers, across))
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	return 0;
}

/* Documented in the header. */
struct heal *heal_free(struct heal *heal)
{
	if (!heal)
		return NULL;
	drop_buffers(heal);
	offers_free(&heal->offers);
	free(heal);
	return NULL;
}

/* ---- in turn ---- */

static void over(struct heal *heal, int error, const struct zi_text *text)
{
	heal->job->heal = NULL;
	heal->done(heal->job, error, text);
}

static void committed(struct zero_job *job, int error, const struct zi_text *text)
{
	struct heal *heal = job->heal;

	heal->across->task_count--;
	if (heal->across->error || heal->across->is_detached)
		across_go_on(heal->across); /* It may wait for this. */
	over(heal, error, text);
}

/* All nodes have what they lacked, or some have not. */
static void all_healed(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct heal *heal = job->heal;
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	if (!error && job->group.phase != ZERO_GROUP_FORMING)
		error = -ECANCELED;
	if (!error)
		error = chosen_check(job, round, &why);
	if (error) {
		extents_release_next(job);
		over(heal, error, &why);
		return;
	}
	/* Nobody asks for more. Who has said so while it did keeps the memory. */
	heal->is_closed = true;
	if (heal_serve_is_idle(&heal->serve))
		heal->memory = tier_segment_unref(heal->memory);
	heal->across->task_count++;
	heal_commit(heal, committed);
}

static void pulled(struct heal *heal, int error, const struct zi_text *text)
{
	struct zero_job *job = heal->job;
	struct round_vote vote;
	struct zi_text told;

	if (!across_talks(job)) {
		extents_release_next(job);
		over(heal, error ? error : -ECANCELED, text);
		return;
	}
	chosen_vote(&heal->said, &vote);
	if (error) {
		told = across_where(heal->across, text);
		round_vote_refuse(&vote, error, &told);
	}
	across_vote(job, ROUND_HEALED, &vote, all_healed);
}

/* Blobs that this node has go with the next commit, too; of others' ranks as well (blobs.h). */
static void keep_blobs(struct heal *heal)
{
	struct zero_job *job = heal->job;
	const struct offer *mine = heal_offer_of(heal, heal->across->node);

	heal->blob_index = blob_next(job);
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++) {
		struct zero_blob *to = &job->blobs[heal->blob_index][i];
		const struct zero_blob *from = &job->blobs[job->committed.blob_index][i];

		to->byte_count = 0;
		if (!mine || !mine->blob_bytes[i] || i >= job->world)
			continue;
		memcpy(to->bytes, from->bytes, from->byte_count);
		to->byte_count = from->byte_count;
	}
}

/* "2 ranks on 2 nodes with zero2, shard_size 2" */
static struct zi_text say_division(uint32_t world, const struct catalog_placement *placement)
{
	struct zi_text text;

	zi_text_set(&text, "%u ranks on %u node%s with %s", world, placement->node_count,
	            placement->node_count == 1 ? "" : "s", zi_strategy_name(placement->strategy));
	if (placement->shard_size)
		zi_text_append(&text, ", shard_size %u", placement->shard_size);
	return text;
}

/* Who uses a job, and trains nothing, moves nothing. Return: -EOPNOTSUPP. */
static int refuse_use(const struct heal *heal, struct zi_text *text)
{
	const struct zero_job *job = heal->job;
	const struct offer *chosen = heal_offer_of(heal, heal->source);
	struct catalog_placement given = record_placement(job);

	return err_origin(zi_text_error(
		text, -EOPNOTSUPP,
		"job '%.40s' is used where it lies: come as it was trained, %s, each where it "
		"was, and not as %s",
		job->name, say_division(chosen->world, &chosen->placement).chars,
		say_division(job->world, &given).chars));
}

static void all_know(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct heal *heal = job->heal;
	uint32_t node_count = heal->across->node_count, needs, any = 0;
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	if (!error && job->group.phase != ZERO_GROUP_FORMING)
		error = -ECANCELED;
	if (!error)
		error = chosen_check(job, round, &why);
	for (uint32_t i = 0; i < node_count && !error; i++) {
		memcpy(&needs, round->votes[i].data + sizeof(struct chosen), sizeof(needs));
		any |= needs;
	}
	if (!error && any && zi_training_is_forward_only(&job->group.training))
		error = refuse_use(heal, &why);
	if (error)
		extents_release_next(job);
	if (error || !any) {
		over(heal, error, &why);
		return;
	}
	keep_blobs(heal);
	heal_pull_start(&heal->pull, heal->blob_index, pulled);
}

static void vote(struct heal *heal, int error, const struct zi_text *text, heal_done_fn done)
{
	struct round_vote vote;
	uint32_t needs = !error && needs_any(heal);
	struct zi_text told;

	heal->is_due = false;
	heal->done = done;
	heal->job->heal = heal;
	chosen_vote(&heal->said, &vote);
	memcpy(vote.data + vote.data_bytes, &needs, sizeof(needs));
	vote.data_bytes += sizeof(needs);
	if (error) {
		told = across_where(heal->across, text);
		round_vote_refuse(&vote, error, &told);
	}
	across_vote(heal->job, ROUND_HEAL, &vote, all_know);
}

void heal_start(struct zero_job *job, heal_done_fn done)
{
	struct heal *heal = job->across->heal;
	struct zi_text text = { "" };
	int r;

	assert(heal_is_due(job));
	heal->present = heal->which[heal->across->node];
	if (heal->present == HEAL_NONE && heal->offers.masks[heal->across->node] & 1)
		heal->present = 0;
	r = make_buffers(heal, &text);
	if (!r)
		r = reserve(heal, &text);
	vote(heal, r, &text, done);
}

void heal_refuse(struct zero_job *job, int error, const struct zi_text *text, heal_done_fn done)
{
	assert(heal_is_due(job));
	vote(job->across->heal, error, text, done);
}
