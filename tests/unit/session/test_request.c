/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: on its socket an attached client has one request at a time, answered once; what is
 * malformed or out of place ends its session. Method: as in test_shard.c.
 */
#include "common/wire/state.h"
#include "tests/unit/session/room.h"

TestSuite(request, .init = room_open, .fini = room_close);

struct layout_packet {
	struct zi_layout head;
	struct zi_layout_entry entries[2];
};

static void send_layout(struct client *client, const char *unit, const char *param)
{
	struct layout_packet packet = {
		.head = { .entry_count = 2 },
		.entries = { { .kind = ZI_LAYOUT_UNIT },
		             { .kind = ZI_LAYOUT_PARAM, .dim_count = 1, .shape = { 8 } } },
	};

	(void)snprintf(packet.entries[0].name, ZI_PARAM_NAME_BYTES, "%s", unit);
	(void)snprintf(packet.entries[1].name, ZI_PARAM_NAME_BYTES, "%s", param);
	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
}

Test(request, materialize_gives_a_plane_to_read_and_one_to_write)
{
	struct client *client = client_attach();

	send_layout(client, "wte", "wte.weight");
	send_materialize(client, 1, 1);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	cr_assert_eq(client->fd_count, 2);
	cr_assert_eq(client->in.materialized.param_bytes, 8192);
	cr_assert_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, client->fds[0], 0), MAP_FAILED);
	cr_assert_eq(fake.layout_count, 2);
	cr_assert_eq(client->in.materialized.update_count, 0, "an older client has it zero");
	cr_assert_eq(client->in.materialized.loss_scale, 0);
	client_close(client);
}

Test(request, materialize_tells_how_many_steps_changed_the_parameters)
{
	struct client *client = client_attach_with(ZI_FEATURE_TRAINING);

	send_layout(client, "wte", "wte.weight");
	send_materialize(client, 1, 1);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	cr_assert_eq(client->in.materialized.update_count, 77);
	cr_assert_eq(client->in.materialized.loss_scale, 4096);
	client_close(client);
}

Test(request, what_is_wrong_in_the_layout_answers_materialize)
{
	struct client *client = client_attach();

	fake.layout_result = -E2BIG;
	send_layout(client, "wte", "wte.weight");
	settle();
	cr_assert_eq(client_receive(client), 0, "the LAYOUT stream has no replies");
	send_materialize(client, 1, 1);
	expect_error(client, -E2BIG, "fake dislikes 'wte'");
	cr_assert_eq(client->in.header.sequence, client->sequence);
	client_close(client);
}

Test(request, materialize_must_count_what_the_layout_gave)
{
	struct client *client = client_attach();

	send_layout(client, "wte", "wte.weight");
	send_materialize(client, 1, 2);
	expect_error(client, -EINVAL,
	             "MATERIALIZE of 1 units and 2 parameters, but LAYOUT gave 1 and 1");
	client_close(client);
}

Test(request, a_malformed_layout_ends_the_session)
{
	struct client *client = client_attach();
	struct layout_packet packet = { .head = { .entry_count = 2 } };

	packet.entries[0].kind = 77;
	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	expect_end(client, "unknown kind 77");
	client_close(client);
}

Test(request, a_group_of_the_layout_that_can_be_none_is_answered_by_name)
{
	struct client *client = client_attach_with(ZI_FEATURE_TRAINING);
	struct layout_packet packet = {
		.head = { .entry_count = 2 },
		.entries = { { .kind = ZI_LAYOUT_UNIT, .name = "u" },
		             { .kind = ZI_LAYOUT_PARAM, .group = 64, .name = "bias" } }
	};

	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	send_materialize(client, 1, 1);
	expect_error(client, -EINVAL, "parameter 'bias' is of group 64: 0 to 63 are allowed");
	client_close(client);
}

