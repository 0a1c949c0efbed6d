/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a rank says of collectives, on the socket or on the boards, costs its own job's groups
 * at most: the daemon lives, answers, and other jobs train on. Who waits for whom is shown by zctl
 * from the same boards. Method: two raw clients are a job of two ranks; see hostile.h for what must
 * hold afterwards.
 */
#include "tests/system/hostile.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/fd.h"
#include "common/wire/board.h"
#include "common/wire/region.h"
#include "common/wire/verdict.h"

static struct raw peer;
static struct zi_coll_opened opened;
static const struct zi_verdicts *verdicts;
static struct zi_board_member *board;
static char words[65536];

static void take_opened(struct raw *who, bool is_mapped)
{
	int fds[8];

	cr_assert_eq(raw_receive_fds(who, fds), ZI_MESSAGE_COLL_OPENED, "%s",
	             who->reply.error.text.chars);
	memcpy(&opened, who->reply.bytes, sizeof(opened));
	if (is_mapped) {
		void *base;

		cr_assert_eq(zi_region_map(fds[0], opened.verdict_bytes, false, &base), 0);
		verdicts = base;
		cr_assert_eq(zi_region_map(fds[2], opened.board_bytes, true, &base), 0);
		board = base;
	}
	for (uint32_t i = 0; i < 3; i++)
		(void)zi_close(fds[i]);
}

static int ask(struct raw *who, void *message, enum zi_message_type type, size_t bytes)
{
	zi_message_init(message, type, (uint32_t)bytes, ++who->sequence);
	return raw_send(who, message, bytes, NULL, 0);
}

static void send_open(struct raw *who, uint64_t arena_bytes)
{
	struct zi_coll_open message = { .arena_bytes = arena_bytes };

	cr_assert_eq(ask(who, &message, ZI_MESSAGE_COLL_OPEN, sizeof(message)), 0);
}

static void send_group(struct raw *who, uint64_t mask)
{
	struct zi_coll_group message = { .members = { mask } };

	cr_assert_eq(ask(who, &message, ZI_MESSAGE_COLL_GROUP, sizeof(message)), 0);
}

static void expect_refused(struct raw *who, int error, const char *word)
{
	cr_assert_eq(raw_receive(who), ZI_MESSAGE_ERROR);
	cr_assert_eq(who->reply.error.error, error, "%d: %s", who->reply.error.error,
	             who->reply.error.text.chars);
	system_expect_text(who->reply.error.text.chars, word);
}

static void fail(struct raw *who, uint32_t group, uint32_t sequence, int error)
{
	struct zi_coll_fail message = { .group = group,
		                        .sequence = sequence,
		                        .error = error,
		                        .culprit = 12345,
		                        .timeout_ms = 100 };

	cr_assert_eq(ask(who, &message, ZI_MESSAGE_COLL_FAIL, sizeof(message)), 0);
}

static void free_group(struct raw *who, uint32_t group)
{
	struct zi_coll_group_free message = { .group = group };

	cr_assert_eq(ask(who, &message, ZI_MESSAGE_COLL_GROUP_FREE, sizeof(message)), 0);
}

static void make_group(uint64_t mask, uint32_t number)
{
	struct raw *const both[] = { &raw, &peer };

	send_group(&raw, mask);
	send_group(&peer, mask);
	for (uint32_t i = 0; i < 2; i++) {
		const struct zi_coll_grouped *grouped = (const void *)both[i]->reply.bytes;

		cr_assert_eq(raw_receive(both[i]), ZI_MESSAGE_COLL_GROUPED);
		cr_assert_eq(grouped->group, number);
	}
}

static void attack_open(void)
{
	hostile_open();
	cr_assert_eq(raw_join(&raw, harness.socket_path, "attacker", 0, 2), 0);
	cr_assert_eq(raw_join(&peer, harness.socket_path, "attacker", 1, 2), 0);
	send_open(&raw, 1 << 20);
	send_open(&peer, 1 << 20);
	take_opened(&raw, true);
	take_opened(&peer, false);
}

static void attack_close(void)
{
	(void)munmap((void *)verdicts, opened.verdict_bytes);
	(void)munmap(board, opened.board_bytes);
	raw_close(&peer);
	hostile_close();
}

TestSuite(hostile_coll, .init = attack_open, .fini = attack_close, .timeout = 120);

