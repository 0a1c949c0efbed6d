/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: before it is attached, a connection can do nothing but introduce itself, ask, and attach
 * within the limits; whoever does anything else, or nothing, or too much of it, loses its own
 * connection and hears why. Method: socket pairs into a control half that is turned by hand.
 */
#include "tests/harness/patience.h"
#include "tests/unit/session/room.h"

TestSuite(control, .init = room_open, .fini = room_close);

Test(control, hello_is_answered_with_the_version_and_the_features_there_are)
{
	struct client *client = client_connect();

	room.facts.nvme_tier_count = 0;
	client_hello(client);
	cr_assert_eq(client->in.hello.major, ZI_PROTOCOL_MAJOR);
	cr_assert_eq(client->in.hello.features,
	             ZI_FEATURE_EARLY | ZI_FEATURE_SNAPSHOTS | ZI_FEATURE_INTERVAL |
	                     ZI_FEATURE_IO_WEIGHT | ZI_FEATURE_TENSORS | ZI_FEATURE_PERIODIC |
	                     ZI_FEATURE_NODES | ZI_FEATURE_COLLECTIVES | ZI_FEATURE_NUMA |
	                     ZI_FEATURE_COLL_ABORT | ZI_FEATURE_COLL_VERSION | ZI_FEATURE_TRAINING |
	                     ZI_FEATURE_SETS | ZI_FEATURE_STATE_NODES | ZI_FEATURE_FROZEN |
	                     ZI_FEATURE_FORWARD | ZI_FEATURE_LOST | ZI_FEATURE_STEPS |
	                     ZI_FEATURE_STATE | ZI_FEATURE_EXIST | ZI_FEATURE_GPU | ZI_FEATURE_PART,
	             "and no NVMe");
	cr_assert_eq(client->in.hello.coll_version, ZI_COLL_VERSION);
	cr_assert_eq(client->in.header.sequence, 1);
	client_close(client);
	settle();
	cr_assert_eq(room.control->used_count, 0);
}

Test(control, another_minor_version_is_welcome)
{
	struct client *client = client_connect();
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR, .minor = 900, .features = ~0ull };

	client_send(client, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_HELLO);
	client_close(client);
}

Test(control, another_major_version_is_refused_with_both_versions)
{
	struct client *client = client_connect();
	struct zi_hello hello = { .major = 7, .minor = 3, .program = "old libzinf" };

	client_send(client, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	settle();
	expect_error(client, -EPROTONOSUPPORT, "old libzinf speaks protocol 7.3");
	cr_assert(strstr(client->in.error.text.chars, "speaks 1.0"));
	cr_assert_eq(client_receive(client), -1);
	client_close(client);
}

Test(control, garbage_ends_the_connection_that_sent_it_and_no_other)
{
	static const char garbage[] = "GET / HTTP/1.1";
	struct client *good = client_connect();
	struct client *bad = client_connect();

	cr_assert_eq(send(bad->fd, garbage, sizeof(garbage), 0), (ssize_t)sizeof(garbage));
	settle();
	expect_error(bad, -EPROTO, "no message of zinf");
	cr_assert_eq(client_receive(bad), -1);
	client_hello(good);
	client_close(good);
	client_close(bad);
}

Test(control, a_lying_length_a_wrong_length_and_an_unknown_type_are_refused)
{
	struct zi_message_header headers[3];

	zi_message_init(&headers[0], ZI_MESSAGE_HELLO, sizeof(headers[0]), 1);
	headers[1] = headers[0];
	headers[1].bytes = 4000;
	headers[2] = headers[0];
	headers[2].type = 999;
	for (int i = 0; i < 3; i++) {
		struct client *client = client_connect();

		cr_assert_eq(send(client->fd, &headers[i], sizeof(headers[i]), 0), 16);
		settle();
		expect_error(client, -EPROTO, "");
		cr_assert_eq(client_receive(client), -1);
		client_close(client);
	}
	cr_assert_eq(room.control->used_count, 0);
}

Test(control, nothing_is_answered_before_hello_and_hello_only_once)
{
	struct client *client = client_connect();
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR };

	client_send_plain(client, ZI_MESSAGE_DETACH);
	settle();
	expect_error(client, -EPROTO, "unexpected DETACH, HELLO was awaited");
	client_close(client);
	client = client_connect();
	client_hello(client);
	client_send(client, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	settle();
	expect_error(client, -EPROTO, "unexpected HELLO, ATTACH or ADMIN was awaited");
	cr_assert_eq(client_receive(client), -1);
	client_close(client);
}

Test(control, descriptors_sent_along_are_closed)
{
	struct client *client = client_connect();
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR };
	int pipe_fds[2];
	char byte;

	cr_assert_eq(pipe(pipe_fds), 0);
	zi_message_init(&hello.header, ZI_MESSAGE_HELLO, sizeof(hello), 1);
	cr_assert_eq(zi_message_send(client->fd, &hello.header, &pipe_fds[1], 1), 0);
	(void)zi_close(pipe_fds[1]);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_HELLO);
	cr_assert_eq(read(pipe_fds[0], &byte, 1), 0, "the daemon keeps the write end open");
	(void)zi_close(pipe_fds[0]);
	client_close(client);
}

