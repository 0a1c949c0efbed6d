/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what takes long for one client runs on the worker, one question of a uid and lane at a
 * time; a description beyond the limits is refused before it is copied; unread answers have a
 * limit; when places run out, a connection of the uid with most goes, and no export of another.
 * Method: a device that keeps its tasks until the test runs them; uids that are made up.
 */
#include "common/wire/import.h"
#include "daemon/session/control.h"
#include "tests/unit/session/room.h"

#define TASKS_MAX 16u
#define PLACES    64u /* limits.connections, and per uid (room.h) */
#define OTHER_UID 1001u

/* Keeps what is submitted. */
static struct {
	struct dev dev;
	struct dev_task *tasks[TASKS_MAX];
	uint32_t count;
	bool is_running; /* a task: what happens does so on the worker's thread */
} held;

static void held_submit(struct dev *dev, struct dev_task *task)
{
	(void)dev;
	cr_assert_lt(held.count, TASKS_MAX);
	held.tasks[held.count++] = task;
}

static uint32_t held_width(const struct dev *dev)
{
	(void)dev;
	return 1;
}

static const struct dev_ops held_ops = { .name = "held",
	                                 .submit = held_submit,
	                                 .width = held_width };

/* The oldest task runs and is done. */
static void run_one(void)
{
	struct dev_task *task = held.tasks[0];

	cr_assert_gt(held.count, 0);
	held.count--;
	memmove(held.tasks, held.tasks + 1, held.count * sizeof(*held.tasks));
	held.is_running = true;
	task->run(task);
	held.is_running = false;
	task->done(task);
	settle();
}

static void open_held(void)
{
	room_open();
	memset(&held, 0, sizeof(held));
	held.dev.ops = &held_ops;
	room.shard->worker = &held.dev;
}

static void run_all(void)
{
	settle();
	while (held.count)
		run_one();
}

static void close_held(void)
{
	run_all();
	room_close();
}

TestSuite(turns, .init = open_held, .fini = close_held);
TestSuite(places, .init = room_open, .fini = room_close);

static void tell(struct client *client, const char *command)
{
	struct zi_admin admin = { 0 };

	(void)snprintf(admin.command, sizeof(admin.command), "%s", command);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
}

static struct client *greeted(void)
{
	struct client *client = client_connect();

	client_hello(client);
	return client;
}

Test(turns, one_question_of_a_uid_and_lane_is_worked_on_and_the_others_wait)
{
	struct client *clients[3], *show = greeted();

	for (uint32_t i = 0; i < 3; i++) {
		clients[i] = greeted();
		tell(clients[i], "export open held/step-1");
		cr_assert_eq(held.count, 1, "question %u", i);
	}
	/* Another lane does not wait. */
	tell(show, "limits");
	cr_assert_eq(held.count, 2);
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(client_receive(clients[i]), 0);
		run_one();
		if (!i)
			run_one(); /* limits */
		cr_assert_eq(client_receive(clients[i]), ZI_MESSAGE_ADMIN_REPLY, "%u", i);
		cr_assert_eq(held.count, i < 2);
	}
	cr_assert_eq(client_receive(show), ZI_MESSAGE_ADMIN_REPLY);
	for (uint32_t i = 0; i < 3; i++)
		client_close(clients[i]);
	client_close(show);
	settle();
	cr_assert_eq(fake.release_count, 3);
	/* The memory goes on the worker, and is paid for until then. */
	cr_assert_eq(held.count, 3);
	cr_assert_gt(room.tier.used_bytes, 0);
	run_all();
	cr_assert_eq(room.tier.used_bytes, 0);
}

Test(turns, a_client_that_goes_while_it_waits_for_its_turn_is_forgotten)
{
	struct client *first = greeted(), *second = greeted(), *third = greeted();

	tell(first, "export open held/step-1");
	tell(second, "export open held/step-1");
	tell(third, "export open held/step-1");
	client_close(second);
	settle();
	cr_assert_eq(room.control->used_count, 2);
	client_close(first); /* Its question is out. */
	settle();
	cr_assert_eq(room.control->used_count, 2);
	run_all();
	cr_assert_eq(client_receive(third), ZI_MESSAGE_ADMIN_REPLY);
	cr_assert_eq(fake.release_count, 1);
	client_close(third);
}

