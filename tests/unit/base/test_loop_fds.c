/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a descriptor is served while it is added and never after; a poller spins, arms and disarms
 * as the header says, and starves nobody. Method: eventfds; a fake poller that checks the order in
 * which it is called.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/loop.h"
#include "common/base/thread.h"
#include "tests/unit/base/loop_fixture.h"

#define HOUR_NS (3600 * ZI_NS_PER_S)

TestSuite(loop_fds, .init = setup, .fini = teardown, .timeout = 20);

/* ---- descriptors ----------------------------------------------------------------------------- */

static struct zi_source sources[2];

/* Whichever comes first removes both. */
static void on_ready_remove_all(struct zi_source *source, uint32_t epoll_events)
{
	(void)source;
	(void)epoll_events;
	note('r');
	zi_loop_remove(&sources[0]);
	zi_loop_remove(&sources[1]);
	memset(sources, 0xff, sizeof(sources)); /* As if freed. */
	zi_loop_stop(loop);
}

Test(loop_fds, source_removed_in_the_same_batch_is_never_called)
{
	for (int i = 0; i < 2; i++)
		cr_assert_eq(
			zi_loop_add(loop, &sources[i], eventfd(1, 0), EPOLLIN, on_ready_remove_all),
			0);
	run();
	zi_loop_stop(loop);
	run();
	cr_assert_str_eq(happened, "r");
}

static int quiet_fd;

static void on_ready_replace(struct zi_source *source, uint32_t epoll_events)
{
	struct zi_source *other = source == &sources[0] ? &sources[1] : &sources[0];

	(void)epoll_events;
	note('r');
	zi_loop_remove(source);
	zi_loop_remove(other);
	cr_assert_eq(zi_loop_add(loop, other, quiet_fd, EPOLLIN, on_ready_replace), 0);
	zi_loop_stop(loop);
}

