/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: one uid keeps no other out, and ends no other's work, however many connections it makes and
 * whether or not it reads its answers. Method: a process of another uid that attacks until the test
 * ends it; meanwhile the administrator asks, a trainer attaches, an export goes on.
 */
#include "tests/system/hostile.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTACKER_UID 65534u
#define ROUNDS       20u
/* Of the attack: more than there are places (limits.connections). */
#define CONNECTIONS 200u
/* Answers to that many questions do not fit into a socket. */
#define QUESTIONS 150u
/* Between two questions of the export. */
#define CONNECTS_PER_ROUND 200u

static int pair_fds[2]; /* the test's end, the attacker's */

/* No connection ends by its silence during a test. */
static void uids_open(void)
{
	struct trainer_settings settings;

	system_start(&harness, &(struct harness_options){
				       .nvme_size = "64M",
				       .extra = "[limits]\nhandshake_ms = 600000\nsessions = 16\n",
			       });
	settings = ranks_settings(&harness, "neighbour", 1);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair_fds), 0);
}

TestSuite(hostile_uids, .init = uids_open, .fini = hostile_close, .timeout = 240);

static bool become_attacker(void)
{
	(void)close(pair_fds[0]);
	return !setgid(ATTACKER_UID) && !setuid(ATTACKER_UID);
}

/* The attacker is ready for the test's word, and waits for it. False: the test is over. */
static bool await_test(void)
{
	char word = 'x';

	return send(pair_fds[1], &word, 1, MSG_NOSIGNAL) == 1 && read(pair_fds[1], &word, 1) == 1;
}

static pid_t start_attack(harness_body_fn body)
{
	pid_t pid;

	if (geteuid()) {
		(void)close(pair_fds[0]);
		(void)close(pair_fds[1]);
		hostile_close(); /* A test that is skipped has no .fini. */
		cr_skip_test("another uid's client needs root to become it");
	}
	pid = harness_fork(body, NULL);
	(void)close(pair_fds[1]);
	return pid;
}

/* The attacker has done its part; let go on by the next. */
static void await_attacker(void)
{
	char word;

	cr_assert_eq(read(pair_fds[0], &word, 1), 1, "the attacker has given up");
}

static void let_attack(void)
{
	cr_assert_eq(send(pair_fds[0], "x", 1, MSG_NOSIGNAL), 1);
}

static void end_attack(pid_t pid)
{
	(void)close(pair_fds[0]);
	cr_assert_eq(harness_wait(pid, 60000), 0);
}

/* False: the daemon has closed the connection, or does not take it now. */
static bool send_question(struct raw *client, const char *command)
{
	struct zi_admin question = { .header = { ZI_CONTROL_MAGIC, ZI_MESSAGE_ADMIN, 0,
		                                 sizeof(question), ++client->sequence } };

	(void)snprintf(question.command, sizeof(question.command), "%s", command);
	return send(client->socket_fd, &question, sizeof(question), MSG_NOSIGNAL | MSG_DONTWAIT) >
	       0;
}

/* ---- answers that nobody reads ---- */

static int ask_and_never_read(void *arg)
{
	static struct raw clients[CONNECTIONS];

	(void)arg;
	if (!become_attacker())
		return 1;
	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		/* Turned away: the next one may come in. */
		if (raw_connect(&clients[i], harness.socket_path) || raw_hello(&clients[i]))
			continue;
		for (uint32_t k = 0; k < QUESTIONS && send_question(&clients[i], "status"); k++)
			continue;
	}
	return await_test();
}

Test(hostile_uids, answers_that_nobody_reads_keep_nobody_out)
{
	pid_t pid = start_attack(ask_and_never_read);

	await_attacker();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		cr_assert(system_is_alive(&harness), "round %u", i);
		expect_unharmed();
	}
	end_attack(pid);
}

/* ---- a flood of connections ---- */

static int connect_for_ever(void *arg)
{
	static struct raw clients[CONNECTIONS];

	(void)arg;
	if (!become_attacker())
		return 1;
	for (uint32_t i = 0;; i++) {
		struct raw *client = &clients[i % CONNECTIONS];

		if (i >= CONNECTIONS)
			raw_close(client);
		if (!raw_connect(client, harness.socket_path))
			(void)raw_hello(client); /* Turned away: as good. */
		if (i % CONNECTS_PER_ROUND == CONNECTS_PER_ROUND - 1 && !await_test())
			return 0;
	}
}

static void expect_answer(const char *command)
{
	int type;

	cr_assert(send_question(&raw, command), "%s: the connection was cut", command);
	type = raw_receive(&raw);
	cr_assert_eq(type, ZI_MESSAGE_ADMIN_REPLY, "%s: %d, %s", command, type,
	             type == ZI_MESSAGE_ERROR ? raw.reply.error.text.chars : "cut");
}

Test(hostile_uids, a_flood_of_connections_does_not_cut_an_export)
{
	pid_t pid;

	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(raw_hello(&raw), 0);
	pid = start_attack(connect_for_ever);
	cr_assert(send_question(&raw, "export open neighbour"));
	do
		cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_ADMIN_REPLY);
	while (raw.reply.header.flags & ZI_MESSAGE_MORE);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		await_attacker();
		expect_answer("export read 0 0");
		expect_answer("export wait 0");
		let_attack();
	}
	end_attack(pid);
}