Test(turns, an_export_that_waits_for_a_stopped_trainer_keeps_no_other_waiting)
{
	struct client *stopped = greeted(), *other = greeted();

	fake.waits_for_step = true;
	tell(stopped, "export open held");
	cr_assert_not_null(fake.waiting);
	tell(other, "export open held/step-1");
	cr_assert_eq(held.count, 1, "another export is worked on");
	run_one();
	cr_assert_eq(client_receive(other), ZI_MESSAGE_ADMIN_REPLY);
	cr_assert_eq(client_receive(stopped), 0);
	/* Its windows have their turn in the lane, like any other's. */
	client_close(other);
	run_all();
	other = greeted();
	tell(other, "export open held/step-1");
	fake_step_done();
	settle();
	cr_assert_eq(held.count, 1, "one at a time");
	run_all();
	cr_assert_eq(client_receive(other), ZI_MESSAGE_ADMIN_REPLY);
	cr_assert_eq(client_receive(stopped), ZI_MESSAGE_ADMIN_REPLY);
	client_close(other);
	client_close(stopped);
}

Test(turns, a_held_step_is_let_go_when_its_client_leaves_before_its_turn)
{
	struct client *client = greeted(), *other = greeted();

	fake.waits_for_step = true;
	tell(client, "export open held");
	tell(other, "export open held/step-1");
	fake_step_done();
	settle();
	client_close(client);
	settle();
	cr_assert_eq(fake.release_count, 1);
	cr_assert_eq(room.control->used_count, 1);
	fake.waits_for_step = false;
	run_all();
	cr_assert_eq(client_receive(other), ZI_MESSAGE_ADMIN_REPLY);
	client_close(other);
}

Test(turns, an_interrupted_export_gives_its_place_back_before_the_step_is_held)
{
	fake.waits_for_step = true;
	for (uint32_t i = 0; i < 3; i++) {
		struct client *client = greeted();

		tell(client, "export open held");
		cr_assert_not_null(fake.waiting);
		client_close(client);
		settle();
		cr_assert_eq(room.control->used_count, 0, "after export %u", i);
		cr_assert_null(fake.waiting, "the shard was told");
	}
}

/* The step is held when the shard is told that its client has gone. */
Test(turns, an_export_that_is_held_while_its_client_leaves_is_released_once)
{
	struct client *client = greeted();

	fake.waits_for_step = true;
	tell(client, "export open held");
	client_close(client);
	for (uint32_t i = 0; i < 1000 && !room.control->sessions[0].is_withdrawing; i++)
		turn();
	cr_assert(room.control->sessions[0].is_withdrawing);
	cr_assert_not_null(fake.waiting, "the shard was told too early for this test");
	fake_step_done();
	run_all();
	cr_assert_eq(fake.release_count, 1);
	cr_assert_eq(room.control->used_count, 0);
}

Test(turns, a_description_beyond_the_limits_is_refused_by_its_head)
{
	const struct zi_import_head head = {
		.magic = ZI_IMPORT_MAGIC, .world_size = 1, .unit_count = 1, .param_count = 101
	};
	struct client *client = greeted();
	void *window;

	tell(client, "load open train/x 33554433");
	expect_error(client, -E2BIG, "(limits.units, limits.params)");
	tell(client, "load open train/x 33554432");
	expect_error(client, -E2BIG, "are allowed (limits.units, limits.params)");
	cr_assert_eq(held.count, 0);
	tell(client, "load open train/x 100000");
	run_one();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY);
	cr_assert_eq(zi_region_map(client->fds[0], 1 << 20, true, &window), 0);
	memcpy(window, &head, sizeof(head));
	tell(client, "load describe 100000");
	expect_error(client, -E2BIG,
	             "1 units, 101 parameters: 100 and 100 are allowed (limits.units, "
	             "limits.params)");
	cr_assert_eq(held.count, 0, "nothing was copied");
	cr_assert_eq(zi_region_unmap(window, 1 << 20), 0);
	client_close(client);
}

/* ---- whose memory the worker's thread frees ---- */

#define BLOCKS 4096u

/* What jansson has of the allocator, and who asked for it. */
static struct {
	void *place;
	bool is_workers;
} blocks[BLOCKS];
static uint32_t foreign_count; /* freed by the worker, and made by another thread */