static const struct layout_packet packet_of_set = {
	.head = { .entry_count = 2 },
	.entries = { { .kind = ZI_LAYOUT_SET, .dim_count = 1, .name = "s", .shape = { 1 } },
	             { .kind = ZI_LAYOUT_UNIT, .name = "u" } }
};

Test(request, a_set_is_of_the_layout_and_is_not_counted)
{
	struct client *client = client_attach_with(ZI_FEATURE_SETS);
	struct layout_packet packet = packet_of_set;

	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	send_materialize(client, 1, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	cr_assert_eq(fake.layout_count, 2);
	client_close(client);
}

/* One that has a gradient left is as it ever was. */
Test(request, a_unit_that_is_frozen_whole_is_refused_without_its_feature)
{
	for (uint16_t group = 0; group < 2; group++) {
		struct client *client = client_attach_with(ZI_FEATURE_TRAINING);
		struct {
			struct zi_layout head;
			struct zi_layout_entry entries[3];
		} packet = { .head = { .entry_count = 3 },
			     .entries = { { .kind = ZI_LAYOUT_UNIT, .name = "u" },
			                  { .kind = ZI_LAYOUT_PARAM,
			                    .group = ZI_LAYOUT_FROZEN,
			                    .name = "p" },
			                  { .kind = ZI_LAYOUT_PARAM,
			                    .group = group ? ZI_LAYOUT_FROZEN : 0,
			                    .name = "q" } } };

		client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
		send_materialize(client, 1, 2);
		if (group)
			expect_error(client, -EOPNOTSUPP, "all parameters of a unit are frozen");
		else
			cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
		client_close(client);
	}
}

static struct zi_materialize_nodes materialize_elsewhere(void)
{
	struct zi_materialize_nodes message = {
		.materialize = { .unit_count = 1, .param_count = 0 },
		.rendezvous = { .port = 29501,
		                .host = "first",
		                .interface = "eth0",
		                .token = "secret" },
	};

	return message;
}

Test(request, where_nodes_meet_goes_with_materialize)
{
	struct client *client = client_attach_with(ZI_FEATURE_SETS | ZI_FEATURE_STATE_NODES);
	struct zi_materialize_nodes message = materialize_elsewhere();
	struct layout_packet packet = packet_of_set;

	fake.holds = true;
	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	client_send(client, &message, ZI_MESSAGE_MATERIALIZE, sizeof(message));
	settle();
	cr_assert_eq(fake.held_count, 1);
	cr_expect_str_eq(fake.held[0]->rendezvous_host, "first");
	cr_expect_str_eq(fake.held[0]->interface, "eth0");
	cr_expect_str_eq(fake.held[0]->token, "secret");
	cr_expect_eq(fake.held[0]->rendezvous_port, 29501);
	fake_release(NULL, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	client_close(client);
}

/* One that cannot train over nodes is told, before it holds the others up. */
Test(request, an_older_libzinf_does_not_train_over_nodes)
{
	struct client *client = client_attach_with(ZI_FEATURE_SETS | ZI_FEATURE_NODES);
	struct layout_packet packet = packet_of_set;

	fake.spans_nodes = true;
	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	send_materialize(client, 1, 0);
	expect_error(client, -EOPNOTSUPP, "does not support training over nodes");
	client_close(client);
}

Test(request, where_nodes_meet_without_its_feature_ends_the_session)
{
	struct client *client = client_attach_with(ZI_FEATURE_SETS);
	struct zi_materialize_nodes message = materialize_elsewhere();
	struct layout_packet packet = packet_of_set;

	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	client_send(client, &message, ZI_MESSAGE_MATERIALIZE, sizeof(message));
	expect_end(client, "a tail without feature bit 15");
	client_close(client);
}

Test(request, a_set_without_its_feature_ends_the_session)
{
	struct client *client = client_attach();
	struct layout_packet packet = packet_of_set;

	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	expect_end(client, "a data-parallel group without feature bit 14");
	client_close(client);
}

Test(request, a_group_without_its_feature_ends_the_session)
{
	struct client *client = client_attach();
	struct layout_packet packet = {
		.head = { .entry_count = 2 },
		.entries = { { .kind = ZI_LAYOUT_UNIT, .name = "u" },
		             { .kind = ZI_LAYOUT_PARAM, .group = 2, .name = "bias" } }
	};

	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	expect_end(client, "a group without feature bit 13");
	client_close(client);
}

Test(request, parameters_are_written_through_a_staging_copy)
{
	struct client *client = client_attach();
	struct zi_param_write_begin begin = { .unit = 1 };
	struct zi_param_write_end end = { .unit = 1, .root = 1 };

	send_materialize(client, 0, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	client_send(client, &begin, ZI_MESSAGE_PARAM_WRITE_BEGIN, sizeof(begin));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_PARAM_WRITE);
	cr_assert_eq(client->fd_count, 1);
	client_send(client, &end, ZI_MESSAGE_PARAM_WRITE_END, sizeof(end));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert_not(fake.seen_keeps);
	client_send_flags(client, &end, ZI_MESSAGE_PARAM_WRITE_END, sizeof(end),
	                  ZI_PARAM_WRITE_KEEP);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert(fake.seen_keeps);
	begin.unit = 4;
	client_send(client, &begin, ZI_MESSAGE_PARAM_WRITE_BEGIN, sizeof(begin));
	settle();
	expect_error(client, -EINVAL, "unit 4 of 4");
	end.root = 2;
	client_send(client, &end, ZI_MESSAGE_PARAM_WRITE_END, sizeof(end));
	settle();
	expect_error(client, -EINVAL, "root 2 of 2 ranks");
	client_close(client);
}

Test(request, optimizer_state_goes_through_a_window)
{
	struct client *client = client_attach();
	struct zi_state_range range = {
		.unit = 3, .kind = 9, .first = UINT64_MAX, .count = 7, .root = 5
	};
	struct zi_state_count count = { .update_count = 12, .beta1 = 0.5, .beta2 = 0.25 };

	send_materialize(client, 0, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	client_send_plain(client, ZI_MESSAGE_STATE_OPEN);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_STATE_OPENED);
	cr_assert_eq(client->fd_count, 1);
	client_send(client, &range, ZI_MESSAGE_STATE_WRITE, sizeof(range));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert_eq(fake.seen_state.kind, 9);
	cr_assert_eq(fake.seen_state.first, UINT64_MAX);
	cr_assert_eq(fake.seen_state.count, 7);
	cr_assert_eq(fake.seen_root, 5, "the job's to refuse");
	range.root = 0;
	client_send(client, &range, ZI_MESSAGE_STATE_READ, sizeof(range));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert_eq(fake.seen_root, UINT32_MAX);
	client_send(client, &count, ZI_MESSAGE_STATE_COUNT, sizeof(count));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert_eq(fake.seen_state.update_count, 12);
	cr_assert_eq(fake.seen_state.betas[1], 0.25);
	range.unit = 4;
	client_send(client, &range, ZI_MESSAGE_STATE_READ, sizeof(range));
	settle();
	expect_error(client, -EINVAL, "STATE_READ: unit 4 of 4");
	fake.tensors = tier_segment_unref(fake.tensors);
	fake.holds = true;
	client_send_plain(client, ZI_MESSAGE_STATE_OPEN);
	settle();
	fake.tensors = tier_segment_unref(fake.tensors);
	fake_release(NULL, 0);
	expect_error(client, -ESTALE, "the group ended meanwhile");
	client_close(client);
}

Test(request, a_group_that_ended_before_its_answer_is_told_so)
{
	struct client *client = client_attach();
	struct zi_param_write_begin begin = { .unit = 1 };
	uint32_t unit_count = fake.unit_count;

	fake.unit_count = 0;
	send_materialize(client, 0, 0);
	expect_error(client, -ESTALE, "the group ended meanwhile");
	fake.unit_count = unit_count;
	send_materialize(client, 0, 0);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	fake.holds = true;
	client_send(client, &begin, ZI_MESSAGE_PARAM_WRITE_BEGIN, sizeof(begin));
	settle();
	fake.staging = tier_segment_unref(fake.staging);
	fake_release(NULL, 0);
	expect_error(client, -ESTALE, "the group ended meanwhile");
	client_close(client);
}

Test(request, a_blob_comes_in_pieces)
{
	struct client *client = client_attach();
	uint64_t bytes = 0;

	fake.blob_bytes = sizeof(fake.blob);
	memset(fake.blob, 'b', sizeof(fake.blob));
	client_send_plain(client, ZI_MESSAGE_BLOB_GET);
	settle();
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(client_receive(client), ZI_MESSAGE_BLOB);
		cr_assert_eq(client->in.blob.total_bytes, sizeof(fake.blob));
		cr_assert_eq(!!(client->in.header.flags & ZI_MESSAGE_MORE), i == 0);
		bytes += client->in.header.bytes - sizeof(struct zi_blob);
	}
	cr_assert_eq(bytes, sizeof(fake.blob));
	fake.blob_bytes = 0;
	client_send_plain(client, ZI_MESSAGE_BLOB_GET);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_BLOB);
	cr_assert_eq(client->in.blob.total_bytes, 0);
	client_close(client);
}

