/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the chunks of a rank are charged before they are made, and stay charged until nobody can
 * have them any more: not when the session ends, but when the process has gone and their owner has
 * released them. Method: a process that the test ends, and a fake owner of chunks that answers when
 * the test wants.
 */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/loop.h"
#include "daemon/tier/arena.h"
#include "tests/fake/fake_chunks.h"
#include "tests/unit/tier/fixture.h"

#define CHUNK (2 * MIB)

static struct fixture fixture;
static struct zi_loop *loop;
static struct tier_arenas *arenas;
static struct tier *tier;
static struct fake_chunks owner;
static struct tier_arena *arena;
static pid_t pid;
static int pidfd;
static uint32_t made_count;
static int made_error;
static struct zi_text made_text;

static void made(void *arg, int error, const struct zi_text *text)
{
	cr_assert_eq(arg, &fixture);
	made_count++;
	made_error = error;
	if (error) {
		made_text = *text;
		arena = NULL;
	}
}

static void turn(void)
{
	zi_loop_stop(loop);
	cr_assert_eq(zi_loop_run(loop), 0);
}

static void start_process(void)
{
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		for (;;)
			(void)pause();
	}
	cr_assert_eq(zi_pidfd_open(pid, &pidfd), 0);
}

/* It has gone, and the loop has seen it. */
static void end_process(void)
{
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	pid = 0;
	turn();
}

static void arena_open(void)
{
	static const struct dev_gpu_facts facts = {
		.uuid = "GPU-0a", .bytes = 1024 * MIB, .granularity_bytes = CHUNK, .node = -1
	};

	fixture_init(&fixture, MIB);
	cr_assert_eq(zi_loop_new(&loop), 0);
	cr_assert_eq(tier_arenas_new(loop, &arenas), 0);
	owner = (struct fake_chunks){ .life = 1 };
	cr_assert_eq(
		tier_arenas_add(arenas, &facts, 924 * MIB, &fake_chunks_ops, &owner, &owner.gpu),
		0);
	tier = tier_arenas_tier(arenas, 0);
	arena = NULL;
	made_count = 0;
	start_process();
}

/* Everything has come back. */
static void arena_close(void)
{
	cr_expect_eq(fixture.uid.used_bytes[TIER_GPU], 0);
	cr_expect_eq(fixture.uid.used_fds, 0);
	cr_expect_eq(tier->used_bytes, 0);
	if (pid)
		end_process();
	pidfd = zi_close(pidfd);
	arenas = tier_arenas_free(arenas);
	loop = zi_loop_free(loop);
	fixture_deinit(&fixture);
}

TestSuite(arena, .init = arena_open, .fini = arena_close);

static int ask(uint32_t count, uint64_t chunk_bytes)
{
	return tier_arena_new(arenas,
	                      &(struct tier_arena_options){ .tier = tier,
	                                                    .account = &fixture.job,
	                                                    .chunk_bytes = chunk_bytes,
	                                                    .chunk_count = count,
	                                                    .pidfd = pidfd,
	                                                    .pid = pid,
	                                                    .made = made,
	                                                    .arg = &fixture },
	                      &fixture.text, &arena);
}

static void make(uint32_t count)
{
	cr_assert_eq(ask(count, CHUNK), 0, "%s", fixture.text.chars);
	fake_chunks_answer(&owner, 0);
	cr_assert_eq(made_count, 1);
	cr_assert_eq(made_error, 0);
}

static uint32_t pass(uint32_t max)
{
	int fds[16];
	uint32_t count = tier_arena_next(arena, max, fds);

	for (uint32_t i = 0; i < count; i++)
		cr_assert_geq(fcntl(fds[i], F_GETFD), 0);
	tier_arena_pass(arena, count);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(fcntl(fds[i], F_GETFD), -1, "passed on, and closed");
	return count;
}

