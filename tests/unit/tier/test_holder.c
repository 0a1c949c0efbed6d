/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: memory a process received stays charged until that process is gone, and not longer;
 * refusals name the process. Method: forked children that live until they are killed; the loop
 * turns until their pidfd was seen.
 */
#include <stdio.h>

#include "common/base/clock.h"
#include "daemon/tier/holder.h"
#include "tests/unit/tier/fixture.h"

struct held {
	struct fixture fixture;
	struct zi_loop *loop;
	struct zi_post stop;
	struct tier_holders *holders;
	struct tier_segment *segment;
};

static void held_init(struct held *held)
{
	fixture_init(&held->fixture, MIB);
	held->segment = NULL;
	cr_assert_eq(zi_loop_new(&held->loop), 0);
	cr_assert_eq(tier_holders_new(held->loop, &held->holders), 0);
	tier_holders_watch(held->holders, &held->fixture.tier);
	cr_assert_eq(tier_segment_new(&held->fixture.tier, &held->fixture.job, "a", MIB / 2,
	                              TIER_PAGES_HUGE, NULL, &held->segment),
	             0);
}

static void held_deinit(struct held *held)
{
	held->segment = tier_segment_unref(held->segment);
	held->holders = tier_holders_free(held->holders);
	held->loop = zi_loop_free(held->loop);
	fixture_deinit(&held->fixture);
}

static pid_t child_new(int *ret_pidfd)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0)
		for (;;)
			(void)pause();
	cr_assert_eq(zi_pidfd_open(pid, ret_pidfd), 0);
	return pid;
}

static void child_end(pid_t pid)
{
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static void stop_loop(struct zi_post *post)
{
	zi_loop_stop(container_of(post, struct held, stop)->loop);
}

static void turn_until_count(struct held *held, uint32_t count)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(20 * ZI_NS_PER_S);

	while (tier_holders_count(held->holders) != count) {
		zi_loop_post(held->loop, &held->stop, stop_loop);
		cr_assert_eq(zi_loop_run(held->loop), 0);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns);
	}
}

Test(holder, keeps_a_segment_until_its_process_is_gone)
{
	struct held held;
	int pidfd = -1;
	pid_t pid = child_new(&pidfd);

	held_init(&held);
	cr_assert_eq(tier_holders_add(held.holders, pid, pidfd, held.segment), 0);
	cr_assert_eq(tier_holders_add(held.holders, pid, pidfd, held.segment), 0, "twice is once");
	cr_assert_eq(held.segment->ref_count, 2);
	cr_assert_eq(held.segment->holder_count, 1);
	held.segment = tier_segment_unref(held.segment);
	cr_assert_eq(held.fixture.tier.used_bytes, MIB / 2, "the process may still see it");
	child_end(pid);
	turn_until_count(&held, 0);
	cr_assert_eq(held.fixture.tier.used_bytes, 0);
	(void)zi_close(pidfd);
	held_deinit(&held);
}

Test(holder, is_named_when_memory_is_refused)
{
	struct held held;
	struct tier_charge charge = { 0 };
	char number[16];
	int pidfd = -1;
	pid_t pid = child_new(&pidfd);

	held_init(&held);
	(void)snprintf(number, sizeof(number), "pid %d", (int)pid);
	cr_assert_eq(tier_holders_add(held.holders, pid, pidfd, held.segment), 0);
	cr_assert_eq(tier_charge_take(&charge, &held.fixture.tier, &held.fixture.job, MIB,
	                              &held.fixture.text),
	             TIER_E_FULL);
	cr_assert_null(strstr(held.fixture.text.chars, number), "its owner has not let go of it");
	held.segment = tier_segment_unref(held.segment);
	cr_assert_eq(tier_charge_take(&charge, &held.fixture.tier, &held.fixture.job, MIB,
	                              &held.fixture.text),
	             TIER_E_FULL);
	says(&held.fixture, number);
	says(&held.fixture, "512 KiB are still held");
	child_end(pid);
	turn_until_count(&held, 0);
	cr_assert_eq(tier_charge_take(&charge, &held.fixture.tier, &held.fixture.job, MIB, NULL),
	             0);
	tier_charge_return(&charge);
	(void)zi_close(pidfd);
	held_deinit(&held);
}

Test(holder, two_processes_hold_it_until_both_are_gone)
{
	struct held held;
	int pidfds[2];
	pid_t pids[2] = { child_new(&pidfds[0]), child_new(&pidfds[1]) };

	held_init(&held);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tier_holders_add(held.holders, pids[i], pidfds[i], held.segment), 0);
	held.segment = tier_segment_unref(held.segment);
	child_end(pids[0]);
	turn_until_count(&held, 1);
	cr_assert_eq(held.fixture.tier.used_bytes, MIB / 2);
	child_end(pids[1]);
	turn_until_count(&held, 0);
	cr_assert_eq(held.fixture.tier.used_bytes, 0);
	for (int i = 0; i < 2; i++)
		(void)zi_close(pidfds[i]);
	held_deinit(&held);
}

Test(holder, a_pid_used_again_is_another_process)
{
	struct held held;
	struct tier_segment *second = NULL;
	int pidfds[2];
	pid_t pids[2] = { child_new(&pidfds[0]), child_new(&pidfds[1]) };

	held_init(&held);
	cr_assert_eq(tier_holders_add(held.holders, pids[0], pidfds[0], held.segment), 0);
	child_end(pids[0]);
	/* The loop has not turned; the second process comes with the first one's number. */
	cr_assert_eq(tier_segment_new(&held.fixture.tier, &held.fixture.job, "b", 4096,
	                              TIER_PAGES_HUGE, NULL, &second),
	             0);
	cr_assert_eq(tier_holders_add(held.holders, pids[0], pidfds[1], second), 0);
	cr_assert_eq(held.segment->holder_count, 0);
	cr_assert_eq(second->holder_count, 1);
	child_end(pids[1]);
	turn_until_count(&held, 0);
	second = tier_segment_unref(second);
	for (int i = 0; i < 2; i++)
		(void)zi_close(pidfds[i]);
	held_deinit(&held);
}

Test(holder, with_a_bad_descriptor_is_refused_and_holds_nothing)
{
	struct held held;

	held_init(&held);
	cr_assert_eq(tier_holders_add(held.holders, 1, -1, held.segment), -EBADF);
	cr_assert_eq(held.segment->ref_count, 1);
	cr_assert_eq(tier_holders_count(held.holders), 0);
	held_deinit(&held);
}
