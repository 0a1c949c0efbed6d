/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the loop runs posts and timers when due, in order, once, in its own thread; it sleeps when
 * it may and wakes when it must. Method: real producer threads, deadlines in the past and the near
 * future. A lost wake-up shows as a time-out of the test; nothing here waits by sleeping.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/loop.h"
#include "common/base/thread.h"
#include "tests/unit/base/loop_fixture.h"

TestSuite(loop, .init = setup, .fini = teardown, .timeout = 20);

/* ---- life ---------------------------------------------------------------------------------- */

static int lowest_free_fd(void)
{
	int fd = dup(STDIN_FILENO);

	close(fd);
	return fd;
}

Test(loop_life, new_without_descriptors_is_emfile)
{
	struct zi_loop *unset = NULL;
	struct rlimit saved;
	int results[2];

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &saved), 0);
	for (int spare = 0; spare < 2; spare++) { /* epoll fails, then eventfd */
		struct rlimit limit = saved;

		limit.rlim_cur = (rlim_t)(lowest_free_fd() + spare);
		cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		results[spare] = zi_loop_new(&unset);
		/* Before asserting: Criterion reports through descriptors of its own. */
		(void)setrlimit(RLIMIT_NOFILE, &saved);
	}
	cr_assert_eq(results[0], -EMFILE);
	cr_assert_eq(results[1], -EMFILE);
	cr_assert_null(unset);
}

Test(loop_life, failing_epoll_ends_the_run_with_its_error)
{
	struct zi_loop *broken = NULL;
	int epoll_fd = lowest_free_fd();
	int null_fd;

	cr_assert_eq(zi_loop_new(&broken), 0);
	null_fd = open("/dev/null", O_RDONLY);
	cr_assert_eq(dup2(null_fd, epoll_fd), epoll_fd);
	cr_assert_eq(zi_loop_run(broken), -EINVAL);
	cr_assert(zi_loop_is_owner(broken), "nobody owns it any more");
	broken = zi_loop_free(broken);
}

Test(loop_life, free_takes_null)
{
	cr_assert_null(zi_loop_free(NULL));
}

#ifndef NDEBUG
static void never_ready(struct zi_source *source, uint32_t epoll_events)
{
	(void)source;
	(void)epoll_events;
	cr_assert_fail("called though removed");
}

Test(loop, freeing_with_a_source_left_asserts, .signal = SIGABRT)
{
	struct zi_source source = { 0 };

	cr_assert_eq(zi_loop_add(loop, &source, eventfd(0, 0), EPOLLIN, never_ready), 0);
	zi_loop_free(loop);
}

Test(loop, freeing_with_a_timer_left_asserts, .signal = SIGABRT)
{
	struct zi_timer timer = { 0 };

	zi_loop_arm(loop, &timer, ZI_DEADLINE_NEVER, on_stop_timer);
	zi_loop_free(loop);
}

Test(loop, freeing_with_a_post_left_asserts, .signal = SIGABRT)
{
	struct zi_post post;

	zi_loop_post(loop, &post, on_stop_post);
	zi_loop_free(loop);
}

Test(loop, removing_after_closing_asserts, .signal = SIGABRT)
{
	struct zi_source source = { 0 };
	int fd = eventfd(0, 0);

	cr_assert_eq(zi_loop_add(loop, &source, fd, EPOLLIN, never_ready), 0);
	close(fd);
	zi_loop_remove(&source);
}
#endif

/* ---- posts and stopping ---------------------------------------------------------------------- */

struct lettered_post {
	struct zi_post post;
	char letter;
};

static void on_post(struct zi_post *post)
{
	note(container_of(post, struct lettered_post, post)->letter);
}

Test(loop, stop_before_run_ends_after_one_turn)
{
	struct lettered_post a = { .letter = 'a' };

	zi_loop_post(loop, &a.post, on_post);
	zi_loop_stop(loop);
	run();
	cr_assert_str_eq(happened, "a", "the turn was made");
}

