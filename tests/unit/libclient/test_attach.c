/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: attaching says clearly what is wrong, believes no figure of the daemon, and leaves nothing
 * behind when it fails. Method: the fake daemon, told to refuse or to lie; descriptors are counted.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/fake/fake_job.h"
#include "tests/guard/guard.h"

static int open_fd_count(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* zinf_attach() to a daemon with @daemon's faults must return @error. */
static void expect_refused(const struct fake_daemon_options *daemon, int error, const char *word)
{
	struct fake_daemon *fake = fake_daemon_start(daemon);
	struct zinf_options options = fake_job_options(fake);
	struct zinf *zinf = (struct zinf *)&options;
	int before;

	/* Where it is waited for in vain; a daemon that answers has its time. */
	if (error == -ETIMEDOUT)
		options.timeout_ms = 200;
	before = open_fd_count();
	cr_expect_eq(zinf_attach(&options, &zinf), error, "%s: %s", word, zinf_attach_error());
	cr_expect_eq(zinf, (struct zinf *)&options, "untouched on failure");
	expect_attach_text(word);
	fake_daemon_stop(fake);
	cr_expect_leq(open_fd_count(), before, "%s", word);
}

Test(attach, rank_joins_and_leaves)
{
	for (int is_eventfd = 0; is_eventfd < 2; is_eventfd++) {
		int before = open_fd_count();
		struct fake_job job =
			fake_job_attach(&(struct fake_daemon_options){ .is_eventfd = is_eventfd });
		const struct zi_attach *attach = fake_daemon_attach(job.fake);

		cr_assert_str_eq(zinf_attach_error(), "");
		cr_assert_str_eq(zinf_error_text(job.zinf), "");
		cr_assert_str_eq(attach->job, "test");
		cr_assert_eq(attach->rank, 0);
		cr_assert_eq(attach->world_size, 1);
		cr_assert_eq(attach->timeout_ms, FAKE_JOB_TIMEOUT_MS);
		cr_assert_eq(zinf_rank(job.zinf), 0);
		cr_assert_eq(zinf_world_size(job.zinf), 1);
		cr_assert_eq(zinf_ping(job.zinf), 0);
		cr_assert_eq(zinf_barrier(job.zinf), 0);
		fake_job_leave(&job);
		cr_assert_eq(open_fd_count(), before);
	}
	zinf_detach(NULL);
}

Test(attach, detach_and_destroy_are_told_to_the_daemon)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ 0 });
	struct zinf_options options = fake_job_options(job.fake);

	zinf_detach(job.zinf);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_DETACH)), 1);
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	cr_assert_eq(zinf_destroy_job(job.zinf), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_DESTROY)), 1);
	fake_daemon_stop(job.fake);
}

Test(attach, refused_destroy_keeps_the_session)
{
	struct fake_job job = fake_job_attach(
		&(struct fake_daemon_options){ .fail_on = FAKE_ON_MESSAGE(ZI_MESSAGE_DESTROY),
	                                       .fail_error = -EBUSY,
	                                       .fail_text = "rank 1 (pid 5) has not left" });

	cr_assert_eq(zinf_destroy_job(job.zinf), -EBUSY);
	expect_text(job.zinf, "rank 1 (pid 5) has not left");
	cr_assert_eq(zinf_ping(job.zinf), 0);
	fake_job_leave(&job);
}

Test(attach, without_a_daemon_it_is_enoent_with_the_path)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *zinf;

	options.socket_path = "/nonexistent/zinfd.sock";
	cr_assert_eq(zinf_attach(&options, &zinf), -ENOENT);
	expect_attach_text("/nonexistent/zinfd.sock");
	options.wait_for_daemon = true;
	options.timeout_ms = 30;
	cr_assert_eq(zinf_attach(&options, &zinf), -ETIMEDOUT);
	expect_attach_text("within 30 ms");
}

static void *start_later(void *arg)
{
	const struct timespec pause = { .tv_nsec = 30000000 };

	/* Not a test's sleep but its subject: a daemon that comes late. */
	nanosleep(&pause, NULL);
	return symlink(((const char **)arg)[0], ((const char **)arg)[1]) ? arg : NULL;
}

Test(attach, waiting_finds_a_daemon_that_comes_late)
{
	struct fake_daemon *fake = fake_daemon_start(&(struct fake_daemon_options){ 0 });
	struct zinf_options options = fake_job_options(fake);
	char path[64];
	const char *paths[2] = { fake_daemon_path(fake), path };
	struct zinf *zinf;
	pthread_t thread;
	void *failed;

	(void)guard_path(path, sizeof(path), "late");
	options.socket_path = path;
	options.wait_for_daemon = true;
	cr_assert_eq(pthread_create(&thread, NULL, start_later, paths), 0);
	cr_assert_eq(zinf_attach(&options, &zinf), 0, "%s", zinf_attach_error());
	pthread_join(thread, &failed);
	cr_assert_null(failed);
	unlink(path);
	zinf_detach(zinf);
	fake_daemon_stop(fake);
}