Test(arena, a_gpu_is_a_tier_without_its_reserve)
{
	cr_expect_str_eq(tier->name, "gpu:GPU-0a");
	cr_expect_eq(tier->kind, TIER_GPU);
	cr_expect_eq(tier->capacity_bytes, 100 * MIB);
	cr_expect_eq(tier_arenas_find(arenas, "gpu-0A"), tier);
	cr_expect_null(tier_arenas_find(arenas, "GPU-0b"));
	cr_expect_eq(tier_arenas_count(arenas), 1);
}

Test(arena, is_charged_before_it_is_made_and_gives_its_descriptors_in_order)
{
	cr_assert_eq(ask(10, CHUNK), 0);
	cr_expect_eq(tier->used_bytes, 10 * CHUNK);
	cr_expect_eq(fixture.job.used_bytes[TIER_GPU], 10 * CHUNK);
	cr_expect_eq(fixture.uid.used_fds, 11, "one for the process");
	cr_expect_not(tier_arena_is_made(arena));
	cr_expect_eq(made_count, 0);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(made_count, 1);
	cr_expect(tier_arena_is_made(arena));
	cr_expect_eq(pass(8), 8);
	cr_expect_eq(fixture.uid.used_fds, 3);
	cr_expect_eq(tier_arena_passed_count(arena), 8);
	cr_expect_eq(pass(8), 2);
	cr_expect_eq(pass(8), 0);
	cr_expect_eq(fixture.uid.used_fds, 1);
	arena = tier_arena_leave(arena);
	end_process();
	cr_expect_eq(tier->used_bytes, 10 * CHUNK, "not yet released");
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(owner.held_count, 0);
}

Test(arena, stays_until_the_process_has_gone_whenever_its_session_ends)
{
	make(4);
	cr_assert_eq(pass(1), 1);
	arena = tier_arena_leave(arena);
	turn();
	cr_expect_null(owner.taken);
	cr_expect_eq(tier->used_bytes, 4 * CHUNK);
	cr_expect_eq(fixture.uid.used_fds, 1, "the others are closed");
	cr_expect_eq(tier_arenas_lingering_bytes(arenas, tier, NULL), 4 * CHUNK);
	cr_expect_eq(tier_arenas_arena_count(arenas, tier), 1);
	end_process();
	cr_assert(owner.taken);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(tier_arenas_arena_count(arenas, tier), 0);
}

Test(arena, waits_for_its_owner_where_the_process_has_gone_first)
{
	make(4);
	cr_assert_eq(pass(4), 4);
	end_process();
	cr_expect_null(owner.taken);
	arena = tier_arena_leave(arena);
	fake_chunks_answer(&owner, 0);
}

Test(arena, of_which_nothing_was_passed_on_is_released_with_its_session)
{
	make(4);
	arena = tier_arena_leave(arena);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(owner.held_count, 0);
}

Test(arena, is_released_when_it_is_made_after_its_session_ended)
{
	cr_assert_eq(ask(4, CHUNK), 0);
	arena = tier_arena_leave(arena);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(made_count, 0);
	cr_expect_eq(tier->used_bytes, 4 * CHUNK);
	fake_chunks_answer(&owner, 0);
	cr_expect_eq(owner.held_count, 0);
}

Test(arena, that_waits_for_another_ends_at_once_with_its_session)
{
	struct tier_arena *first;

	cr_assert_eq(ask(4, CHUNK), 0);
	first = arena;
	cr_assert_eq(ask(6, CHUNK), 0);
	arena = tier_arena_leave(arena);
	cr_expect_eq(tier->used_bytes, 4 * CHUNK);
	fake_chunks_answer(&owner, 0);
	cr_expect_null(owner.taken);
	first = tier_arena_leave(first);
	fake_chunks_answer(&owner, 0);
}