Test(hostile_coll, requests_that_make_no_sense_are_refused_and_break_nothing)
{
	send_open(&raw, 1);
	expect_refused(&raw, -EALREADY, "opened before");
	send_group(&raw, 0);
	expect_refused(&raw, -EINVAL, "no ranks");
	send_group(&raw, 1ull << 63);
	expect_refused(&raw, -EINVAL, "rank 63: the job has 2 ranks");
	/* The n-th wish of each is one of all: the other hears of both, and they are even. */
	for (uint32_t i = 0; i < 2; i++) {
		send_group(&peer, 0x2);
		expect_refused(&peer, -EINVAL, "asks for a group with rank 63");
	}
	fail(&raw, 1, 1, -ETIMEDOUT);
	expect_refused(&raw, -EPERM, "there is no group 1");
	fail(&raw, UINT32_MAX, 1, -ETIMEDOUT);
	expect_refused(&raw, -EPERM, "there is no group");
	fail(&raw, 0, 1, 0);
	expect_refused(&raw, -EINVAL, "is not broken");
	fail(&raw, 0, 1, INT32_MIN);
	expect_refused(&raw, -EINVAL, "a negative errno is expected");
	free_group(&raw, 0);
	expect_refused(&raw, -EINVAL, "ends with them");
	free_group(&raw, 63);
	expect_refused(&raw, -EPERM, "there is no group 63");
	make_group(0x2, 1);
	fail(&raw, 1, 1, -ETIMEDOUT);
	expect_refused(&raw, -EPERM, "rank 0 is no member of group 1");
	free_group(&peer, 1);
	cr_assert_eq(raw_receive(&peer), ZI_MESSAGE_DONE);
	fail(&peer, 1, 1, -ETIMEDOUT);
	expect_refused(&peer, -EPERM, "there is no group 1");
	cr_assert_eq(zi_line_load(&verdicts->groups[0]), 0);
	cr_assert_eq(zi_line_load(&verdicts->groups[1]), 0);
}

Test(hostile_coll, two_ranks_that_disagree_are_both_told)
{
	send_group(&raw, 0x1);
	send_group(&peer, 0x3);
	expect_refused(&raw, -EINVAL, "all ranks must name the same members");
	expect_refused(&peer, -EINVAL, "all ranks must name the same members");
}

Test(hostile_coll, more_groups_than_there_may_be_are_refused_with_the_figure)
{
	for (uint32_t i = 1; i < ZI_GROUPS_MAX; i++)
		make_group(0x3, i);
	send_group(&raw, 0x3);
	send_group(&peer, 0x3);
	expect_refused(&raw, -ENOSPC, "64 groups");
	expect_refused(&peer, -ENOSPC, "64 groups");
}

/* Ranks as they were built with another layout of boards: refused by name and number, while the
 * group that others have goes on. */
Test(hostile_coll, a_client_of_another_version_is_refused_with_both_and_harms_nobody)
{
	static struct raw old;
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR,
		                  .features = ZI_FEATURE_COLLECTIVES,
		                  .program = "libzinf 0.0.1" };
	struct zi_attach attach;
	char message[336] = { 0 }; /* COLL_OPEN, as it was */

	cr_assert_eq(raw_connect(&old, harness.socket_path), 0);
	cr_assert_eq(ask(&old, &hello, ZI_MESSAGE_HELLO, sizeof(hello)), 0);
	cr_assert_eq(raw_receive(&old), ZI_MESSAGE_HELLO);
	raw_attach_message(&attach, "ancient", "raw", 0, 1);
	cr_assert_eq(raw_attach(&old, &attach), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(ask(&old, message, ZI_MESSAGE_COLL_OPEN, sizeof(message)), 0);
		expect_refused(&old, -EPROTONOSUPPORT, "makes collectives by version 1, zinfd");
	}
	cr_assert_eq(raw_call(&old, ZI_OP_NOP, 0), 0);
	raw_close(&old);
	make_group(0x3, 1);
	cr_assert_eq(zi_line_load(&verdicts->groups[0]), 0);
	cr_assert_eq(zi_line_load(&verdicts->groups[1]), 0);
}

/* A client of a later version that is asked to tell: who waits for it hears of it. */
Test(hostile_coll, what_a_client_says_that_it_refuses_is_told_cleaned_and_counts_as_its_wish)
{
	struct zi_coll_group none = { .error = -EDEADLK, .reason = "no \x1b]0;group\x07 at all" };
	struct zi_coll_group odd = { .error = 7 };
	struct zi_coll_open late = { .error = -EINVAL, .reason = "again" };

	send_group(&raw, 0x3);
	cr_assert_eq(ask(&peer, &odd, ZI_MESSAGE_COLL_GROUP, sizeof(odd)), 0);
	expect_refused(&peer, -EINVAL, "error 7, where 0 or a negative errno is expected");
	cr_assert_eq(ask(&peer, &none, ZI_MESSAGE_COLL_GROUP, sizeof(none)), 0);
	expect_refused(&raw, -EDEADLK, "rank 1 (pid");
	system_expect_text(raw.reply.error.text.chars, "no ?]0;group? at all");
	expect_refused(&peer, -EDEADLK, "coll_group: no ?]0;group? at all");
	/* Collectives that are open stay so. */
	cr_assert_eq(ask(&peer, &late, ZI_MESSAGE_COLL_OPEN, sizeof(late)), 0);
	expect_refused(&peer, -EALREADY, "opened before");
	make_group(0x3, 1);
	cr_assert_eq(zi_line_load(&verdicts->groups[0]), 0);
}

