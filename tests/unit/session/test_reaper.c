/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a session that ends, whoever ends it, leaves nothing behind, the others hear who it was,
 * and what a client is told holds words and nothing of the daemon's memory. Method: as in
 * test_shard.c, and a client in a process of its own that is killed.
 */
#include "tests/guard/guard.h"
#include "tests/harness/patience.h"
#include "tests/unit/session/room.h"

#include <sys/wait.h>

TestSuite(reaper, .init = room_open, .fini = room_close);

Test(reaper, a_broken_group_is_told_everywhere_and_leaves_only_leaving)
{
	struct client *client = client_attach();
	struct zi_downlink_header *downlink = (void *)client->downlink;
	struct pollfd doorbell = { .fd = client->fds[3], .events = POLLIN };
	struct zi_text text = { "rank 1 died" };
	struct zi_cqe cqe;

	rank_of(0)->attach.broken(rank_of(0)->attach.broken_arg, -EPIPE, 1, &text);
	settle();
	cr_assert_eq(zi_line_load(&downlink->broken), EPIPE);
	cr_assert_eq(poll(&doorbell, 1, 0), 1);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_NOTICE);
	cr_assert_eq(client->in.notice.error, -EPIPE);
	cr_assert_eq(client->in.notice.rank, 1);
	client_submit(client, ZI_OP_BARRIER, 0, 1);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.result, -EPIPE);
	cr_assert_str_eq(client_text(client, &cqe), "rank 1 died");
	cr_assert_eq(fake.op_count, 0);
	send_materialize(client, 0, 0);
	expect_error(client, -EPIPE, "rank 1 died");
	client_send_plain(client, ZI_MESSAGE_DETACH);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	client_close(client);
}

/* Nothing but zeros behind the words. */
static bool is_clean_text(const char *chars)
{
	for (size_t i = strlen(chars); i < ZI_TEXT_BYTES; i++)
		if (chars[i])
			return false;
	return true;
}

Test(reaper, texts_carry_words_and_nothing_of_the_daemons_memory)
{
	struct client *client = client_attach();
	struct zi_text text;
	struct zi_cqe cqe;

	memset(&text, 'S', sizeof(text)); /* what a stack may hold */
	memcpy(text.chars, "rank 1 died", sizeof("rank 1 died"));
	rank_of(0)->attach.broken(rank_of(0)->attach.broken_arg, -EPIPE, 1, &text);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_NOTICE);
	cr_assert(is_clean_text(client->in.notice.text.chars));
	client_submit(client, ZI_OP_BARRIER, 0, 1);
	turn();
	cqe = client_reap(client);
	cr_assert(is_clean_text(client_text(client, &cqe)));
	client_send_plain(client, ZI_MESSAGE_BLOB_GET);
	settle();
	expect_error(client, -EPIPE, "rank 1 died");
	cr_assert(is_clean_text(client->in.error.text.chars));
	client_close(client);
}

/* Turns until the rank has left. */
static void await_leave(const struct zero_rank *rank)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(5 * ZI_NS_PER_S));

	while (rank->is_attached && zi_clock_now_ns() < deadline_ns)
		turn();
	cr_assert_not(rank->is_attached);
	settle();
}

Test(reaper, a_socket_closed_by_a_living_process_ends_the_session)
{
	struct client *client = client_attach();
	uint64_t started_ns = zi_clock_now_ns();

	client_close(client);
	await_leave(rank_of(0));
	cr_assert_not(rank_of(0)->is_clean);
	cr_assert(strstr(rank_of(0)->reason, "closed its socket without detaching"));
	cr_assert_lt(zi_clock_now_ns() - started_ns, patient_ns(ZI_NS_PER_S));
	cr_assert_eq(room.control->used_count, 0);
	cr_assert_eq(zi_pool_used_count(&room.shard->ops), 0);
}

Test(reaper, operations_pending_at_the_end_come_back_before_the_memory_goes)
{
	struct client *client = client_attach();

	fake.holds = true;
	client_submit(client, ZI_OP_BARRIER, 0, 1);
	client_submit(client, ZI_OP_STEP, 0, 2);
	turn();
	cr_assert_eq(zi_pool_used_count(&room.shard->ops), 2);
	cr_assert_eq(room.shard->waiting_count, 1);
	client_close(client);
	await_leave(rank_of(0));
	cr_assert_eq(zi_pool_used_count(&room.shard->ops), 0);
	cr_assert_eq(room.shard->waiting_count, 0);
	cr_assert_eq(room.shard->computing_count, 0);
	cr_assert_eq(room.control->used_count, 0);
}

/* A client in a process of its own, over a real listening socket, which attaches and waits. */
static pid_t fork_client(const char *path, int ready_fd)
{
	pid_t pid = fork();
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR };
	struct zi_attach attach = attach_template();
	static _Alignas(64) unsigned char buffer[ZI_MESSAGE_BYTES_MAX];
	int fd;

	if (pid)
		return pid;
	zi_message_init(&hello.header, ZI_MESSAGE_HELLO, sizeof(hello), 1);
	zi_message_init(&attach.header, ZI_MESSAGE_ATTACH, sizeof(attach), 2);
	if (zi_control_connect(path, &fd) || zi_message_send(fd, &hello.header, NULL, 0) ||
	    zi_message_receive(fd, buffer, NULL, NULL) ||
	    zi_message_send(fd, &attach.header, NULL, 0) ||
	    zi_message_receive(fd, buffer, NULL, NULL) || write(ready_fd, "r", 1) != 1)
		_exit(1);
	(void)pause();
	_exit(0);
}