Test(arena, that_cannot_be_made_is_no_more)
{
	cr_assert_eq(ask(4, CHUNK), 0);
	fake_chunks_answer(&owner, -ENOMEM);
	cr_expect_eq(made_error, -ENOMEM);
	cr_expect_str_eq(made_text.chars, "the fake owner has no memory");
	cr_expect_eq(tier->used_bytes, 0);
	owner.create_result = -EAGAIN;
	cr_assert_eq(ask(4, CHUNK), -EAGAIN);
	says(&fixture, "the fake owner refuses");
	cr_expect_null(arena);
	owner.create_result = 0;
	cr_assert_eq(ask(4, CHUNK), 0);
	arena = tier_arena_leave(arena);
	fake_chunks_answer(&owner, -ENOMEM);
	cr_expect_eq(made_count, 1, "nobody is there to hear it");
}

/* The GPU has the memory until the rank's process has gone. */
Test(arena, keeps_its_charge_when_the_owner_of_its_chunks_dies)
{
	make(4);
	cr_assert_eq(pass(2), 2);
	fake_chunks_die(&owner);
	cr_expect_eq(tier->used_bytes, 4 * CHUNK);
	cr_expect_eq(pass(2), 2, "they are there");
	arena = tier_arena_leave(arena);
	cr_expect_eq(tier->used_bytes, 4 * CHUNK);
	end_process();
	cr_expect_null(owner.taken, "the new owner does not have them");
	cr_expect_eq(tier->used_bytes, 0);
}

Test(arena, ends_when_the_owner_dies_while_it_makes_or_releases_chunks)
{
	cr_assert_eq(ask(4, CHUNK), 0);
	fake_chunks_die(&owner);
	cr_expect_eq(made_error, -EIO);
	cr_expect_eq(tier->used_bytes, 0);
	made_count = 0;
	make(4);
	arena = tier_arena_leave(arena);
	cr_assert(owner.taken);
	fake_chunks_die(&owner);
	cr_expect_eq(tier->used_bytes, 0);
}

Test(arena, beyond_the_tier_is_refused_with_figures)
{
	cr_assert_eq(ask(51, CHUNK), -ENOSPC);
	says(&fixture, "102 MiB asked for on gpu:GPU-0a, 100 MiB free of 100 MiB");
	says(&fixture, "gpu.reserve");
	cr_assert_eq(ask(1024, UINT64_MAX / CHUNK * CHUNK), -ENOSPC);
	cr_expect_eq(fixture.uid.used_fds, 0);
	make(50);
	cr_assert_eq(pass(1), 1);
	arena = tier_arena_leave(arena);
	cr_assert_eq(ask(1, CHUNK), -ENOSPC);
	says(&fixture, "100 MiB are still held");
	end_process();
	fake_chunks_answer(&owner, 0);
}

Test(arena, beyond_a_quota_is_refused_with_figures)
{
	fixture.uid.limit_bytes[TIER_GPU] = 6 * MIB;
	cr_assert_eq(ask(4, CHUNK), -EDQUOT);
	says(&fixture, "8 MiB asked for");
	says(&fixture, "uid 1000 holds 0 B of the 6 MiB");
	says(&fixture, "quota.uid_gpu");
	fixture.uid.limit_fds = 3;
	cr_assert_eq(ask(3, CHUNK), -EDQUOT);
	says(&fixture, "limits.descriptors_per_uid");
	cr_expect_eq(tier->used_bytes, 0);
	make(2);
	arena = tier_arena_leave(arena);
	fake_chunks_answer(&owner, 0);
}

Test(arena, of_a_process_that_cannot_be_watched_is_refused)
{
	int right_fd = pidfd;

	pidfd = -1;
	cr_assert_eq(ask(2, CHUNK), -EBADF);
	says(&fixture, "watching process");
	pidfd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(ask(2, CHUNK), -EPERM, "epoll takes no such file");
	pidfd = zi_close(pidfd);
	pidfd = right_fd;
	cr_expect_eq(tier->used_bytes, 0);
}