static void *count_malloc(size_t bytes)
{
	void *place = malloc(bytes);
	uint32_t i = 0;

	while (i < BLOCKS && blocks[i].place)
		i++;
	cr_assert_lt(i, BLOCKS);
	blocks[i].place = place;
	blocks[i].is_workers = held.is_running;
	return place;
}

static void count_free(void *place)
{
	for (uint32_t i = 0; place && i < BLOCKS; i++) {
		if (blocks[i].place != place)
			continue;
		foreign_count += held.is_running && !blocks[i].is_workers;
		blocks[i].place = NULL;
		break;
	}
	free(place);
}

Test(turns, the_worker_frees_no_memory_of_the_shards_arena)
{
	static const char *const questions[] = { "jobs", "limits", "export open held/step-1" };
	struct client *client = greeted();

	fake.job_count = 3;
	json_set_alloc_funcs(count_malloc, count_free);
	for (size_t i = 0; i < ZI_COUNT_OF(questions); i++) {
		tell(client, questions[i]);
		cr_assert_eq(held.count, 1, "%s", questions[i]);
		run_one();
		cr_assert_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY, "%s", questions[i]);
		cr_expect_eq(foreign_count, 0, "%s: %u blocks", questions[i], foreign_count);
	}
	json_set_alloc_funcs(malloc, free);
	client_close(client);
}

/* ---- answers that nobody reads ---- */

/* A client with an answer that does not fit into its socket. */
static struct client *unread(void)
{
	struct client *client = greeted();

	fake.job_count = 600;
	tell(client, "jobs");
	return client;
}

static void read_all(struct client *client)
{
	bool has_more = true;

	while (has_more) {
		int type = client_receive(client);

		cr_assert_geq(type, 0);
		has_more = !type || client->in.header.flags & ZI_MESSAGE_MORE;
		turn();
	}
}

Test(places, answers_that_nobody_reads_have_a_limit_with_its_figure)
{
	enum { ANSWERS = 8 }; /* room.h */
	struct client *clients[ANSWERS];
	struct client *client = greeted();

	for (uint32_t i = 0; i < ANSWERS; i++)
		clients[i] = unread();
	cr_assert_eq(sess_uid_used(room.shard->uids, geteuid(), SESS_UID_ANSWERS), ANSWERS);
	tell(client, "jobs");
	expect_error(client, -EMFILE, "8 answers that it has not read, 8 are allowed");
	read_all(clients[0]);
	tell(client, "limits");
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY);
	client_close(client);
	for (uint32_t i = 0; i < ANSWERS; i++)
		client_close(clients[i]);
	settle();
	cr_assert_eq(sess_uid_used(room.shard->uids, geteuid(), SESS_UID_ANSWERS), 0);
	cr_assert_eq(sess_uid_used(room.shard->uids, geteuid(), SESS_UID_ANSWER_BYTES), 0);
}

Test(places, who_does_not_read_its_answers_is_refused_before_anything_is_changed)
{
	static const char *const commands[] = { "delete job0", "snapshot rm job0/step-1",
		                                "snapshot restore job0/step-1" };
	enum { ANSWERS = 8 }; /* room.h */
	struct client *clients[ANSWERS], *client = greeted();

	for (uint32_t i = 0; i < ANSWERS; i++)
		clients[i] = unread();
	for (size_t i = 0; i < ZI_COUNT_OF(commands); i++) {
		tell(client, commands[i]);
		expect_error(client, -EMFILE, "8 answers that it has not read, 8 are allowed");
		cr_expect_eq(fake.change_count, 0, "%s was done all the same", commands[i]);
	}
	for (uint32_t i = 0; i < ANSWERS; i++)
		client_close(clients[i]);
	settle();
	tell(client, commands[0]);
	cr_expect_gt(client_receive(client), 0);
	cr_expect_eq(fake.change_count, 1);
	client_close(client);
}

/* An answer to a change is one message, and is not refused when the change is done. */
Test(bytes, short_answers_are_given_whatever_others_are_unread)
{
	struct client *client;

	room_open_limited(4, 4, 1);
	client = greeted();
	tell(client, "delete job0");
	cr_expect_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY, "%s",
	             client->in.error.text.chars);
	cr_expect_eq(fake.change_count, 1);
	client_close(client);
	room_close();
}

