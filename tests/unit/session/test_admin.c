/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: questions are answered in full, at the pace at which they are read, and only with what the
 * one who asks may see. Method: socket pairs into a control half that is turned by hand, over a
 * fake zero that reports as many jobs as wanted.
 */
#include "daemon/session/admin/answer.h"
#include "daemon/session/admin/answer_json.h"
#include "tests/harness/patience.h"
#include "tests/unit/session/room.h"

TestSuite(admin, .init = room_open, .fini = room_close);

static void ask(struct client *client, const char *command)
{
	struct zi_admin admin = { 0 };

	(void)snprintf(admin.command, sizeof(admin.command), "%s", command);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
}

/* All pieces of an answer, parsed; the caller's. */
static json_t *collect(struct client *client)
{
	static char text[4 << 20];
	size_t bytes = 0;
	json_t *answer;
	bool has_more;

	do {
		int type = client_receive(client);

		if (!type) {
			turn(); /* The rest comes as we read. */
			has_more = true;
			continue;
		}
		cr_assert_eq(type, ZI_MESSAGE_ADMIN_REPLY, "%s", client->in.error.text.chars);
		cr_assert_lt(bytes + client->in.header.bytes, sizeof(text));
		memcpy(text + bytes, client->in.bytes + 16, client->in.header.bytes - 16);
		bytes += client->in.header.bytes - 16;
		has_more = client->in.header.flags & ZI_MESSAGE_MORE;
	} while (has_more);
	answer = json_loadb(text, bytes, 0, NULL);
	cr_assert(answer);
	return answer;
}

static json_int_t count_of(const json_t *object, const char *key)
{
	cr_assert(json_is_integer(json_object_get(object, key)), "no number '%s'", key);
	return json_integer_value(json_object_get(object, key));
}

Test(admin, status_tiers_and_limits_are_answered_in_one_connection)
{
	struct client *client = client_connect();
	struct client *other = client_attach();
	json_t *answer;

	client_hello(client);
	ask(client, "status");
	answer = collect(client);
	cr_assert_eq(count_of(answer, "pid"), getpid());
	cr_assert_eq(count_of(answer, "sessions"), 1);
	cr_assert_eq(count_of(answer, "sessions_max"), 4);
	cr_assert_eq(count_of(answer, "jobs_max"), 5);
	cr_assert_geq(json_array_size(json_object_get(answer, "threads")), 1);
	cr_assert_str_eq(json_string_value(json_object_get(answer, "engine")), "none");
	cr_assert(json_is_null(json_object_get(answer, "catalog_error")));
	json_decref(answer);
	fake.frozen_words = "the catalog is broken";
	ask(client, "status");
	answer = collect(client);
	cr_assert_str_eq(json_string_value(json_object_get(answer, "catalog_error")),
	                 "the catalog is broken");
	json_decref(answer);
	fake.frozen_words = NULL;
	ask(client, "tiers");
	answer = collect(client);
	cr_assert_eq(json_array_size(answer), 1);
	cr_assert_eq(count_of(json_array_get(answer, 0), "used_bytes"),
	             (json_int_t)room.tier.used_bytes);
	cr_assert_gt(room.tier.used_bytes, 0, "the rings of the other");
	json_decref(answer);
	ask(client, "limits");
	answer = collect(client);
	cr_assert_eq(json_array_size(answer), 3);
	cr_assert_eq(count_of(json_array_get(answer, 0), "used"), 1);
	cr_assert(json_is_null(json_object_get(json_array_get(answer, 2), "used")));
	json_decref(answer);
	client_close(client);
	client_close(other);
}