/* The daemon ends, and ranks live on. */
Test(arena, is_nobodys_charge_after_the_end_of_the_daemon)
{
	make(4);
	cr_assert_eq(pass(2), 2);
	arena = tier_arena_leave(arena);
	dev_gpu_close(owner.gpu);
	arenas = tier_arenas_free(arenas);
	cr_expect_eq(fixture.uid.used_bytes[TIER_GPU], 0);
	cr_expect_eq(fixture.uid.used_fds, 0);
	cr_assert_eq(tier_arenas_new(loop, &arenas), 0);
	tier = &fixture.tier; /* For arena_close(). */
}

static uint32_t ready_count;

static void ready(void *arg)
{
	cr_assert_eq(arg, &ready_count);
	ready_count++;
}

Test(arena, says_when_all_gpus_are_known_and_why_one_is_missing)
{
	const struct zi_text text = { "gpu.enable is no" };

	cr_expect(tier_arenas_is_ready(arenas));
	tier_arenas_watch(arenas, ready, &ready_count);
	tier_arenas_set_ready(arenas, false);
	cr_expect_not(tier_arenas_is_ready(arenas));
	tier_arenas_set_ready(arenas, true);
	tier_arenas_set_ready(arenas, true);
	cr_expect_eq(ready_count, 1);
	tier_arenas_watch(arenas, NULL, NULL);
	tier_arenas_set_ready(arenas, false);
	tier_arenas_set_ready(arenas, true);
	cr_expect_eq(ready_count, 1);
	cr_expect_str_empty(tier_arenas_explanation(arenas));
	tier_arenas_explain(arenas, &text);
	cr_expect_str_eq(tier_arenas_explanation(arenas), "gpu.enable is no");
}

Test(arena, tiers_are_limited)
{
	struct dev_gpu_facts facts = { .bytes = MIB, .granularity_bytes = CHUNK };
	struct dev_gpu *gpu;

	for (uint32_t i = 1; i < TIER_GPUS_MAX; i++) {
		(void)snprintf(facts.uuid, sizeof(facts.uuid), "GPU-%u", i);
		cr_assert_eq(
			tier_arenas_add(arenas, &facts, 2 * MIB, &fake_chunks_ops, &owner, &gpu),
			0);
	}
	cr_expect_eq(tier_arenas_tier(arenas, 1)->capacity_bytes, 0, "all of it is reserved");
	(void)snprintf(facts.uuid, sizeof(facts.uuid), "GPU-more");
	cr_expect_eq(tier_arenas_add(arenas, &facts, 0, &fake_chunks_ops, &owner, &gpu), -ENOSPC);
}

/* It may hold what it was making. */
Test(arena, that_failed_is_charged_until_the_owner_that_is_ending_has_gone)
{
	cr_assert_eq(ask(4, CHUNK), 0);
	dev_gpu_set_ending(owner.gpu, 7, 1);
	fake_chunks_die(&owner);
	cr_expect_eq(made_error, -EIO, "the rank is told at once");
	cr_expect_eq(tier->used_bytes, 4 * CHUNK);
	cr_expect_eq(fixture.uid.used_fds, 1);
	cr_assert_eq(ask(47, CHUNK), -ENOSPC);
	says(&fixture, "zinf-gpu (pid 7) was killed and has not ended");
	dev_gpu_set_gone(owner.gpu);
	cr_expect_eq(tier->used_bytes, 0);
}

Test(arena, troubles_of_gpus_without_a_tier_are_kept_by_number)
{
	cr_expect_str_empty(tier_arenas_explanation(arenas));
	zi_text_set(&tier_arenas_trouble(arenas, 3)->text, "GPU 3 is broken");
	zi_text_set(&tier_arenas_trouble(arenas, 5)->text, "GPU 5 is broken");
	cr_expect_str_eq(tier_arenas_explanation(arenas), "GPU 3 is broken");
	tier_arenas_explain(arenas, &(struct zi_text){ "gpu.enable is no" });
	cr_expect_str_eq(tier_arenas_explanation(arenas), "gpu.enable is no");
}