Test(loop, posts_run_in_order_across_batches)
{
	static struct lettered_post posts[200];
	struct zi_post last;

	for (int i = 0; i < 200; i++) {
		posts[i].letter = (char)('a' + i % 26);
		zi_loop_post(loop, &posts[i].post, on_post);
	}
	zi_loop_post(loop, &last, on_stop_post);
	run();
	cr_assert_eq(strlen(happened), 200);
	for (int i = 0; i < 200; i++)
		cr_assert_eq(happened[i], 'a' + i % 26, "post %d", i);
}

static void on_freed_post(struct zi_post *post)
{
	free(post);
	note('f');
	zi_loop_stop(loop);
}

Test(loop, post_may_be_freed_by_its_run)
{
	struct zi_post *post = malloc(sizeof(*post));

	zi_loop_post(loop, post, on_freed_post);
	run();
	cr_assert_str_eq(happened, "f");
}

static unsigned again_count;

static void on_again_post(struct zi_post *post)
{
	if (++again_count < 1000)
		zi_loop_post(loop, post, on_again_post);
}

Test(loop, post_that_posts_itself_does_not_starve_descriptors)
{
	struct zi_source source = { 0 };
	struct zi_post post;

	cr_assert_eq(zi_loop_add(loop, &source, eventfd(1, 0), EPOLLIN, on_ready_stop), 0);
	zi_loop_post(loop, &post, on_again_post);
	run();
	cr_assert_str_eq(happened, "s");
	cr_assert_lt(again_count, 10, "the source waited for %u turns", again_count);
	while (again_count < 1000) { /* Drain, for teardown. */
		zi_loop_stop(loop);
		run();
	}
}

/* The loop has nothing else to do, so it is asleep, or falling asleep, at nearly every post. */
Test(loop, post_from_another_thread_wakes_a_sleeping_loop)
{
	struct zi_thread thread = { 0 };
	struct zi_post post;

	cr_assert_eq(zi_thread_start(&thread, "loop", run_thread, NULL), 0);
	for (int i = 0; i < 5000; i++) {
		zi_loop_post(loop, &post, on_answer_post);
		sem_wait(&answered);
	}
	cr_assert_not(zi_loop_is_owner(loop), "the other thread runs it");
	zi_loop_stop(loop);
	cr_assert_eq(zi_thread_join(&thread), 0);
	cr_assert(zi_loop_is_owner(loop));
}

Test(loop, stop_from_another_thread_wakes_a_sleeping_loop)
{
	for (int i = 0; i < 500; i++) {
		struct zi_thread thread = { 0 };

		cr_assert_eq(zi_thread_start(&thread, "loop", run_thread, NULL), 0);
		zi_loop_stop(loop);
		cr_assert_eq(zi_thread_join(&thread), 0);
	}
}

enum { PRODUCERS_COUNT = 3, PRODUCED_COUNT = 2000 };

struct produced_post {
	struct zi_post post;
	int producer;
	int number;
};

static struct produced_post produced[PRODUCERS_COUNT][PRODUCED_COUNT];
static int last_numbers[PRODUCERS_COUNT];
static int produced_count;

static void on_produced_post(struct zi_post *post)
{
	struct produced_post *item = container_of(post, struct produced_post, post);

	cr_assert_eq(item->number, ++last_numbers[item->producer], "out of order or twice");
	if (++produced_count == PRODUCERS_COUNT * PRODUCED_COUNT)
		zi_loop_stop(loop);
}

static int produce(void *arg)
{
	int producer = (int)(intptr_t)arg;

	for (int i = 0; i < PRODUCED_COUNT; i++) {
		produced[producer][i].producer = producer;
		produced[producer][i].number = i + 1;
		zi_loop_post(loop, &produced[producer][i].post, on_produced_post);
	}
	return 0;
}

Test(loop, posts_of_several_threads_run_once_and_in_each_ones_order)
{
	struct zi_thread threads[PRODUCERS_COUNT] = { 0 };

	for (intptr_t i = 0; i < PRODUCERS_COUNT; i++)
		cr_assert_eq(zi_thread_start(&threads[i], "producer", produce, (void *)i), 0);
	run();
	for (int i = 0; i < PRODUCERS_COUNT; i++)
		cr_assert_eq(zi_thread_join(&threads[i]), 0);
	cr_assert_eq(produced_count, PRODUCERS_COUNT * PRODUCED_COUNT);
}

