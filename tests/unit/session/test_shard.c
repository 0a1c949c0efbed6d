/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an attached client can use its rings and its socket and nothing else: what it lies about costs
 * its own session, its operations come back exactly once, it is told when its group breaks or the
 * daemon stops, and when it is gone nothing of it is left. Method: both halves turned by hand over a
 * fake zero; the client's ends of rings and socket are driven from the same thread.
 */
#include "tests/unit/session/room.h"

#include <sys/wait.h>

TestSuite(shard, .init = room_open, .fini = room_close);

/* The only session there is, or was. */
static struct zero_rank *rank_of(uint32_t index)
{
	cr_assert_lt(index, fake.rank_count);
	return &fake.ranks[index];
}

static void expect_end(struct client *client, const char *reason)
{
	settle();
	cr_assert_eq(room.shard->polled_count, 0);
	cr_assert_not(rank_of(0)->is_attached);
	cr_assert_not(rank_of(0)->is_clean);
	cr_assert(strstr(rank_of(0)->reason, reason), "'%s' is not in '%s'", reason,
	          rank_of(0)->reason);
	while (client_receive(client) > 0)
		continue;
	cr_assert_eq(room.control->used_count, 0);
}

/* ---- attach ---- */

Test(shard, attach_gives_rings_of_which_one_cannot_be_written_and_two_doorbells)
{
	struct client *client = client_attach();
	void *base;

	cr_assert_eq(client->in.attached.ring_entries, 16);
	cr_assert_eq(client->in.attached.incarnation_number, 9);
	base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, client->fds[1], 0);
	cr_assert_eq(base, MAP_FAILED, "the downlink was mapped writable");
	cr_assert_eq(mprotect(client->downlink, 4096, PROT_READ | PROT_WRITE), -1);
	cr_assert_eq(ftruncate(client->fds[0], 0), -1, "the uplink is not sealed");
	cr_assert_eq(rank_of(0)->attach.pid, getpid());
	cr_assert_eq(rank_of(0)->attach.timeout_ns, ZI_NS_PER_S);
	client_close(client);
}

/* ---- rings ---- */

Test(shard, an_empty_request_comes_back_and_its_sleeping_client_is_woken)
{
	struct client *client = client_attach();
	struct pollfd doorbell = { .fd = client->fds[3], .events = POLLIN };
	struct zi_cqe cqe;

	cr_assert(zi_ring_arm(&client->cq));
	client_submit(client, ZI_OP_NOP, 0, 0x1234);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.user_data, 0x1234);
	cr_assert_eq(cqe.result, 0);
	cr_assert_eq(cqe.text_index, 0);
	cr_assert_eq(poll(&doorbell, 1, 0), 1, "the client was left asleep");
	cr_assert_eq(fake.op_count, 0, "an empty request is the session's own");
	client_close(client);
}

Test(shard, a_client_that_is_awake_is_not_rung)
{
	struct client *client = client_attach();
	struct pollfd doorbell = { .fd = client->fds[3], .events = POLLIN };

	client_submit(client, ZI_OP_NOP, 0, 1);
	turn();
	(void)client_reap(client);
	cr_assert_eq(poll(&doorbell, 1, 0), 0);
	client_close(client);
}

Test(shard, each_opcode_reaches_zero_with_its_unit)
{
	static const uint16_t opcodes[] = { ZI_OP_UNSHARD,      ZI_OP_RESHARD, ZI_OP_PREFETCH,
		                            ZI_OP_GRAD_ACQUIRE, ZI_OP_REDUCE,  ZI_OP_BARRIER,
		                            ZI_OP_STEP,         ZI_OP_COMMIT };
	struct client *client = client_attach();
	struct zi_materialize materialize = { 0 };

	client_send(client, &materialize, ZI_MESSAGE_MATERIALIZE, sizeof(materialize));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	fake.op_count = 0;
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++) {
		bool has_unit = opcodes[i] <= ZI_OP_REDUCE;
		struct zi_cqe cqe;

		client_submit(client, opcodes[i], has_unit ? 3 : 0, i);
		turn();
		cqe = client_reap(client);
		cr_assert_eq(cqe.user_data, i);
		cr_assert_eq(cqe.result, 0, "%s: %d", zi_opcode_name(opcodes[i]), cqe.result);
		cr_assert_eq(cqe.values[0],
		             opcodes[i] >= ZI_OP_STEP && opcodes[i] <= ZI_OP_COMMIT ? 77u : 0u);
	}
	cr_assert_eq(fake.op_count, 8);
	client_close(client);
}