Test(bytes, an_export_whose_answer_is_refused_is_not_open)
{
	struct client *client;

	room_open_limited(4, 4, 64 << 10);
	client = greeted();
	fake.is_long = true;
	tell(client, "export open held/step-1");
	expect_error(client, -EMFILE, "64 KiB are allowed (limits.answer_bytes_per_uid)");
	settle();
	cr_expect_eq(fake.release_count, 1);
	cr_expect_eq(room.tier.used_bytes, 0);
	fake.is_long = false;
	tell(client, "export open held/step-1");
	cr_expect_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY, "%s",
	             client->in.error.text.chars);
	client_close(client);
	room_close();
}

Test(bytes, of_answers_that_nobody_reads_have_a_limit_with_its_figure)
{
	struct client *client;

	room_open_limited(4, 4, 64 << 10);
	client = unread();
	expect_error(client, -EMFILE, "64 KiB are allowed (limits.answer_bytes_per_uid)");
	cr_assert_eq(sess_uid_used(room.shard->uids, geteuid(), SESS_UID_ANSWER_BYTES), 0);
	client_close(client);
	room_close();
}

Test(places, who_does_not_read_its_answer_goes_before_who_is_silent)
{
	struct client *silent[PLACES], *client = NULL;

	for (uint32_t i = 0; i + 1 < PLACES; i++)
		silent[i] = client_connect();
	silent[PLACES - 1] = unread();
	client = greeted();
	while (client_receive(silent[PLACES - 1]) > 0)
		turn();
	cr_assert_eq(client_receive(silent[PLACES - 1]), -1);
	for (uint32_t i = 0; i + 1 < PLACES; i++)
		cr_assert_eq(client_receive(silent[i]), 0, "%u", i);
	for (uint32_t i = 0; i < PLACES; i++)
		client_close(silent[i]);
	client_close(client);
}

/* ---- who goes ---- */

/* A connection of @uid that is silent, without a socket. 0, or why not. */
static int connect_as(uid_t uid, struct zi_text *text)
{
	struct sess *session;
	int r = sess_control_take_slot(room.control, uid, text, &session);

	if (!r)
		sess_wait_on(session);
	return r;
}

static uint64_t connections_of(uid_t uid)
{
	return sess_uid_used(room.shard->uids, uid, SESS_UID_CONNECTIONS);
}

Test(places, a_flood_of_one_uid_costs_no_connection_of_another)
{
	struct client *exporting = greeted(), *silent = greeted();
	struct zi_text text;

	tell(exporting, "export open held");
	cr_assert_eq(client_receive(exporting), ZI_MESSAGE_ADMIN_REPLY);
	for (uint32_t i = 0; i < 1000; i++)
		cr_assert_eq(connect_as(OTHER_UID, &text), 0, "%u", i);
	cr_assert_eq(connections_of(OTHER_UID), PLACES - 2);
	cr_assert_eq(connections_of(geteuid()), 2);
	tell(exporting, "export read 0 4");
	expect_error(exporting, -EINVAL, "");
	tell(silent, "limits");
	cr_assert_eq(client_receive(silent), ZI_MESSAGE_ADMIN_REPLY);
	client_close(exporting);
	client_close(silent);
}

Test(places, without_anybody_who_may_go_others_are_refused_and_root_is_not)
{
	struct sess *sessions[PLACES];
	struct client *client;
	struct zi_text text;

	for (uint32_t i = 0; i < PLACES; i++) /* In no list: all are at work. */
		cr_assert_eq(
			sess_control_take_slot(room.control, OTHER_UID + i, &text, &sessions[i]),
			0);
	cr_assert_eq(connect_as(OTHER_UID + PLACES, &text), -EMFILE);
	cr_assert_str_eq(text.chars, "all 64 connections that are not attached are in use "
	                             "(limits.connections): try again");
	cr_assert_eq(connections_of(OTHER_UID + PLACES), 0);
	client = greeted(); /* Of the daemon's own uid. */
	tell(client, "limits");
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY);
	client_close(client);
	for (uint32_t i = 0; i < PLACES; i++)
		sess_drop(sessions[i]);
}