/* ---- timers ---------------------------------------------------------------------------------- */

Test(loop, timers_fire_by_deadline_and_equal_ones_in_the_order_of_arming)
{
	struct lettered_timer a = { .letter = 'a' }, b = { .letter = 'b' }, c = { .letter = 'c' };
	struct lettered_timer d = { .letter = 'd' };
	struct zi_timer last = { 0 }, never = { 0 };
	uint64_t now_ns = zi_clock_now_ns();

	zi_loop_arm(loop, &never, ZI_DEADLINE_NEVER, on_stop_timer);
	zi_loop_arm(loop, &last, now_ns + 3 * ZI_NS_PER_MS, on_stop_timer);
	zi_loop_arm(loop, &c.timer, now_ns + 2 * ZI_NS_PER_MS, on_timer);
	zi_loop_arm(loop, &a.timer, now_ns - 1, on_timer);
	zi_loop_arm(loop, &d.timer, now_ns + 2 * ZI_NS_PER_MS, on_timer);
	zi_loop_arm(loop, &b.timer, now_ns, on_timer);
	run();
	cr_assert_str_eq(happened, "abcd");
	cr_assert_geq(zi_clock_now_ns(), now_ns + 3 * ZI_NS_PER_MS, "not before the deadline");
	cr_assert_eq(never.loop, loop, "still armed");
	zi_loop_disarm(&never);
}

Test(loop, armed_timer_moves_when_it_is_armed_again)
{
	struct lettered_timer a = { .letter = 'a' }, b = { .letter = 'b' };
	struct zi_timer last = { 0 };
	uint64_t now_ns = zi_clock_now_ns();

	zi_loop_arm(loop, &a.timer, now_ns - 2, on_timer);
	zi_loop_arm(loop, &b.timer, now_ns - 1, on_timer);
	zi_loop_arm(loop, &a.timer, now_ns, on_timer);
	zi_loop_arm(loop, &last, now_ns, on_stop_timer);
	run();
	cr_assert_str_eq(happened, "ba");
}

static struct lettered_timer victim = { .letter = 'v' };

static void on_disarming_timer(struct zi_timer *timer)
{
	(void)timer;
	zi_loop_disarm(&victim.timer);
	note('d');
}

Test(loop, timer_disarmed_by_another_due_timer_does_not_fire)
{
	struct zi_timer killer = { 0 }, last = { 0 };

	zi_loop_arm(loop, &killer, 1, on_disarming_timer);
	zi_loop_arm(loop, &victim.timer, 2, on_timer);
	zi_loop_arm(loop, &last, 3, on_stop_timer);
	run();
	cr_assert_str_eq(happened, "d");
	zi_loop_disarm(&victim.timer); /* Not armed: nothing to do. */
}

static void on_eternal_timer(struct zi_timer *timer)
{
	again_count++;
	zi_loop_arm(loop, timer, 1, on_eternal_timer);
}

Test(loop, timer_that_is_always_due_does_not_starve_descriptors)
{
	struct zi_source source = { 0 };
	struct zi_timer timer = { 0 };

	cr_assert_eq(zi_loop_add(loop, &source, eventfd(1, 0), EPOLLIN, on_ready_stop), 0);
	zi_loop_arm(loop, &timer, 1, on_eternal_timer);
	run();
	cr_assert_str_eq(happened, "s");
	cr_assert_leq(again_count, 128);
	zi_loop_disarm(&timer);
}

static void on_alarm(int number)
{
	(void)number;
	again_count++;
}

Test(loop, signals_that_interrupt_the_wait_are_no_error)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval interval = { { 0, 1000 }, { 0, 1000 } };
	struct zi_timer last = { 0 };

	cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
	cr_assert_eq(setitimer(ITIMER_REAL, &interval, NULL), 0);
	zi_loop_arm(loop, &last, zi_clock_deadline_ns(50 * ZI_NS_PER_MS), on_stop_timer);
	run();
	cr_assert_gt(again_count, 0, "no signal came");
	interval = (struct itimerval){ 0 };
	setitimer(ITIMER_REAL, &interval, NULL);
}