/* Turns until the connection is closed, a second at most. */
static bool is_dropped_in_time(struct client *client)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));

	while (zi_clock_now_ns() < deadline_ns) {
		turn();
		if (client_receive(client) == -1)
			return true;
	}
	return false;
}

Test(control_silence, a_connection_that_says_nothing_is_dropped)
{
	struct client *silent;
	struct client *greeted;

	room_open();
	greeted = client_connect();
	room_limit_silence();
	silent = client_connect();
	cr_assert(is_dropped_in_time(silent));
	client_hello(greeted);
	cr_assert(is_dropped_in_time(greeted));
	cr_assert_eq(room.control->used_count, 0);
	client_close(silent);
	client_close(greeted);
	room_close();
}

Test(control, a_flood_of_connections_pushes_out_the_silent_and_never_one_that_speaks)
{
	enum { PLACES = 64, FLOOD = PLACES + 20 };
	struct client *flood[FLOOD];
	struct client *client;
	int dropped = 0;

	for (int i = 0; i < FLOOD; i++)
		flood[i] = client_connect();
	client = client_connect();
	client_hello(client);
	for (int i = 0; i < FLOOD; i++)
		dropped += client_receive(flood[i]) == -1;
	cr_assert_eq(dropped, 21);
	cr_assert_eq(client_receive(flood[0]), -1, "the oldest go first");
	cr_assert_eq(client_receive(flood[FLOOD - 1]), 0);
	for (int i = 0; i < FLOOD; i++)
		client_close(flood[i]);
	client_close(client);
	settle();
	cr_assert_eq(room.control->used_count, 0);
}

/* ---- attach ---- */

Test(control, client_that_cannot_map_what_comes_and_goes_is_refused_parameters_on_nvme)
{
	struct client *client = client_connect();
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR, .features = ZI_FEATURE_NVME_STATE };
	struct zi_attach attach = attach_template();

	room.facts.nvme_tier_count = 1;
	client_send(client, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_HELLO);
	cr_assert(client->in.hello.features & ZI_FEATURE_NVME_PARAM);
	attach.config.offload_optimizer = attach.config.offload_param = ZI_OFFLOAD_NVME;
	client_send(client, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	expect_error(client, -EPROTONOSUPPORT, "use a newer libzinf");
	client_close(client);
}

static void refused_attach(const struct zi_attach *wanted, int error, const char *words)
{
	struct client *client = client_connect();
	struct zi_attach attach = *wanted;

	client_hello(client);
	client_send(client, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	expect_error(client, error, words);
	cr_assert_eq(client_receive(client), -1);
	client_close(client);
}

Test(control, an_attach_with_wrong_values_is_refused_with_what_is_allowed)
{
	struct zi_attach attach = attach_template();

	attach.rank = 2;
	refused_attach(&attach, -EINVAL, "rank 2 of a world of 2");
	attach = attach_template();
	(void)snprintf(attach.job, sizeof(attach.job), "../../etc");
	refused_attach(&attach, -EINVAL, "job name '../../etc'");
	attach = attach_template();
	attach.flags = 1u << 9;
	refused_attach(&attach, -EPROTO, "unknown flags");
	cr_assert_eq(room.control->attached_count, 0);
}

/* @features: of HELLO. Return: the client, which sent ATTACH. */
static struct client *attach_as(uint64_t features, struct zi_attach *attach, size_t bytes)
{
	struct client *client = client_connect();
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR, .features = features };

	client_send(client, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_HELLO);
	client_send(client, attach, ZI_MESSAGE_ATTACH, bytes);
	settle();
	return client;
}

/* The same with the tail. */
static struct client *attach_with(uint64_t features, const struct zi_job_training *training)
{
	struct zi_attach_training attach = { .attach = attach_template(), .training = *training };