/* Of a uid's limits each shows what the uid with most holds, with or without jobs. */
Test(admin, every_limit_of_a_uid_is_shown_with_its_present_use)
{
	static const struct sess_limit_fact facts[] = {
		{ "sessions_per_uid", "limits.sessions_per_uid", 4 },
		{ "connections_per_uid", "limits.connections_per_uid", 64 },
		{ "descriptors_per_uid", "limits.descriptors_per_uid", 100 },
		{ "answers_per_uid", "limits.answers_per_uid", 8 },
		{ "answer_bytes_per_uid", "limits.answer_bytes_per_uid", 1000 },
		{ "jobs_per_uid", "limits.jobs_per_uid", 9 },
		{ "uid_cpu_bytes", "quota.uid_cpu", 1000 },
		{ "uid_nvme_bytes", "quota.uid_nvme", 1000 },
		{ "uid_write_bytes_per_day", "quota.uid_write_per_day", 1000 },
	};
	struct client *client = client_connect();
	json_t *answer;

	room.facts.limits = facts;
	room.facts.limit_count = ZI_COUNT_OF(facts);
	fake.today_write_bytes = 500;
	fake.account.used_fds = 7;
	client_hello(client);
	ask(client, "limits");
	answer = collect(client);
	cr_assert_eq(json_array_size(answer), ZI_COUNT_OF(facts));
	for (size_t i = 0; i < ZI_COUNT_OF(facts); i++) {
		const json_t *limit = json_array_get(answer, i);

		cr_expect(json_is_integer(json_object_get(limit, "used")), "%s", facts[i].name);
		cr_expect(json_is_integer(json_object_get(limit, "uid")), "%s", facts[i].name);
	}
	cr_expect_eq(count_of(json_array_get(answer, 2), "used"), 7);
	cr_expect_eq(count_of(json_array_get(answer, 8), "used"), 1000);
	cr_expect_eq(count_of(json_array_get(answer, 8), "uid"), 4242, "an administrator asks");
	json_decref(answer);
	fake.account.used_fds = 0;
	client_close(client);
}

Test(admin, unknown_questions_are_refused_with_what_is_answered_and_cost_nothing)
{
	static const char *const questions[] = { "",
		                                 "reboot",
		                                 "statusx",
		                                 "status now",
		                                 "jobs ../x",
		                                 "jobs a b",
		                                 "jobs a collectives b",
		                                 "snapshot",
		                                 "snapshot rm a",
		                                 "delete",
		                                 "delete a/b",
		                                 "delete a b",
		                                 "snapshot create a/b keep=x",
		                                 "snapshot create a/b keep=0",
		                                 "snapshot create a/b later",
		                                 "snapshot create a/.b",
		                                 "snapshot list a/b",
		                                 "snapshot list a b",
		                                 "jobs a/b" };
	struct client *client = client_connect();
	json_t *answer;

	client_hello(client);
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
		ask(client, questions[i]);
		expect_error(client, -EINVAL, "load open|describe|put|wait|end are answered");
	}
	ask(client, "jobs");
	answer = collect(client);
	cr_assert_eq(json_array_size(answer), 0);
	json_decref(answer);
	client_close(client);
}

Test(admin, a_job_is_found_by_name_and_a_missing_one_names_those_there_are)
{
	struct client *client = client_connect();
	json_t *answer;

	fake.job_count = 3;
	client_hello(client);
	ask(client, "jobs job2");
	answer = collect(client);
	cr_assert_eq(json_array_size(answer), 1);
	cr_assert_eq(count_of(json_array_get(answer, 0), "committed_step"), 2);
	cr_assert(json_is_null(
		json_object_get(json_object_get(json_array_get(answer, 0), "last_step"), "norm")));
	json_decref(answer);
	ask(client, "jobs job0");
	answer = collect(client);
	cr_assert(json_is_null(json_object_get(json_array_get(answer, 0), "last_step")));
	json_decref(answer);
	ask(client, "jobs job9");
	expect_error(client, -ENOENT, "no job 'job9'; existing jobs: job0, job1, job2");
	client_close(client);
}

