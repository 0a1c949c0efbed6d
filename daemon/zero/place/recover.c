/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the catalog back to jobs, when the daemon starts: each stands at its last committed step,
 * and its extents are claimed (those that a snapshot holds as well, once), so that what no commit
 * names is free. One job is recover_take.c's; commits before those in force come last
 * (recover_former.c), and memory at materialize. Floor 5, before the loop runs.
 *
 * A job whose rows or extents cannot be right is kept, refused and explained; nothing of it is
 * overwritten, and the others go on: also where its rows ask for more memory than there is.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/lost.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/recover_former.h"
#include "daemon/zero/place/recover_refused.h"
#include "daemon/zero/place/recover_take.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot_recover.h"
#include "daemon/zero/step/budget.h"

struct recovery {
	struct zero *zero;
	struct catalog_job **refused; /* (refused_count,) damaged ones, whose space is kept */
	uint32_t refused_count;
	struct recovered_formers formers;
	zero_lost_fn lost;
	void *arg;
};

/* Keeps the rows of a damaged job until every sound one has claimed its space. */
static int refuse(struct recovery *recovery, struct zero_job *job, struct catalog_job **stored)
{
	struct catalog_job **refused;

	refused = reallocarray(recovery->refused, recovery->refused_count + 1, sizeof(*refused));
	if (!refused)
		return err_origin(-ENOMEM);
	recovery->refused = refused;
	extents_release_all(job);
	refused[recovery->refused_count++] = zi_steal(*stored);
	return 0;
}

static int recover_job(void *arg, struct catalog_job *job_row)
{
	struct recovery *recovery = arg;
	_cleanup_(catalog_job_freep) struct catalog_job *stored = job_row;
	struct zero *zero = recovery->zero;
	struct zero_job *job = NULL;
	int r;

	if (stored->snapshot[0])
		return err_trace(snapshot_recover(zero, zi_steal(stored)));
	r = job_new(zero, stored->name, stored->uid, &job);
	if (r)
		return err_trace(r);
	job->is_stored = true;
	if (!stored->damage.chars[0] &&
	    (stored->config.offload_optimizer != ZI_OFFLOAD_NVME || stored->step < 0)) {
		if (stored->step >= 0 && recovery->lost)
			recovery->lost(recovery->arg, stored->name, stored->step);
		job->committed_step = -1;
		job->current_step = -1;
		if (stored->step >= 0)
			lost_keep(job, stored->step);
		else
			job_delete_later(job);
		return 0;
	}
	r = recover_take(job, stored, false);
	/* Of this job alone: it is refused, the others go on. */
	if (r && job->refusal)
		return err_trace(refuse(recovery, job, &stored));
	if (!r && stored->former)
		r = recover_former_later(&recovery->formers, job, stored);
	return err_trace(r);
}

/**
 * zero_recover() - jobs as the catalog knows them
 * @lost: called with each job whose state was in memory alone; may be NULL
 * @text: of a failure
 *
 * Return: 0, also with damaged jobs, which refuse to be attached; -ENOMEM; what
 * catalog_load_jobs() returns. Context: at start, before catalog_start().
 */
int zero_recover(struct zero *zero, zero_lost_fn lost, void *arg, struct zi_text *text)
{
	struct recovery recovery = { .zero = zero, .lost = lost, .arg = arg };
	int r;

	assert(zi_list_is_empty(&zero->jobs));
	zero->shares.is_recovering = true;
	r = catalog_load_jobs(zero->options.catalog, recover_job, &recovery, text);
	if (!r)
		r = recover_keep_refused(zero, recovery.refused, recovery.refused_count);
	if (!r)
		r = recover_formers(&recovery.formers);
	if (!r)
		r = recover_keep_refused_formers(zero, recovery.refused, recovery.refused_count);
	recover_formers_free(&recovery.formers);
	for (uint32_t i = 0; i < recovery.refused_count; i++)
		(void)catalog_job_free(recovery.refused[i]);
	free(recovery.refused);
	if (!r)
		r = share_recovered(&zero->shares);
	if (!r)
		r = catalog_load_traffic(zero->options.catalog, budget_restore, zero, text);
	return err_trace(r);
}