Test(shard, a_failed_operation_brings_its_text)
{
	struct client *client = client_attach();
	struct zi_cqe cqe;

	fake.result = -ETIMEDOUT;
	client_submit(client, ZI_OP_BARRIER, 0, 1);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.result, -ETIMEDOUT);
	cr_assert_str_eq(client_text(client, &cqe), "fake says -110");
	client_close(client);
}

Test(shard, a_bad_argument_fails_the_operation_and_not_the_session)
{
	struct client *client = client_attach();
	struct zi_cqe cqe;

	client_submit(client, ZI_OP_UNSHARD, 0, 5); /* nothing is materialised */
	client_submit(client, ZI_OP_NOP, 0, 6);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.user_data, 5);
	cr_assert_eq(cqe.result, -EINVAL);
	cr_assert_str_eq(client_text(client, &cqe), "unshard: unit 0 of 0");
	cr_assert_eq(client_reap(client).result, 0);
	cr_assert_eq(room.shard->polled_count, 1);
	client_close(client);
}

Test(shard, an_unknown_opcode_ends_the_session_and_no_other)
{
	struct client *client = client_attach();
	struct client *other = client_attach();

	client_submit(client, 999, 0, 1);
	settle();
	cr_assert_not(rank_of(0)->is_attached);
	cr_assert(strstr(rank_of(0)->reason, "unknown opcode 999"));
	cr_assert(rank_of(1)->is_attached);
	client_submit(other, ZI_OP_NOP, 0, 2);
	turn();
	cr_assert_eq(client_reap(other).user_data, 2);
	client_close(client);
	client_close(other);
}

Test(shard, a_lying_tail_ends_the_session)
{
	struct client *client = client_attach();

	zi_line_store(&((struct zi_uplink_header *)(void *)client->uplink)->sq_tail, 1000);
	expect_end(client, "a ring index lies");
	client_close(client);
}

Test(shard, a_lying_head_ends_the_session)
{
	struct client *client = client_attach();

	for (int i = 0; i < 8; i++)
		client_submit(client, ZI_OP_NOP, 0, 1);
	turn();
	zi_line_store(&((struct zi_uplink_header *)(void *)client->uplink)->cq_head, 4000);
	for (int i = 0; i < 8; i++)
		client_submit(client, ZI_OP_NOP, 0, 1);
	expect_end(client, "a ring index lies");
	client_close(client);
}

Test(shard, a_head_turned_back_ends_the_session)
{
	struct client *client = client_attach();
	struct zi_uplink_header *uplink = (void *)client->uplink;

	fake.holds = true;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 8; i++)
			client_submit(client, ZI_OP_BARRIER, 0, 1);
		turn();
		if (round)
			break;
		fake_release(NULL, 0);
		turn();
		for (int i = 0; i < 8; i++)
			(void)client_reap(client);
	}
	/* Eight are pending, for which there were places when they were taken. */
	zi_line_store(&uplink->cq_head, (uint32_t)-1);
	fake_release(NULL, 0);
	settle();
	client_submit(client, ZI_OP_NOP, 0, 1);
	expect_end(client, "ring index lies");
	client_close(client);
}