/* Bytes that differ each time; which ones does not matter. */
static void scribble(uint64_t seed)
{
	unsigned char *bytes = (unsigned char *)board;

	for (uint64_t i = 0; i < opened.board_bytes; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		bytes[i] = (unsigned char)(seed >> 56);
	}
}

Test(hostile_coll, garbage_on_a_board_is_looked_at_and_survived)
{
	const char *const question[] = { "--json", "jobs", "attacker", "--collectives", NULL };

	for (uint64_t i = 0; i < 20; i++) {
		json_t *json;

		scribble(i);
		cr_assert_eq(harness_zctl(harness.socket_path, question, words, sizeof(words)), 0,
		             "%s", words);
		json = json_loads(words, 0, NULL);
		cr_assert_not_null(json, "%s", words);
		json_decref(json);
	}
	fail(&peer, 0, board[1].posts[0].sequence & ~1u, -ETIMEDOUT);
	expect_refused(&peer, -ETIMEDOUT, "group 0");
	cr_assert_eq(zi_line_load(&verdicts->groups[0]), ETIMEDOUT);
}

Test(hostile_coll, a_board_without_pages_reads_as_zeros)
{
	void *base = board;

	/* It may write the memory, hence empty it too. */
	(void)madvise(base, opened.board_bytes, MADV_REMOVE);
	fail(&raw, 0, 1, -ETIMEDOUT);
	expect_refused(&raw, -ETIMEDOUT, "which it has not made");
}

Test(hostile_coll, who_hangs_up_breaks_its_groups_alone)
{
	make_group(0x1, 1);
	raw_close(&peer);
	cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_NOTICE); /* of the incarnation */
	cr_assert_eq(zi_line_load(&verdicts->groups[0]), EPIPE);
	cr_assert_eq(zi_line_load(&verdicts->groups[1]), 0);
	fail(&raw, 0, 0, 0);
	expect_refused(&raw, -EPIPE, "rank 1 (pid");
	send_group(&raw, 0x1);
	expect_refused(&raw, -EPIPE, "rank 1 (pid");
	free_group(&raw, 1);
	cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_DONE);
}

Test(hostile_coll, zctl_shows_who_waits_for_whom_and_what_broke)
{
	const char *const question[] = { "jobs", "attacker", "--collectives", NULL };
	const char *const detail[] = { "jobs", "attacker", NULL };
	const char *const unopened[] = { "jobs", "neighbour", "--collectives", NULL };
	const char *const nameless[] = { "jobs", "--collectives", NULL };

	board[0].posts[1].call = (struct zi_board_call){ .operation = ZI_COLL_ALL_REDUCE,
		                                         .dtype = ZI_DTYPE_F32,
		                                         .reduce_op = ZI_REDUCE_SUM,
		                                         .element_count = 4096 };
	board[0].posts[1].sequence = 1;
	board[0].sends[1] =
		(struct zi_board_send){ .sequence = 1, .dtype = ZI_DTYPE_F32, .element_count = 7 };
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t k = 0; k < 2; k++)
			board[i].takes[k].sequence = 1;
	cr_assert_eq(harness_zctl(harness.socket_path, question, words, sizeof(words)), 0, "%s",
	             words);
	system_expect_text(words, "job attacker: arenas of 2 MiB for each of 2 ranks, 1 groups");
	system_expect_text(words, "all_reduce (f32 x 4096, sum)");
	system_expect_text(words, "group 0: rank 0 waits in send (f32 x 7, to rank 1)");
	system_expect_text(words, "group 0: rank 1 waits in recv (? x 0, from rank 0)");
	fail(&raw, 0, 1, -ETIMEDOUT);
	expect_refused(&raw, -ETIMEDOUT, "rank 1 (pid");
	cr_assert_eq(harness_zctl(harness.socket_path, question, words, sizeof(words)), 0);
	system_expect_text(words, "ETIMEDOUT");
	system_expect_text(words, "group 0 is broken: all_reduce #1 of group 0 (f32 x 4096, sum): "
	                          "rank 1 (pid");
	cr_assert_eq(harness_zctl(harness.socket_path, detail, words, sizeof(words)), 0);
	system_expect_text(words, "collectives");
	cr_assert_eq(harness_zctl(harness.socket_path, unopened, words, sizeof(words)), 0);
	system_expect_text(words, "job neighbour has not opened collectives");
	cr_assert_eq(harness_zctl(harness.socket_path, nameless, words, sizeof(words)), 2);
	system_expect_text(words, "usage: zctl jobs [JOB [--collectives]]");
}