Test(admin, groups_tell_who_has_come_and_who_is_waited_for)
{
	static _Alignas(64) struct zi_board_member board[3];
	static _Alignas(64) struct zi_verdicts verdicts;
	struct zi_text text = { "rank 2 (pid 7) left" };
	struct client *client = client_connect();
	json_t *answer, *collectives, *group;
	char *printed;

	cr_assert_eq(coll_new(&(struct coll_options){ .world_size = 3, .verdicts = &verdicts },
	                      &fake.coll),
	             0);
	coll_group_add(fake.coll, 0, 7, board, 600 * ZI_NS_PER_S);
	coll_group_add(fake.coll, 5, 6, board, ZI_NS_PER_S / 2);
	board[0].posts[3].call.operation = board[2].posts[3].call.operation = ZI_COLL_BARRIER;
	board[0].posts[3].sequence = board[2].posts[3].sequence = 3;
	board[1].sends[2] =
		(struct zi_board_send){ .sequence = 1, .dtype = ZI_DTYPE_F32, .element_count = 7 };
	fake.job_count = 2;
	client_hello(client);
	ask(client, "jobs job0 collectives");
	answer = collect(client);
	cr_assert(json_is_null(json_object_get(json_array_get(answer, 0), "collectives")));
	json_decref(answer);
	ask(client, "jobs job1");
	answer = collect(client);
	cr_assert_null(json_object_get(json_array_get(answer, 0), "collectives"));
	json_decref(answer);
	coll_break(fake.coll, &fake.coll->groups[5], -EPIPE, 2, &text);
	ask(client, "jobs job1 collectives");
	answer = collect(client);
	collectives = json_object_get(json_array_get(answer, 0), "collectives");
	cr_assert_eq(count_of(collectives, "arena_bytes"), 4 << 20);
	group = json_array_get(json_object_get(collectives, "groups"), 0);
	printed = json_dumps(group, JSON_COMPACT);
	cr_assert_not_null(strstr(printed, "{\"group\":0,\"ranks\":[0,1,2],\"timeout_ms\":600000,"
	                                   "\"sequence\":3,\"call\":\"barrier\",\"has_come\":[0,2],"
	                                   "\"is_awaited\":[1],\"waiting_ns\":"),
	                   "%s", printed);
	cr_assert_not_null(strstr(printed, "\"messages\":[{\"rank\":1,\"call\":\"send (f32 x 7, to "
	                                   "rank 2)\",\"waits_for\":2}],\"message_count\":1,"),
	                   "%s", printed);
	cr_assert_not_null(strstr(printed, "\"is_read\":[],\"is_unread\":[],\"has_left\":[],"
	                                   "\"error\":null,\"reason\":\"\",\"failed_rank\":null}"),
	                   "%s", printed);
	free(printed);
	group = json_array_get(json_object_get(collectives, "groups"), 1);
	printed = json_dumps(group, JSON_COMPACT);
	cr_assert_not_null(strstr(printed, "{\"group\":5,\"ranks\":[1,2],\"timeout_ms\":500,"),
	                   "%s", printed);
	cr_assert_not_null(strstr(printed, "\"error\":\"EPIPE\",\"reason\":\"rank 2 (pid 7) "
	                                   "left\",\"failed_rank\":2}"),
	                   "%s", printed);
	free(printed);
	json_decref(answer);
	client_close(client);
	fake.coll = coll_free(fake.coll);
}

Test(admin, what_is_no_text_is_told_as_far_as_it_is)
{
	json_t *object = json_object();
	char *printed;

	answer_put(object, "error", json_null());
	answer_word(object, "reason", "a path \xff, cut \xe2\x82");
	printed = json_dumps(object, JSON_COMPACT);
	cr_expect_str_eq(printed, "{\"error\":null,\"reason\":\"a path ?, cut ??\"}");
	free(printed);
	json_decref(object);
}

Test(admin, another_uid_sees_its_own_jobs_only)
{
	struct sess_inquiry inquiry = { .question = SESS_ASK_JOBS };

	fake.job_count = 4; /* of uids 1000 and 1001 in turn */
	sess_answer(room.shard, &room.facts, 1001, &inquiry);
	cr_assert_eq(json_array_size(inquiry.answer), 2);
	json_decref(inquiry.answer);
	inquiry = (struct sess_inquiry){ .question = SESS_ASK_JOBS, .has_job = true };
	(void)snprintf(inquiry.job, sizeof(inquiry.job), "job0");
	sess_answer(room.shard, &room.facts, 1001, &inquiry);
	cr_assert_null(inquiry.answer);
	cr_assert_eq(inquiry.result, -ENOENT);
	cr_assert(!strstr(strstr(inquiry.text.chars, "existing jobs"), "job0"));
	cr_assert(strstr(inquiry.text.chars, "job1, job3"));
}