Test(shard, scribbling_over_the_uplink_ends_at_most_the_session)
{
	struct client *client = client_attach();
	struct client *other = client_attach();
	uint32_t seed = 12345;

	for (int round = 0; round < 200; round++) {
		for (uint64_t i = 0; i < client->uplink_bytes / 4; i++) {
			seed = seed * 1664525 + 1013904223;
			((uint32_t *)(void *)client->uplink)[i] = seed >> (round % 32);
		}
		turn();
	}
	settle();
	cr_assert(rank_of(1)->is_attached);
	client_submit(other, ZI_OP_NOP, 0, 2);
	turn();
	cr_assert_eq(client_reap(other).user_data, 2);
	client_close(client);
	client_close(other);
}

Test(shard, a_client_that_does_not_reap_stops_itself_alone_and_loses_nothing)
{
	struct client *client = client_attach();
	struct client *other = client_attach();
	uint64_t next = 0, seen = 0;
	uint64_t deadline_ns = zi_clock_deadline_ns(5 * ZI_NS_PER_S);

	for (int i = 0; i < 16; i++)
		client_submit(client, ZI_OP_NOP, 0, next++);
	settle();
	for (int i = 0; i < 16; i++)
		client_submit(client, ZI_OP_NOP, 0, next++); /* the SQ is free, the CQ is full */
	settle();
	client_submit(other, ZI_OP_NOP, 0, 7);
	turn();
	cr_assert_eq(client_reap(other).user_data, 7);
	cr_assert(room.shard->polled[0]->is_stalled);
	/* Nothing rings when it reaps: the shard looks again by itself. */
	while (seen < next && zi_clock_now_ns() < deadline_ns) {
		struct zi_cqe cqe;

		if (zi_ring_pop(&client->cq, &cqe) == 0)
			cr_assert_eq(cqe.user_data, seen++);
		else
			turn();
	}
	cr_assert_eq(seen, 32);
	client_close(client);
	client_close(other);
}

Test(shard, a_session_has_its_share_of_pending_operations_and_no_more)
{
	struct client *client = client_attach();
	struct client *other = client_attach();

	fake.holds = true;
	for (int i = 0; i < 16; i++)
		client_submit(client, ZI_OP_BARRIER, 0, i);
	settle();
	cr_assert_eq(fake.held_count, 8, "8 × 4 operations for 4 sessions");
	client_submit(other, ZI_OP_BARRIER, 0, 99);
	turn();
	cr_assert_eq(fake.held_count, 9, "another's share is untouched");
	fake_release(rank_of(0), 0);
	settle();
	cr_assert_eq(fake.held_count, 9, "the rest was taken");
	fake_release(NULL, 0);
	settle();
	for (int i = 0; i < 16; i++)
		cr_assert_eq(client_reap(client).user_data, i);
	client_close(client);
	client_close(other);
}

/* ---- steps ---- */

static struct zi_step_options good_options(void)
{
	struct zi_step_options options = { .lr = 1e-3,
		                           .beta1 = 0.9,
		                           .beta2 = 0.999,
		                           .eps = 1e-8,
		                           .unscale = 1,
		                           .micro_batches = 1 };

	return options;
}

Test(shard, step_options_are_copied_checked_and_handed_on)
{
	struct client *client = client_attach();
	struct zi_uplink_header *uplink = (void *)client->uplink;
	struct zi_cqe cqe;

	uplink->step_options = good_options();
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 1);
	turn();
	cr_assert_eq(client_reap(client).result, 0);
	cr_assert_eq(fake.options.lr, 1e-3);
	uplink->step_options.lr = -1;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 2);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.result, -EINVAL);
	cr_assert(strstr(client_text(client, &cqe), "lr is -1"));
	uplink->step_options = good_options();
	uplink->step_options.reserved[3] = 1;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 3);
	expect_end(client, "reserved words");
	cr_assert_eq(fake.op_count, 1);
	client_close(client);
}

