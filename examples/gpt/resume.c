/* SPDX-License-Identifier: Apache-2.0 */
/* See resume.h. */
#include "examples/gpt/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/number.h"

/* What the daemon calls a snapshot where nobody named it, and one that it made by itself
 * (snapshot_interval). */
enum snapshot_kind { SNAPSHOT_ASKED, SNAPSHOT_AUTOMATIC, _SNAPSHOT_KINDS };

/* JOB/NAME of a snapshot. */
struct source {
	char chars[2 * ZINF_NAME_BYTES];
};

const char *gpt_job_name(const struct gpt_args *args)
{
	const char *named = getenv("ZINF_JOB");

	if (args->job)
		return args->job;
	return named && *named ? named : "gpt";
}

int gpt_resume_check(struct gpt_args *args, struct gpt_problem *problem)
{
	const char *from = args->resume;

	if (!from)
		return 0;
	if (args->is_reference)
		return gpt_problem_set(problem, -EINVAL,
		                       "--resume %s needs a job of zinfd, and --reference has "
		                       "none",
		                       from);
	if (args->load)
		return gpt_problem_set(problem, -EINVAL,
		                       "--resume %s and --load %s exclude each "
		                       "other: give one of them",
		                       from, args->load);
	if (strchr(from, '/')) {
		args->load = from;
		return 0;
	}
	args->resumes_latest = strcmp(from, "latest") == 0;
	args->resumes_step = !args->resumes_latest;
	if (args->resumes_latest ||
	    (!gpt_parse_u64(from, &args->resume_step) && args->resume_step <= INT64_MAX))
		return 0;
	return gpt_problem_set(problem, -EINVAL,
	                       "--resume %s: allowed are the number of a step, \"latest\", or "
	                       "JOB/NAME of a snapshot",
	                       from);
}

static struct source name_snapshot(const struct gpt_args *args, enum snapshot_kind kind)
{
	const char *job = gpt_job_name(args);
	struct source source;

	/* Both fit: a longer name was refused before, and 20 digits. */
	if (kind == SNAPSHOT_ASKED)
		(void)snprintf(source.chars, sizeof(source.chars), "%.63s/step-%" PRIu64, job,
		               args->resume_step);
	else
		(void)snprintf(source.chars, sizeof(source.chars), "%.63s/auto-%06" PRIu64, job,
		               args->resume_step);
	return source;
}

static int load(struct zinf *zinf, const char *source, struct gpt_problem *problem)
{
	int r = zinf_load(zinf, source); /* A job with a step of its own goes on from it. */

	return r ? gpt_problem_set(problem, r, "%s", zinf_error_text(zinf)) : 0;
}

int gpt_resume_load(const struct gpt_args *args, struct zinf *zinf, struct gpt_problem *problem)
{
	int r = -ENOENT;

	if (args->load)
		return load(zinf, args->load, problem);
	if (!args->resumes_step)
		return 0;
	for (enum snapshot_kind kind = 0; kind < _SNAPSHOT_KINDS && r == -ENOENT; kind++)
		r = load(zinf, name_snapshot(args, kind).chars, problem);
	/* The job may stand there itself, whatever is wrong with the snapshot. */
	if (!r || r == -ENOENT)
		problem->chars[0] = '\0';
	return 0;
}

int gpt_resume_verify(const struct gpt_args *args, const struct zinf *zinf,
                      struct gpt_problem *problem)
{
	int64_t step = zinf_committed_step(zinf);
	const char *job = gpt_job_name(args);
	struct gpt_problem why;

	if (args->restart_index || (!args->resumes_latest && !args->resumes_step))
		return 0;
	if (step < 0 && zinf_lost_step(zinf) >= 0)
		return gpt_problem_set(problem, -ENODATA,
		                       "--resume %s: job '%s' was at step %" PRId64
		                       " with its state in memory, which was lost when zinfd "
		                       "ended; run without the flag to begin it anew, or name a "
		                       "snapshot (zctl snapshot list)",
		                       args->resume, job, zinf_lost_step(zinf));
	if (args->resumes_latest && step < 0)
		return gpt_problem_set(problem, -ENODATA,
		                       "--resume latest: job '%s' has no committed step: start "
		                       "it without the flag, or name a snapshot (zctl snapshot "
		                       "list)",
		                       job);
	if (args->resumes_latest || step == (int64_t)args->resume_step)
		return 0;
	if (step < 0 && problem->chars[0]) {
		why = *problem;
		return gpt_problem_set(problem, -ENODATA,
		                       "--resume %" PRIu64 ": job '%s' is new, and its snapshot "
		                       "cannot be gone on from: %.300s",
		                       args->resume_step, job, why.chars);
	}
	if (step < 0)
		return gpt_problem_set(problem, -ENODATA,
		                       "--resume %" PRIu64 ": job '%s' is new, and there is "
		                       "neither a snapshot %s nor %s (zctl snapshot list %s)",
		                       args->resume_step, job,
		                       name_snapshot(args, SNAPSHOT_ASKED).chars,
		                       name_snapshot(args, SNAPSHOT_AUTOMATIC).chars, job);
	return gpt_problem_set(problem, -EINVAL,
	                       "--resume %" PRIu64 ": job '%s' is at step %" PRId64
	                       "; if that step was kept (zctl snapshot list %s), go on from it "
	                       "as another one (--job NAME --resume %s), or, in one node, put this "
	                       "one back, which loses its later steps (zctl snapshot restore)",
	                       args->resume_step, job, step, job,
	                       name_snapshot(args, SNAPSHOT_ASKED).chars);
}