/* One client in a process of its own. */
struct forked {
	char directory[64], path[80];
	int pipe_fds[2];
	pid_t pid;
};

static void forked_open(struct forked *forked)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(5 * ZI_NS_PER_S));
	struct pollfd ready;
	int listen_fd;

	cr_assert(mkdtemp(guard_path(forked->directory, sizeof(forked->directory), "reaper")));
	(void)snprintf(forked->path, sizeof(forked->path), "%s/sock", forked->directory);
	cr_assert_eq(zi_control_listen(forked->path, 0600, NULL, &listen_fd), 0);
	cr_assert_eq(sess_control_listen(room.control, listen_fd), 0);
	cr_assert_eq(pipe2(forked->pipe_fds, O_CLOEXEC), 0);
	forked->pid = fork_client(forked->path, forked->pipe_fds[1]);
	ready = (struct pollfd){ .fd = forked->pipe_fds[0], .events = POLLIN };
	while (poll(&ready, 1, 0) != 1 && zi_clock_now_ns() < deadline_ns)
		turn();
	cr_assert_eq(room.shard->polled_count, 1);
}

static void forked_close(struct forked *forked)
{
	(void)unlink(forked->path);
	(void)rmdir(forked->directory);
	(void)zi_close(forked->pipe_fds[0]);
	(void)zi_close(forked->pipe_fds[1]);
}

Test(reaper, a_killed_process_is_named_and_its_memory_comes_back)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(5 * ZI_NS_PER_S));
	struct forked forked;
	char expected[64];

	forked_open(&forked);
	cr_assert_gt(room.tier.used_bytes, 0);
	cr_assert_eq(kill(forked.pid, SIGKILL), 0);
	await_leave(rank_of(0));
	(void)snprintf(expected, sizeof(expected), "process %d was killed by signal 9 (",
	               forked.pid);
	cr_assert_eq(strncmp(rank_of(0)->reason, expected, strlen(expected)), 0, "%s",
	             rank_of(0)->reason);
	cr_assert_eq(waitpid(forked.pid, NULL, 0), forked.pid);
	while (room.tier.used_bytes && zi_clock_now_ns() < deadline_ns)
		turn();
	cr_assert_eq(room.tier.used_bytes, 0);
	forked_close(&forked);
}

/* The loop is kept from hearing of the end: the order in which it hears is anybody's guess. */
Test(reaper, who_comes_before_the_loop_hears_of_a_death_is_not_told_that_the_dead_live)
{
	struct forked forked;
	struct client *client;
	struct zi_attach attach;
	struct sess *session;
	siginfo_t info;

	forked_open(&forked);
	session = room.shard->polled[0];
	zi_loop_remove(&session->pidfd_source);
	zi_loop_remove(&session->socket_source);
	fake.is_for_one = true;
	client = client_connect();
	client_hello(client);
	attach = attach_template();
	client_send(client, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	expect_error(client, -EBUSY, "fake has one");
	client_close(client);
	cr_assert(rank_of(0)->is_attached, "it lives");

	cr_assert_eq(kill(forked.pid, SIGKILL), 0);
	cr_assert_eq(waitid(P_PID, (id_t)forked.pid, &info, WEXITED | WNOWAIT), 0);
	client = client_attach();
	cr_assert_not(rank_of(0)->is_attached);
	cr_assert(strstr(rank_of(0)->reason, "was killed by signal 9"), "%s", rank_of(0)->reason);
	cr_assert(rank_of(1)->is_attached);
	cr_assert_eq(waitpid(forked.pid, NULL, 0), forked.pid);
	client_close(client);
	await_leave(rank_of(1));
	forked_close(&forked);
}

/* What the daemon had to say to it then does not go out: that is no reason to tell another one. */
Test(reaper, a_process_that_died_unheard_is_not_said_to_have_stopped_reading)
{
	struct zi_text text = { "rank 1 died" };
	struct forked forked;
	siginfo_t info;

	forked_open(&forked);
	cr_assert_eq(kill(forked.pid, SIGKILL), 0);
	cr_assert_eq(waitid(P_PID, (id_t)forked.pid, &info, WEXITED | WNOWAIT), 0);
	rank_of(0)->attach.broken(rank_of(0)->attach.broken_arg, -EPIPE, 1, &text);
	await_leave(rank_of(0));
	cr_assert(strstr(rank_of(0)->reason, "was killed by signal 9"), "%s", rank_of(0)->reason);
	cr_assert_eq(waitpid(forked.pid, NULL, 0), forked.pid);
	forked_close(&forked);
}

Test(reaper, a_stop_is_told_to_everyone_and_refuses_newcomers)
{
	struct client *client = client_attach();
	struct client *late = client_connect();
	struct client *silent = client_connect();
	struct zi_attach attach = attach_template();

	client_hello(late);
	sess_shard_stop(room.shard, "zinfd is stopping");
	client_send(late, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	expect_error(late, -ESTALE, "zinfd is stopping");
	cr_assert_eq(client_receive(client), ZI_MESSAGE_NOTICE);
	cr_assert_eq(client->in.notice.error, -ESTALE);
	cr_assert_eq(client->in.notice.rank, UINT32_MAX);
	cr_assert_str_eq(client->in.notice.text.chars, "zinfd is stopping");
	cr_assert_eq(client_receive(client), -1);
	cr_assert(rank_of(0)->is_clean);
	sess_control_stop(room.control, room_stopped, NULL);
	settle();
	cr_assert(room.is_stopped);
	cr_assert_eq(client_receive(silent), -1);
	client_close(client);
	client_close(late);
	client_close(silent);
}