Test(admin, snapshots_are_made_listed_and_removed)
{
	struct sess_inquiry inquiry = { .question = SESS_ASK_SNAPSHOT_LIST };
	struct client *client = client_connect();
	json_t *answer;

	client_hello(client);
	ask(client, "snapshot create train auto keep=3");
	answer = collect(client);
	cr_assert_str_eq(json_string_value(json_object_get(answer, "name")), "step-5");
	cr_assert_eq(count_of(answer, "step"), 5);
	json_decref(answer);
	ask(client, "snapshot create train/a");
	answer = collect(client);
	cr_assert_str_eq(json_string_value(json_object_get(answer, "name")), "a");
	json_decref(answer);
	ask(client, "snapshot list other");
	answer = collect(client);
	cr_assert_eq(json_array_size(answer), 2);
	cr_assert_str_eq(json_string_value(json_object_get(json_array_get(answer, 0), "job")),
	                 "other");
	json_decref(answer);
	ask(client, "snapshot rm train/a");
	json_decref(collect(client));
	ask(client, "snapshot create none");
	expect_error(client, -ENOENT, "no job 'none'");
	ask(client, "delete train");
	answer = collect(client);
	cr_assert_str_eq(json_string_value(json_object_get(answer, "job")), "train");
	cr_assert_eq(count_of(answer, "step"), 5);
	json_decref(answer);
	ask(client, "delete none");
	expect_error(client, -ENOENT, "no job 'none'");
	client_close(client);
	sess_answer(room.shard, &room.facts, 1001, &inquiry);
	cr_assert_eq(json_array_size(inquiry.answer), 1, "its own only");
	json_decref(inquiry.answer);
}

Test(admin, a_long_answer_waits_for_a_client_that_reads_slowly)
{
	struct client *client = client_connect();
	json_t *answer;

	fake.job_count = 600;
	client_hello(client);
	ask(client, "jobs");
	cr_assert(room.control->sessions[0].reply, "the answer should not fit the socket");
	answer = collect(client);
	cr_assert_eq(json_array_size(answer), 600);
	json_decref(answer);
	ask(client, "limits");
	json_decref(collect(client));
	client_close(client);
}

Test(silence, a_client_that_does_not_read_a_long_answer_is_dropped)
{
	struct client *client;
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));

	room_open();
	client = client_connect();
	fake.job_count = 600;
	client_hello(client);
	room_limit_silence();
	ask(client, "jobs");
	while (room.control->used_count && zi_clock_now_ns() < deadline_ns)
		turn();
	cr_assert_eq(room.control->used_count, 0);
	client_close(client);
	room_close();
}

Test(admin, a_client_that_goes_while_its_question_is_out_is_forgotten)
{
	struct client *client = client_connect();
	struct zi_admin admin = { .command = "status" };

	client_hello(client);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	client_close(client);
	settle();
	cr_assert_eq(room.control->used_count, 0);
}

Test(admin, a_second_question_waits_for_the_first_answer)
{
	struct client *client = client_connect();
	struct zi_admin admin = { .command = "limits" };

	client_hello(client);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
	settle();
	json_decref(collect(client));
	json_decref(collect(client));
	cr_assert_eq(client->in.header.sequence, 3);
	client_close(client);
}

Test(admin, many_messages_at_once_are_taken_a_few_per_turn)
{
	struct client *client = client_connect();
	struct client *other = client_connect();

	client_hello(client);
	/* Nothing here is answered, so only the socket's buffer bounds it. */
	for (int i = 0; i < 5; i++) {
		struct zi_admin admin = { .command = "nonsense" };

		client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	}
	client_hello(other);
	for (int i = 0; i < 5; i++)
		expect_error(client, -EINVAL, "nonsense");
	client_close(client);
	client_close(other);
}