Test(shard, a_step_brings_its_blob_its_number_and_its_statistics)
{
	struct client *client = client_attach();
	struct zi_sqe sqe = { .user_data = 1, .opcode = ZI_OP_STEP, .args = { 5 } };
	struct zi_cqe cqe;

	memcpy(client->uplink + zi_uplink_blob_offset(16), "dough", 5);
	cr_assert_eq(zi_ring_push(&client->sq, &sqe), 0);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.result, 0);
	cr_assert_eq(cqe.values[0], 77);
	cr_assert_str_eq(fake.seen_blob, "dough");
	cr_assert_eq(((struct zi_downlink_header *)(void *)client->downlink)->stats.step, 77);
	client_close(client);
}

Test(shard, a_blob_beyond_the_limit_fails_the_step_and_names_the_limit)
{
	struct client *client = client_attach();
	struct zi_sqe sqe = { .opcode = ZI_OP_STEP, .args = { ZI_BLOB_BYTES + 1 } };
	struct zi_cqe cqe;

	cr_assert_eq(zi_ring_push(&client->sq, &sqe), 0);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.result, -EINVAL);
	cr_assert_eq(cqe.values[0], 0);
	cr_assert(strstr(client_text(client, &cqe), "65537"));
	client_close(client);
}

/* ---- spinning ---- */

Test(shard, spinning_stops_when_there_are_more_busy_threads_than_cpus)
{
	struct client *first = client_attach();
	struct zi_downlink_header *downlink = (void *)first->downlink;
	struct client *second;

	cr_assert_gt(sess_poller.spin_ns(room.shard), 0, "one rank and the shard on two CPUs");
	cr_assert_eq(zi_line_load(&downlink->spin_us), 50);
	fake.holds = true;
	client_submit(first, ZI_OP_REDUCE, 0, 1);
	turn();
	cr_assert_gt(sess_poller.spin_ns(room.shard), 0, "refused: nothing is materialised");
	client_submit(first, ZI_OP_STEP, 0, 1);
	turn();
	cr_assert_eq(sess_poller.spin_ns(room.shard), 0, "two pool threads compute");
	fake_release(NULL, 0);
	cr_assert_gt(sess_poller.spin_ns(room.shard), 0);
	second = client_attach();
	cr_assert_eq(sess_poller.spin_ns(room.shard), 0);
	cr_assert_eq(zi_line_load(&downlink->spin_us), 0);
	client_send_plain(second, ZI_MESSAGE_DETACH);
	settle();
	cr_assert_eq(zi_line_load(&downlink->spin_us), 50);
	client_close(first);
	client_close(second);
}

/* ---- requests ---- */

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

	strcpy(packet.entries[0].name, unit);
	strcpy(packet.entries[1].name, param);
	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
}

static void send_materialize(struct client *client, uint32_t unit_count, uint32_t param_count)
{
	struct zi_materialize message = { .unit_count = unit_count, .param_count = param_count };

	client_send(client, &message, ZI_MESSAGE_MATERIALIZE, sizeof(message));
	settle();
}

Test(shard, materialize_gives_a_plane_to_read_and_one_to_write)
{
	struct client *client = client_attach();

	send_layout(client, "wte", "wte.weight");
	send_materialize(client, 1, 1);
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	cr_assert_eq(client->fd_count, 2);
	cr_assert_eq(client->in.materialized.param_bytes, 8192);
	cr_assert_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, client->fds[0], 0), MAP_FAILED);
	cr_assert_eq(fake.layout_count, 2);
	client_close(client);
}

Test(shard, what_is_wrong_in_the_layout_answers_materialize)
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

Test(shard, materialize_must_count_what_the_layout_gave)
{
	struct client *client = client_attach();

	send_layout(client, "wte", "wte.weight");
	send_materialize(client, 1, 2);
	expect_error(client, -EINVAL,
	             "MATERIALIZE of 1 units and 2 parameters, but LAYOUT gave 1 and 1");
	client_close(client);
}

Test(shard, a_malformed_layout_ends_the_session)
{
	struct client *client = client_attach();
	struct layout_packet packet = { .head = { .entry_count = 2 } };

	packet.entries[0].kind = 77;
	client_send(client, &packet, ZI_MESSAGE_LAYOUT, sizeof(packet));
	expect_end(client, "unknown kind 77");
	client_close(client);
}