Test(attach, other_major_version_is_named_on_both_sides)
{
	expect_refused(&(struct fake_daemon_options){ .hello_major = 7 }, -EPROTONOSUPPORT,
	               "zinfd 9.9.9");
	expect_refused(&(struct fake_daemon_options){ .hello_major = 7 }, -EPROTONOSUPPORT,
	               "protocol 7.0");
	expect_refused(&(struct fake_daemon_options){ .fail_on = FAKE_ON_MESSAGE(ZI_MESSAGE_HELLO),
	                                              .fail_error = -EPROTONOSUPPORT,
	                                              .fail_text = "too old for me" },
	               -EPROTONOSUPPORT, "too old for me");
}

Test(attach, nvme_state_needs_a_daemon_that_has_it)
{
	struct fake_daemon *fake = fake_daemon_start(&(struct fake_daemon_options){ 0 });
	struct zinf_options options = fake_job_options(fake);
	struct zinf *zinf;

	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	cr_assert_eq(zinf_attach(&options, &zinf), -EOPNOTSUPP);
	expect_attach_text("no NVMe tier");
	fake_daemon_stop(fake);
	fake = fake_daemon_start(&(struct fake_daemon_options){ .features = UINT64_MAX });
	options.socket_path = fake_daemon_path(fake);
	cr_assert_eq(zinf_attach(&options, &zinf), 0, "%s", zinf_attach_error());
	zinf_detach(zinf);
	fake_daemon_stop(fake);
}

Test(attach, refusal_of_the_daemon_arrives_with_its_text)
{
	expect_refused(&(struct fake_daemon_options){ .fail_on = FAKE_ON_MESSAGE(ZI_MESSAGE_ATTACH),
	                                              .fail_error = -EBUSY,
	                                              .fail_text = "rank 0 is taken by pid 12" },
	               -EBUSY, "rank 0 is taken by pid 12");
}

Test(attach, lies_and_garbage_are_eproto)
{
	const enum fake_lie lies[] = { FAKE_LIE_GARBAGE,  FAKE_LIE_SHAPE,      FAKE_LIE_TYPE,
		                       FAKE_LIE_SEQUENCE, FAKE_LIE_FDS,        FAKE_LIE_ENTRIES,
		                       FAKE_LIE_UNSEALED, FAKE_LIE_RING_BYTES, FAKE_LIE_READONLY,
		                       FAKE_LIE_MAGIC };

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		expect_refused(&(struct fake_daemon_options){ .lie = lies[i] }, -EPROTO,
		               "broke the protocol");
}

Test(attach, daemon_that_dies_or_says_nothing_does_not_hang_it)
{
	expect_refused(&(struct fake_daemon_options){ .die_on = FAKE_ON_MESSAGE(ZI_MESSAGE_HELLO) },
	               -ESTALE, "went away");
	expect_refused(
		&(struct fake_daemon_options){ .die_on = FAKE_ON_MESSAGE(ZI_MESSAGE_ATTACH) },
		-ESTALE, "attach again");
	expect_refused(
		&(struct fake_daemon_options){ .silent_on = FAKE_ON_MESSAGE(ZI_MESSAGE_ATTACH) },
		-ETIMEDOUT, "no answer");
}

Test(attach, error_text_is_of_the_last_attach_only)
{
	struct fake_daemon *fake = fake_daemon_start(&(struct fake_daemon_options){ 0 });
	struct zinf_options options = fake_job_options(fake);
	struct zinf *zinf;

	options.rank = 5;
	cr_assert_eq(zinf_attach(&options, &zinf), -EINVAL);
	expect_attach_text("rank 5");
	options.rank = 0;
	cr_assert_eq(zinf_attach(&options, &zinf), 0);
	cr_assert_str_eq(zinf_attach_error(), "");
	zinf_detach(zinf);
	fake_daemon_stop(fake);
}

Test(attach, step_of_state_that_was_lost_is_known_unless_the_daemon_is_older)
{
	const struct {
		struct fake_daemon_options daemon;
		int64_t step;
	} cases[] = {
		{ { .features = ZI_FEATURE_LOST, .has_lost = true, .lost_step = 41 }, 41 },
		{ { .features = ZI_FEATURE_LOST, .has_lost = true, .lost_step = 0 }, 0 },
		{ { .features = ZI_FEATURE_LOST }, -1 },
		{ { .features = UINT64_MAX & ~ZI_FEATURE_LOST }, -1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fake_job job = fake_job_attach(&cases[i].daemon);

		cr_expect_eq(zinf_lost_step(job.zinf), cases[i].step, "case %zu", i);
		fake_job_leave(&job);
	}
	cr_expect_eq(zinf_lost_step(NULL), -EINVAL);
	expect_refused(&(struct fake_daemon_options){ .features = ZI_FEATURE_LOST,
	                                              .has_lost = true,
	                                              .lost_step = -5 },
	               -EPROTO, "an impossible lost step");
}

Test(attach, daemon_that_keeps_no_snapshots_by_itself_is_refused_by_name)
{
	struct fake_daemon *fake = fake_daemon_start(
		&(struct fake_daemon_options){ .features = ZI_FEATURE_SNAPSHOTS });
	struct zinf_options options = fake_job_options(fake);
	struct zinf *zinf;

	options.snapshot_interval = 10;
	cr_assert_eq(zinf_attach(&options, &zinf), -EOPNOTSUPP);
	expect_attach_text("zinfd 9.9.9");
	expect_attach_text("takes no snapshots by itself");
	fake_daemon_stop(fake);
}
