/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the fake daemon: the few lines that every test of libclient begins and ends with. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "libclient/client.h"
#include "tests/fake/fake_daemon.h"
#include "zinf/zinf.h"

struct fake_job {
	struct fake_daemon *fake;
	struct zinf *zinf;
	uint32_t unit[2];  /* "a" of 3 × 5 and a scalar, "b" of 5000 */
	uint32_t param[3]; /* "a.w", "a.s", "b.w" */
};

/* What no call takes, however loaded the machine is; a test that waits it out has failed. */
#define FAKE_JOB_TIMEOUT_MS 20000u

/* Options for @fake with a deadline that a test can wait for. */
static inline struct zinf_options fake_job_options(const struct fake_daemon *fake)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;

	options.socket_path = fake_daemon_path(fake);
	options.job = "test";
	options.timeout_ms = FAKE_JOB_TIMEOUT_MS;
	return options;
}

static inline struct fake_job fake_job_attach_with(const struct fake_daemon_options *daemon,
                                                   enum zinf_grad_reduction schedule)
{
	struct fake_job job = { .fake = fake_daemon_start(daemon) };
	struct zinf_options options = fake_job_options(job.fake);

	options.grad_reduction = schedule;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static inline struct fake_job fake_job_attach(const struct fake_daemon_options *daemon)
{
	return fake_job_attach_with(daemon, ZINF_REDUCE_PER_STEP);
}

/* How long the calls from here on wait: little for the one that is to wait in vain, and for it
 * alone, since a thread of the fake may not be given a CPU for as long. */
static inline void fake_job_limit_time(struct fake_job *job, uint32_t timeout_ms)
{
	job->zinf->timeout_ns = timeout_ms * ZI_NS_PER_MS;
}

static inline void fake_job_add(struct fake_job *job)
{
	cr_assert_eq(zinf_unit_add(job->zinf, "a", &job->unit[0]), 0);
	cr_assert_eq(zinf_param_add(job->zinf, "a.w", 2, (uint64_t[]){ 3, 5 }, &job->param[0]), 0);
	cr_assert_eq(zinf_param_add(job->zinf, "a.s", 0, NULL, &job->param[1]), 0);
	cr_assert_eq(zinf_unit_add(job->zinf, "b", &job->unit[1]), 0);
	cr_assert_eq(zinf_param_add(job->zinf, "b.w", 1, (uint64_t[]){ 5000 }, &job->param[2]), 0);
}

static inline void fake_job_materialize(struct fake_job *job)
{
	fake_job_add(job);
	cr_assert_eq(zinf_materialize(job->zinf), 0, "%s", zinf_error_text(job->zinf));
}

/* Everything of a step that comes before zinf_step(). */
static inline void fake_job_backward(struct fake_job *job)
{
	const struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	cr_assert_eq(zinf_step_begin(job->zinf, &step), 0, "%s", zinf_error_text(job->zinf));
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(zinf_unshard(job->zinf, job->unit[i]), 0);
		cr_assert_eq(zinf_grad_acquire(job->zinf, job->unit[i]), 0);
		cr_assert_eq(zinf_reduce(job->zinf, job->unit[i]), 0);
		cr_assert_eq(zinf_reshard(job->zinf, job->unit[i]), 0);
	}
}

static inline void fake_job_leave(struct fake_job *job)
{
	zinf_detach(job->zinf);
	job->fake = fake_daemon_stop(job->fake);
}

/* A look that does not fault. */
static inline bool is_mapped(const void *address)
{
	int fds[2];
	bool is_copied;

	cr_assert_eq(pipe(fds), 0);
	is_copied = write(fds[1], address, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return is_copied;
}

#define expect_text(zinf, word)                                                       \
	cr_expect_not_null(strstr(zinf_error_text(zinf), word), "'%s' in '%s'", word, \
	                   zinf_error_text(zinf))
#define expect_attach_text(word)                                                    \
	cr_expect_not_null(strstr(zinf_attach_error(), word), "'%s' in '%s'", word, \
	                   zinf_attach_error())