Test(loop_fds, source_added_anew_does_not_get_the_events_of_its_former_life)
{
	quiet_fd = eventfd(0, 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(
			zi_loop_add(loop, &sources[i], eventfd(1, 0), EPOLLIN, on_ready_replace),
			0);
	run();
	zi_loop_stop(loop);
	run();
	cr_assert_str_eq(happened, "r");
	zi_loop_remove(&sources[0]);
	zi_loop_remove(&sources[1]);
}

static void on_ready_modify(struct zi_source *source, uint32_t epoll_events)
{
	note(epoll_events & EPOLLOUT ? 'o' : 'i');
	if (epoll_events & EPOLLOUT) {
		cr_assert_eq(zi_loop_modify(source, EPOLLIN), 0);
		return;
	}
	zi_loop_stop(loop);
}

Test(loop_fds, modified_source_waits_for_its_new_events)
{
	struct zi_source source = { 0 };

	cr_assert_eq(zi_loop_add(loop, &source, eventfd(1, 0), EPOLLOUT, on_ready_modify), 0);
	run();
	cr_assert_str_eq(happened, "oi");
	cr_assert_eq(zi_loop_modify(&source, EPOLLIN | EPOLLEXCLUSIVE), -EINVAL);
	zi_loop_remove(&source);
	zi_loop_remove(&source); /* Not added: nothing to do. */
}

Test(loop_fds, adding_what_cannot_be_watched_names_the_reason)
{
	struct zi_source source = { 0 }, other = { 0 };
	int fd = eventfd(0, 0);

	cr_assert_eq(zi_loop_add(loop, &source, -1, EPOLLIN, on_ready_stop), -EBADF);
	cr_assert_eq(zi_loop_add(loop, &source, memfd_create("x", 0), EPOLLIN, on_ready_stop),
	             -EPERM);
	cr_assert_null(source.loop, "untouched on failure");
	cr_assert_eq(zi_loop_add(loop, &source, fd, EPOLLIN, on_ready_stop), 0);
	cr_assert_eq(zi_loop_add(loop, &other, fd, EPOLLIN, on_ready_stop), -EEXIST);
	zi_loop_remove(&source);
}

static unsigned ready_count;

static void on_ready_count(struct zi_source *source, uint32_t epoll_events)
{
	(void)epoll_events;
	zi_loop_remove(source);
	if (++ready_count == 150)
		zi_loop_stop(loop);
}

Test(loop_fds, more_ready_descriptors_than_a_batch_are_all_served)
{
	static struct zi_source many[150];

	for (int i = 0; i < 150; i++)
		cr_assert_eq(zi_loop_add(loop, &many[i], eventfd(1, 0), EPOLLIN, on_ready_count),
		             0);
	run();
	cr_assert_eq(ready_count, 150);
}

/* ---- poller ---------------------------------------------------------------------------------- */

TestSuite(loop_poller, .init = setup, .fini = teardown, .timeout = 20);

/* A poller whose answers a test sets, and that checks the order of its calls. */
static struct fake_poller {
	uint64_t spin_ns;
	unsigned found_left;  /* poll() says true so often */
	unsigned refuse_left; /* arm() says false so often */
	unsigned stop_after_polls;
	unsigned polls, arms, disarms;
} fake;

static bool fake_poll(void *arg)
{
	struct fake_poller *f = arg;

	cr_assert_eq(f->arms, f->disarms, "polled while armed");
	if (++f->polls == f->stop_after_polls)
		zi_loop_stop(loop);
	if (!f->found_left)
		return false;
	f->found_left--;
	return true;
}

static bool fake_arm(void *arg)
{
	struct fake_poller *f = arg;

	cr_assert_eq(f->arms, f->disarms, "armed twice");
	f->arms++;
	if (!f->refuse_left)
		return true;
	f->refuse_left--;
	return false;
}

static void fake_disarm(void *arg)
{
	struct fake_poller *f = arg;

	f->disarms++;
	cr_assert_eq(f->arms, f->disarms, "disarmed without arming");
}

static uint64_t fake_spin_ns(void *arg)
{
	return ((struct fake_poller *)arg)->spin_ns;
}

static const struct zi_poller fake_poller = {
	.arg = &fake,
	.poll = fake_poll,
	.arm = fake_arm,
	.disarm = fake_disarm,
	.spin_ns = fake_spin_ns,
};

/* With no timer and no descriptor a single sleep would last for ever. */
Test(loop_poller, poller_whose_arm_says_no_keeps_the_loop_awake)
{
	fake = (struct fake_poller){ .refuse_left = 100, .stop_after_polls = 100 };
	zi_loop_set_poller(loop, &fake_poller);
	run();
	cr_assert_eq(fake.polls, 100);
	cr_assert_eq(fake.arms, 99);
	cr_assert_eq(fake.arms, fake.disarms);
}

Test(loop_poller, poller_that_finds_work_is_not_armed)
{
	fake = (struct fake_poller){ .found_left = 500, .stop_after_polls = 500 };
	zi_loop_set_poller(loop, &fake_poller);
	run();
	cr_assert_eq(fake.arms, 0);
}

Test(loop_poller, poller_spins_after_work_for_as_long_as_it_says)
{
	fake = (struct fake_poller){
		.found_left = 1,
		.spin_ns = HOUR_NS,
		.stop_after_polls = 20000,
	};
	zi_loop_set_poller(loop, &fake_poller);
	run();
	cr_assert_eq(fake.arms, 0);
	cr_assert_eq(fake.polls, 20000);
}

Test(loop_poller, poller_without_spinning_time_sleeps_at_once)
{
	struct zi_timer last = { 0 };

	fake = (struct fake_poller){ .found_left = 1 };
	zi_loop_set_poller(loop, &fake_poller);
	zi_loop_arm(loop, &last, zi_clock_deadline_ns(20 * ZI_NS_PER_MS), on_stop_timer);
	run();
	cr_assert_gt(fake.arms, 0);
	cr_assert_lt(fake.polls, 10, "it span: %u polls", fake.polls);
	cr_assert_eq(fake.arms, fake.disarms);
}

Test(loop_poller, poller_spinning_ends_and_the_loop_sleeps)
{
	struct zi_timer last = { 0 };

	fake = (struct fake_poller){ .found_left = 1, .spin_ns = ZI_NS_PER_MS };
	zi_loop_set_poller(loop, &fake_poller);
	zi_loop_arm(loop, &last, zi_clock_deadline_ns(20 * ZI_NS_PER_MS), on_stop_timer);
	run();
	cr_assert_gt(fake.polls, 100, "it did not spin");
	cr_assert_gt(fake.arms, 0, "it did not sleep");
}

Test(loop_poller, descriptors_timers_and_posts_are_served_while_the_poller_spins)
{
	struct lettered_timer a = { .letter = 'a' };
	struct zi_source source = { 0 };
	struct zi_thread thread = { 0 };
	struct zi_post post;

	fake = (struct fake_poller){ .found_left = 1, .spin_ns = HOUR_NS };
	zi_loop_set_poller(loop, &fake_poller);
	zi_loop_arm(loop, &a.timer, zi_clock_now_ns(), on_timer);
	cr_assert_eq(zi_loop_add(loop, &source, eventfd(1, 0), EPOLLIN, on_ready_stop), 0);
	run();
	cr_assert_str_eq(happened, "as");

	fake.found_left = 1;
	cr_assert_eq(zi_thread_start(&thread, "loop", run_thread, NULL), 0);
	zi_loop_post(loop, &post, on_answer_post);
	sem_wait(&answered);
	zi_loop_stop(loop);
	cr_assert_eq(zi_thread_join(&thread), 0);
	cr_assert_eq(fake.arms, 0);
}

Test(loop_poller, poller_set_to_null_is_gone)
{
	struct zi_post post;

	fake = (struct fake_poller){ 0 };
	zi_loop_set_poller(loop, &fake_poller);
	zi_loop_set_poller(loop, NULL);
	zi_loop_post(loop, &post, on_stop_post);
	run();
	cr_assert_eq(fake.polls, 0);
}

#ifdef ZI_DEBUG
static int arm_from_outside(void *arg)
{
	zi_loop_arm(loop, arg, 1, on_stop_timer);
	return 0;
}

Test(loop_poller, arming_from_another_thread_asserts_in_debug_builds, .signal = SIGABRT)
{
	struct zi_thread thread = { 0 }, other = { 0 };
	struct zi_timer timer = { 0 };
	struct zi_post post;

	cr_assert_eq(zi_thread_start(&thread, "loop", run_thread, NULL), 0);
	zi_loop_post(loop, &post, on_answer_post);
	sem_wait(&answered); /* It runs. */
	cr_assert_eq(zi_thread_start(&other, "other", arm_from_outside, &timer), 0);
	(void)zi_thread_join(&other);
}
#endif