Test(shard, parameters_are_written_through_a_staging_copy)
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

Test(shard, a_blob_comes_in_pieces)
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

Test(shard, a_second_request_while_one_is_pending_ends_the_session)
{
	struct client *client = client_attach();

	fake.holds = true;
	send_materialize(client, 0, 0);
	client_send_plain(client, ZI_MESSAGE_BLOB_GET);
	expect_end(client, "BLOB_GET while MATERIALIZE is pending");
	client_close(client);
}

Test(shard, detach_may_be_asked_for_while_a_request_is_pending)
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

Test(shard, destroy_is_answered_and_ends_the_session_when_it_succeeds)
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

Test(shard, garbage_and_messages_out_of_place_end_the_session)
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

Test(shard, a_client_that_does_not_read_its_answers_loses_its_session)
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

/* ---- the end ---- */

Test(shard, a_broken_group_is_told_everywhere_and_leaves_only_leaving)
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

Test(shard, texts_carry_words_and_nothing_of_the_daemons_memory)
{
	struct client *client = client_attach();
	struct zi_text text;
	struct zi_cqe cqe;

	memset(&text, 'S', sizeof(text)); /* what a stack may hold */
	strcpy(text.chars, "rank 1 died");
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
	uint64_t deadline_ns = zi_clock_deadline_ns(5 * ZI_NS_PER_S);

	while (rank->is_attached && zi_clock_now_ns() < deadline_ns)
		turn();
	cr_assert_not(rank->is_attached);
	settle();
}

Test(shard, a_socket_closed_by_a_living_process_ends_the_session)
{
	struct client *client = client_attach();
	uint64_t started_ns = zi_clock_now_ns();

	client_close(client);
	await_leave(rank_of(0));
	cr_assert_not(rank_of(0)->is_clean);
	cr_assert(strstr(rank_of(0)->reason, "closed its socket without detaching"));
	cr_assert_lt(zi_clock_now_ns() - started_ns, ZI_NS_PER_S);
	cr_assert_eq(room.control->used_count, 0);
	cr_assert_eq(zi_pool_used_count(&room.shard->ops), 0);
}

Test(shard, operations_pending_at_the_end_come_back_before_the_memory_goes)
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

Test(shard, a_killed_process_is_named_and_its_memory_comes_back)
{
	char directory[] = "/tmp/zinf-test.XXXXXX";
	char path[64];
	struct pollfd ready;
	int pipe_fds[2];
	int listen_fd;
	pid_t pid;
	char expected[64];
	uint64_t deadline_ns = zi_clock_deadline_ns(5 * ZI_NS_PER_S);

	cr_assert(mkdtemp(directory));
	(void)snprintf(path, sizeof(path), "%s/sock", directory);
	cr_assert_eq(zi_control_listen(path, 0600, NULL, &listen_fd), 0);
	cr_assert_eq(sess_control_listen(room.control, listen_fd), 0);
	cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	pid = fork_client(path, pipe_fds[1]);
	ready = (struct pollfd){ .fd = pipe_fds[0], .events = POLLIN };
	while (poll(&ready, 1, 0) != 1 && zi_clock_now_ns() < deadline_ns)
		turn();
	cr_assert_eq(room.shard->polled_count, 1);
	cr_assert_gt(room.tier.used_bytes, 0);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	await_leave(rank_of(0));
	(void)snprintf(expected, sizeof(expected), "process %d died", pid);
	cr_assert_str_eq(rank_of(0)->reason, expected);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	while (room.tier.used_bytes && zi_clock_now_ns() < deadline_ns)
		turn();
	cr_assert_eq(room.tier.used_bytes, 0);
	(void)unlink(path);
	(void)rmdir(directory);
	(void)zi_close(pipe_fds[0]);
	(void)zi_close(pipe_fds[1]);
}

Test(shard, a_stop_is_told_to_everyone_and_refuses_newcomers)
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
