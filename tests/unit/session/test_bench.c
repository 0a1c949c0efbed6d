/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a measurement is asked for in full, answered when it is over, and holds up nobody
 * meanwhile. Method: a control half turned by hand; a double measures, and is over when told.
 */
#include "nvme/tune.h"
#include "tests/unit/session/room.h"

TestSuite(bench, .init = room_open, .fini = room_close);

/* The double: what it was asked, and what it refuses with. */
static struct {
	struct sess_bench asked;
	char store[ZI_NAME_BYTES];
	uint32_t ask_count;
	int refusal;
} measurer;

static int measure(void *arg, const struct sess_bench *bench, struct zi_text *text)
{
	cr_assert_eq(arg, &measurer);
	if (measurer.refusal)
		return zi_text_error(text, measurer.refusal, "busy with another");
	measurer.ask_count++;
	measurer.asked = *bench;
	(void)snprintf(measurer.store, sizeof(measurer.store), "%s", bench->store);
	return 0;
}

static void finish(int result)
{
	static struct nvme_tune_report report;
	const struct nvme_tuning used = { .read_depth = 7 };
	const struct sess_bench_result done = {
		.store = measurer.store, .report = &report, .used = &used, .save_result = -EROFS
	};

	report = (struct nvme_tune_report){
		.result = result,
		.row_count = 2,
		.rows = { { .direction = NVME_WRITE, .block_bytes = 4096, .depth = 1 },
		          { .direction = NVME_READ, .bytes_per_s = 5, .is_chosen = true } },
		.chosen = { .read_depth = 9 },
	};
	zi_text_set(&report.text, "the disk is gone");
	measurer.asked.done(measurer.asked.arg, &done);
	settle();
}

static struct client *ask(const char *command)
{
	struct client *client = client_connect();
	struct zi_admin admin = { 0 };

	room.facts.bench = measure;
	room.facts.bench_arg = &measurer;
	client_hello(client);
	(void)snprintf(admin.command, sizeof(admin.command), "%s", command);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
	return client;
}

Test(bench, answer_comes_when_it_is_over_and_others_are_answered_meanwhile)
{
	struct client *client = ask("bench nvme fast 5");
	struct client *other;
	json_t *answer, *row;

	cr_assert_eq(measurer.ask_count, 1);
	cr_assert_str_eq(measurer.store, "fast");
	cr_assert_eq(measurer.asked.duration_ns, 5 * ZI_NS_PER_S);
	cr_assert_eq(measurer.asked.uid, getuid());
	cr_assert_eq(client_receive(client), 0, "nothing yet");
	other = ask("limits");
	cr_assert_eq(client_receive(other), ZI_MESSAGE_ADMIN_REPLY);
	finish(0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY);
	answer = json_loadb((char *)client->in.bytes + 16, client->in.header.bytes - 16, 0, NULL);
	cr_assert_str_eq(json_string_value(json_object_get(answer, "store")), "fast");
	cr_assert(json_is_false(json_object_get(answer, "is_kept")));
	cr_assert_eq(
		json_integer_value(json_object_get(json_object_get(answer, "used"), "read_depth")),
		7);
	row = json_array_get(json_object_get(answer, "rows"), 0);
	cr_assert_str_eq(json_string_value(json_object_get(row, "direction")), "write");
	cr_assert(json_is_null(json_object_get(row, "bytes_per_s")), "left out");
	json_decref(answer);
	client_close(client);
	client_close(other);
}

Test(bench, three_seconds_when_none_are_said)
{
	struct client *client = ask("bench nvme fast");

	cr_assert_eq(measurer.asked.duration_ns, 3 * ZI_NS_PER_S);
	finish(-EIO);
	expect_error(client, -EIO, "the disk is gone");
	client_close(client);
}

Test(bench, refusals_are_told_and_cost_nothing)
{
	static const struct {
		const char *command, *words;
		int refusal, error;
	} wrong[] = {
		{ "bench", "bench nvme STORE", 0, -EINVAL },
		{ "bench nvme", "bench nvme STORE", 0, -EINVAL },
		{ "bench tape fast", "bench nvme STORE", 0, -EINVAL },
		{ "bench nvme ../x", "bench nvme STORE", 0, -EINVAL },
		{ "bench nvme fast x", "bench nvme STORE", 0, -EINVAL },
		{ "bench nvme fast 1 2", "bench nvme STORE", 0, -EINVAL },
		{ "bench nvme fast 0", "1 to 60", 0, -EINVAL },
		{ "bench nvme fast 61", "1 to 60", 0, -EINVAL },
		{ "bench nvme fast", "busy with another", -EBUSY, -EBUSY },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct client *client;

		measurer.refusal = wrong[i].refusal;
		client = ask(wrong[i].command);
		expect_error(client, wrong[i].error, wrong[i].words);
		client_close(client);
		settle();
	}
	cr_assert_eq(measurer.ask_count, 0);
	measurer.refusal = 0;
}

Test(bench, daemon_without_a_measurer_says_so)
{
	struct client *client = client_connect();
	struct zi_admin admin = { .command = "bench nvme fast" };

	client_hello(client);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
	expect_error(client, -EOPNOTSUPP, "nothing can be measured");
	client_close(client);
}

Test(bench, client_that_goes_meanwhile_is_forgotten_when_it_is_over)
{
	struct client *client = ask("bench nvme fast");

	client_close(client);
	settle();
	cr_assert_eq(room.control->used_count, 1, "its question is out");
	finish(0);
	cr_assert_eq(room.control->used_count, 0);
}
