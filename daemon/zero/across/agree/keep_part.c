/* SPDX-License-Identifier: Apache-2.0 */
/* See keep_part.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/keep_part.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/snapshot/snapshot_remove.h"
#include "daemon/zero/step/commit.h"

/* Documented in the header, as are all others. */
struct zero_job *keep_job(const struct across *across)
{
	return across->is_detached ? job_find(across->zero, across->name) : across->job;
}

/* One of that name is there. Return: it is of this very commit, and sound. */
static bool is_same(const struct keep_words *words, const struct zero_snapshot *snapshot)
{
	return snapshot->phase == ZERO_SNAPSHOT_KEPT && !snapshot->refusal &&
	       snapshot->record->number == words->number && snapshot->record->line == words->line;
}

static int check(const struct across *across, const struct zero_job *job, struct zi_text *text)
{
	int r = change_check(across->zero, text);

	if (r)
		return err_trace(r);
	if (!job || job->is_deleting || job->refusal)
		return err_origin(zi_text_error(text, -ENOENT, "there is no job '%.60s' any more",
		                                across->name));
	if (!job->nvme_tier)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"its daemon has no nvme tier to keep a snapshot of job '%.60s' on",
			across->name));
	return 0;
}

void keep_part_begin(struct across *across, struct zero_job *job)
{
	struct keep *keep = &across->keep;
	const struct keep_words *words = &keep->now.words;
	struct zero_snapshot *snapshot;
	struct zi_text text = { "" };
	bool had = false;
	int r;

	assert(keep->now.id);
	assert(!keep->snapshot);
	r = check(across, job, &text);
	snapshot = r ? NULL : snapshot_find(across->zero, across->name, words->name);
	if (snapshot) {
		had = is_same(words, snapshot);
		if (!had)
			r = zi_text_error(&text, err_origin(-EEXIST), "snapshot '%s/%s' exists",
			                  across->name, words->name);
	}
	if (r || had) {
		keep_tell(across, r, had, &text);
		return;
	}
	snapshot = snapshot_new(across->zero, across->name, words->name, job->uid);
	if (!snapshot) {
		zi_text_set(&text, "no memory for a snapshot");
		keep_tell(across, err_origin(-ENOMEM), false, &text);
		return;
	}
	snapshot->job = job;
	snapshot->is_automatic = words->is_automatic;
	snapshot->keep_id = keep->now.id;
	snapshot->keep_number = words->number;
	snapshot->keep_line = words->line;
	keep->snapshot = snapshot;
	snapshot_retry(job);
}

/* Of the talk that has it made; NULL: that is over. */
static struct across *across_of(const struct zero_snapshot *snapshot)
{
	struct zero *zero = snapshot->zero;
	struct zero_job *job = job_find(zero, snapshot->job_name);

	if (job && job->across && job->across->keep.snapshot == snapshot)
		return job->across;
	zi_list_for_each(link, &zero->acrosses) {
		struct across *across = container_of(link, struct across, link);

		if (across->keep.snapshot == snapshot)
			return across;
	}
	return NULL;
}

static void settle(struct zero_snapshot *snapshot)
{
	assert(snapshot->phase == ZERO_SNAPSHOT_STORED);
	snapshot->phase = ZERO_SNAPSHOT_KEPT;
	snapshot->keep_id = 0;
	evacuate_kick(snapshot->zero);
}

void keep_told(struct zero_snapshot *snapshot, int error, const struct zi_text *text)
{
	struct across *across = across_of(snapshot);

	if (!across) {
		if (!error)
			settle(snapshot);
		return;
	}
	if (error)
		across->keep.snapshot = NULL; /* About to be freed. */
	keep_tell(across, error, false, text);
}

void keep_part_end(struct across *across, int error)
{
	struct keep *keep = &across->keep;
	struct zero_snapshot *snapshot = zi_steal(keep->snapshot);
	uint32_t keep_count = keep->now.words.keep_count;

	if (snapshot && error) {
		snapshot->keep_id = 0;
		snapshot_forget(snapshot);
	} else if (snapshot) {
		settle(snapshot);
	}
	if (!error && keep_count)
		snapshot_retain(across->zero, across->name, keep_count);
}

void keep_part_leave(struct across *across)
{
	struct zero_snapshot *snapshot = zi_steal(across->keep.snapshot);

	if (!snapshot)
		return;
	if (snapshot->phase == ZERO_SNAPSHOT_STORED)
		settle(snapshot);
	else if (snapshot->phase == ZERO_SNAPSHOT_WAITING)
		(void)snapshot_free(snapshot);
	/* Else it is being written or stored, and is settled when it is. */
}