Test(request, a_second_request_while_one_is_pending_ends_the_session)
{
	struct client *client = client_attach();

	fake.holds = true;
	send_materialize(client, 0, 0);
	client_send_plain(client, ZI_MESSAGE_BLOB_GET);
	expect_end(client, "BLOB_GET while MATERIALIZE is pending");
	client_close(client);
}

Test(request, detach_may_be_asked_for_while_a_request_is_pending)
{
	struct client *client = client_attach();

	fake.holds = true;
	send_materialize(client, 0, 0);
	client_send_plain(client, ZI_MESSAGE_DETACH);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert_eq(client->in.header.sequence, client->sequence);
	cr_assert_eq(client_receive(client), -1);
	cr_assert(rank_of(0)->is_clean);
	cr_assert_eq(room.control->used_count, 0);
	client_close(client);
}

Test(request, destroy_is_answered_and_ends_the_session_when_it_succeeds)
{
	struct client *client = client_attach();

	fake.result = -EBUSY;
	client_send_plain(client, ZI_MESSAGE_DESTROY);
	settle();
	expect_error(client, -EBUSY, "fake says");
	cr_assert_eq(room.shard->polled_count, 1);
	fake.result = 0;
	client_send_plain(client, ZI_MESSAGE_DESTROY);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_DONE);
	cr_assert_eq(client_receive(client), -1);
	cr_assert_eq(room.control->used_count, 0);
	client_close(client);
}

Test(request, garbage_and_messages_out_of_place_end_the_session)
{
	struct client *client = client_attach();
	struct client *other = client_attach();
	struct zi_attach attach = attach_template();

	cr_assert_eq(send(client->fd, "xyz", 3, 0), 3);
	client_send(other, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	cr_assert(strstr(rank_of(0)->reason, "no message of zinf"));
	cr_assert(strstr(rank_of(1)->reason, "unexpected ATTACH in a session"));
	cr_assert_eq(room.control->used_count, 0);
	client_close(client);
	client_close(other);
}

Test(request, a_client_that_does_not_read_its_answers_loses_its_session)
{
	struct client *client = client_attach();

	for (int i = 0; i < 10000 && room.shard->polled_count; i++) {
		struct zi_message_header header;

		zi_message_init(&header, ZI_MESSAGE_BLOB_GET, sizeof(header), 1);
		(void)zi_message_send(client->fd, &header, NULL, 0); /* full: it has its turn */
		turn();
	}
	expect_end(client, "does not read its socket");
	client_close(client);
}
