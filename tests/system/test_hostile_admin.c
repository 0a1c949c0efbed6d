/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: questions of nonsense are answered in words and harm nobody; another uid can neither keep,
 * remove, read, drain nor measure what is not its own; there is an end of snapshots. Method: a raw
 * client, also as another uid; see hostile.h for what must hold afterwards.
 */
#include "tests/system/hostile.h"

#include <errno.h>
#include <unistd.h>

#define OTHER_UID 65534u
/* A store of 64 MiB, 4 MiB each. */
#define SNAPSHOTS_MAX 17u

TestSuite(hostile_admin, .init = hostile_open, .fini = hostile_close, .timeout = 120);

/* Return: the message that answers @bytes of a command; into raw.reply. */
static int ask(const char *command, size_t bytes)
{
	static uint32_t sequence = 10;
	struct zi_admin question = { .header = { ZI_CONTROL_MAGIC, ZI_MESSAGE_ADMIN, 0,
		                                 sizeof(question), sequence++ } };

	memcpy(question.command, command, bytes);
	cr_assert_eq(raw_send(&raw, &question, sizeof(question), NULL, 0), 0);
	return raw_receive(&raw);
}

static void greet(void)
{
	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(raw_hello(&raw), 0);
}

Test(hostile_admin, names_of_nonsense_are_refused_in_words)
{
	static const char *const commands[] = {
		"snapshot create ../neighbour",
		"snapshot create neighbour/a/b",
		"snapshot create neighbour/\n",
		"snapshot create neighbour/ keep=-1",
		"snapshot create neighbour keep=99999999999999999999",
		"snapshot rm neighbour",
		"snapshot rm neighbour/..",
		"snapshot rm /",
		"delete ../neighbour",
		"delete neighbour/kept",
		"export open ../../etc/passwd",
		"export read 0 0 18446744073709551615",
		"drain \x01\xff",
		"drain ../disk",
		"bench nvme ../disk",
		"bench nvme disk 4294967296",
		"undrain neighbour/\t",
	};
	static char full[ZI_ADMIN_COMMAND_BYTES];

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		greet();
		cr_expect_eq(ask(commands[i], strlen(commands[i])), ZI_MESSAGE_ERROR, "%s",
		             commands[i]);
		cr_expect_gt(strlen(raw.reply.error.text.chars), 0, "%s", commands[i]);
		raw_close(&raw);
	}
	/* Not a string: no end. */
	memset(full, '{', sizeof(full));
	greet();
	cr_expect_neq(ask(full, sizeof(full)), ZI_MESSAGE_DONE);
	raw_close(&raw);
	greet();
}

static int try_as_other(void *arg)
{
	static const char *const commands[] = {
		"snapshot create neighbour/theft",
		"snapshot rm neighbour/kept",
		"delete neighbour",
		"export open neighbour",
		"drain disk",
		"undrain disk",
		"bench nvme disk",
	};

	(void)arg;
	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		return 100;
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (raw_connect(&raw, harness.socket_path) || raw_hello(&raw))
			return 101;
		if (ask(commands[i], strlen(commands[i])) != ZI_MESSAGE_ERROR ||
		    raw.reply.error.error == -EOPNOTSUPP)
			return 1 + (int)i;
		raw_close(&raw);
	}
	return 0;
}

Test(hostile_admin, another_uid_keeps_removes_reads_drains_and_measures_nothing)
{
	int code;

	if (geteuid()) {
		hostile_close(); /* A test that is skipped has no .fini. */
		cr_skip_test("another uid's client needs root to become it");
	}
	code = harness_wait(harness_fork(try_as_other, NULL), 20000);
	cr_assert_eq(code, 0, "try %d was not refused", code);
	greet();
}

/* What the daemon answers to @question[0] JOB @question[1]; the name itself is left out. */
static int answer_about(const char *const question[2], const char *job, char *words,
                        size_t capacity)
{
	char command[128];
	const char *text;
	char *at;
	int error;

	(void)snprintf(command, sizeof(command), "%s%s%s", question[0], job, question[1]);
	if (raw_connect(&raw, harness.socket_path) || raw_hello(&raw))
		return 1;
	error = ask(command, strlen(command)) == ZI_MESSAGE_ERROR ? raw.reply.error.error : 0;
	text = error ? raw.reply.error.text.chars : (const char *)raw.reply.bytes + 16;
	(void)snprintf(words, capacity, "%.500s", text);
	while ((at = strstr(words, job)))
		memmove(at, at + strlen(job), strlen(at + strlen(job)) + 1);
	raw_close(&raw);
	return error;
}

/* The job and its snapshot of another uid, and names that nobody has. */
static int probe_as_other(void *arg)
{
	static const char *const questions[][2] = {
		{ "snapshot create ", "/theft" },
		{ "snapshot rm ", "/kept" },
		{ "snapshot rm ", "/none" },
		{ "snapshot restore ", "/kept" },
		{ "snapshot restore ", "/kept as=mine" },
		{ "snapshot list ", "" },
		{ "export open ", "" },
		{ "export open ", "/kept" },
		{ "export open ", "/none" },
		{ "delete ", "" },
		{ "jobs ", "" },
		{ "jobs ", " collectives" },
	};
	static char there[512], absent[512];

	(void)arg;
	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		return 100;
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
		int error = answer_about(questions[i], "neighbour", there, sizeof(there));

		if (error == answer_about(questions[i], "nosuchjob", absent, sizeof(absent)) &&
		    !strcmp(there, absent))
			continue;
		fprintf(stderr, "%sJOB%s: '%s' and '%s'\n", questions[i][0], questions[i][1], there,
		        absent);
		return 1 + (int)i;
	}
	return 0;
}

Test(hostile_admin, names_of_another_uid_cannot_be_probed)
{
	const char kept[] = "snapshot create neighbour/kept";
	int code;

	if (geteuid()) {
		hostile_close(); /* A test that is skipped has no .fini. */
		cr_skip_test("another uid's client needs root to become it");
	}
	greet();
	cr_assert_eq(ask(kept, strlen(kept)), ZI_MESSAGE_ADMIN_REPLY);
	raw_close(&raw);
	code = harness_wait(harness_fork(probe_as_other, NULL), 20000);
	cr_assert_eq(code, 0, "question %d tells them apart", code);
	greet();
}

/* Each is charged with what it would hold by itself, so the store's size is their limit. */
Test(hostile_admin, snapshots_have_an_end_with_its_figure)
{
	int type = 0;
	uint32_t count = 0;

	while (type != ZI_MESSAGE_ERROR) {
		char command[64];

		(void)snprintf(command, sizeof(command), "snapshot create neighbour/s%u", count++);
		cr_assert_lt(count, SNAPSHOTS_MAX, "there is no end");
		greet();
		type = ask(command, strlen(command));
		if (type != ZI_MESSAGE_ERROR)
			raw_close(&raw);
	}
	cr_assert_gt(count, 1);
	cr_assert_eq(raw.reply.error.error, -ENOSPC);
	system_expect_text(raw.reply.error.text.chars, "of 64 MiB");
}