	return attach_as(features, &attach.attach, sizeof(attach));
}

Test(control, how_a_job_trains_reaches_zero_and_what_is_not_built_is_refused_by_name)
{
	const struct zi_job_training good = { .strategy = ZI_STRATEGY_ZERO1, .shard_size = 2 };
	const struct {
		struct zi_job_training training;
		int error;
		const char *words;
	} cases[] = {
		{ { .grad_budget_bytes = 1 }, -EINVAL, "but strategy ddp keeps all gradients" },
		{ { .group_count = 65 }, -EINVAL, "group_count is 65: 0 to 64 are allowed" },
		{ { .strategy = 9 }, -EINVAL, "strategy is 9: 0 to 5 are allowed" },
		{ { .reserved0 = 1 }, -EPROTO, "reserved words are set" },
		{ { .flags = ZI_TRAINING_FORWARD_ONLY },
		  -EOPNOTSUPP,
		  "is_forward_only is true, but this libzinf does not support it" },
	};
	struct client *client = client_attach();

	cr_assert_eq(rank_of(0)->attach.training.strategy, 0, "no tail: as ever");
	client_close(client);
	client = attach_with(ZI_FEATURE_TRAINING, &good);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ATTACHED, "%s",
	             client->in.error.text.chars);
	cr_assert_eq(memcmp(&rank_of(1)->attach.training, &good, sizeof(good)), 0);
	client_close(client);
	client = attach_with(ZI_FEATURE_TRAINING | ZI_FEATURE_FORWARD,
	                     &(struct zi_job_training){ .flags = ZI_TRAINING_FORWARD_ONLY });
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ATTACHED, "%s",
	             client->in.error.text.chars);
	client_close(client);
	client = attach_with(0, &good);
	expect_error(client, -EPROTO, "ATTACH of 400 bytes without feature bit 13");
	client_close(client);
	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		client = attach_with(ZI_FEATURE_TRAINING, &cases[i].training);
		expect_error(client, cases[i].error, cases[i].words);
		cr_assert_eq(client_receive(client), -1);
		client_close(client);
	}
}

Test(control, a_job_that_must_exist_is_asked_for_with_its_feature_alone)
{
	struct zi_attach attach = attach_template();
	struct client *client;

	attach.flags = ZI_ATTACH_MUST_EXIST;
	client = attach_as(0, &attach, sizeof(attach));
	expect_error(client, -EPROTO, "ATTACH with flag 1 without feature bit 24");
	client_close(client);
	client = attach_as(ZI_FEATURE_EXIST, &attach, sizeof(attach));
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ATTACHED, "%s",
	             client->in.error.text.chars);
	cr_assert(rank_of(0)->attach.must_exist);
	client_close(client);
}

Test(control, what_zero_refuses_is_told_and_leaves_nothing)
{
	struct zi_attach attach = attach_template();

	fake.attach_result = -EACCES;
	refused_attach(&attach, -EACCES, "fake refuses 'train'");
	cr_assert_eq(room.control->attached_count, 0);
	cr_assert_eq(room.control->used_count, 0);
	cr_assert_eq(room.tier.used_bytes, 0, "rings of a refused attach");
	cr_assert_eq(tier_holders_count(room.holders), 0);
}

Test(control, rings_that_do_not_fit_are_refused_with_the_figure)
{
	struct zi_attach attach = attach_template();
	uint64_t capacity_bytes = room.tier.capacity_bytes;

	room.tier.capacity_bytes = 4096;
	refused_attach(&attach, -ENOSPC, "4 KiB");
	cr_assert_eq(room.tier.used_bytes, 0);
	room.tier.capacity_bytes = capacity_bytes;
}

Test(control, sessions_beyond_the_limit_are_refused_with_the_figure)
{
	struct zi_attach attach = attach_template();
	struct client *clients[4];

	for (int i = 0; i < 4; i++)
		clients[i] = client_attach();
	refused_attach(&attach, -EMFILE, "all 4 sessions are in use (limits.sessions)");
	client_close(clients[0]);
	for (int i = 1; i < 4; i++)
		client_close(clients[i]);
}

Test(uid, sessions_of_one_uid_beyond_the_limit_are_refused_with_the_figure)
{
	struct zi_attach attach = attach_template();
	struct client *client;

	room_open_with(4, 1);
	client = client_attach();
	refused_attach(&attach, -EMFILE, "1 sessions, 1 are allowed (limits.sessions_per_uid)");
	client_close(client);
	room_close();
}
