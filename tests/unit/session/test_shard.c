/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an attached client can use its rings and its socket and nothing else: what it lies about
 * costs its own session, its operations come back exactly once, it is told when its group breaks or
 * the daemon stops, and when it is gone nothing of it is left. Method: both halves turned by hand
 * over a fake zero; the client's ends of rings and socket are driven from the same thread.
 */
#include "daemon/session/poll.h"
#include "tests/harness/patience.h"
#include "tests/unit/session/room.h"

TestSuite(shard, .init = room_open, .fini = room_close);

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

Test(shard, attached_names_the_lost_step_to_a_client_that_knows_of_it)
{
	struct client *client;

	fake.lost_step = 41;
	client = client_attach_with(ZI_FEATURE_LOST);
	cr_expect_eq(client->in.attached.lost_step, 41);
	client_close(client);
	settle();
	client = client_attach_with(0);
	cr_expect_eq(client->in.attached.lost_step, 0, "an older client checks that it is zero");
	client_close(client);
}

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

Test(shard, part_of_a_unit_reaches_zero_with_its_runs)
{
	struct client *client = client_attach();
	struct zi_materialize materialize = { 0 };
	struct zi_sqe sqe = { .user_data = 9,
		              .opcode = ZI_OP_UNSHARD_PART,
		              .unit = 3,
		              .args = { UINT64_MAX, 1, 0, 0, 0, 1ull << 63 } };

	client_send(client, &materialize, ZI_MESSAGE_MATERIALIZE, sizeof(materialize));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	cr_assert_eq(zi_ring_push(&client->sq, &sqe), 0);
	turn();
	cr_assert_eq(client_reap(client).user_data, 9);
	cr_assert_eq(fake.seen_run, UINT32_MAX, "as many subgroups as there can be");
	cr_assert_eq(fake.seen_part[0], 1);
	cr_assert_eq(fake.seen_part[4], 1ull << 63);
	client_close(client);
}

Test(shard, each_opcode_of_tensors_brings_its_words_there_and_back)
{
	struct client *client = client_attach();
	struct zi_tensor_open open = { .budget_bytes = 8192 };
	struct zi_materialize materialize = { 0 };

	client_send(client, &materialize, ZI_MESSAGE_MATERIALIZE, sizeof(materialize));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_MATERIALIZED);
	client_send(client, &open, ZI_MESSAGE_TENSOR_OPEN, sizeof(open));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_TENSOR_OPENED);
	fake.op_count = 0;
	for (uint16_t opcode = ZI_OP_TENSOR_ALLOC; opcode <= ZI_OP_CANCEL; opcode++) {
		bool has_place = opcode == ZI_OP_TENSOR_ALLOC || opcode == ZI_OP_TENSOR_GET;
		struct zi_cqe cqe;

		client_submit_args(client, opcode, 9, opcode <= ZI_OP_TENSOR_PUT ? 100 : 0, opcode);
		turn();
		cqe = client_reap(client);
		cr_assert_eq(cqe.user_data, opcode);
		cr_assert_eq(cqe.result, 0, "%s: %d", zi_opcode_name(opcode), cqe.result);
		cr_assert_eq(cqe.values[0], has_place ? 9 * 4096u : 0u);
		cr_assert_eq(cqe.values[1], opcode == ZI_OP_TENSOR_GET ? 109u : 0u);
	}
	cr_assert_eq(fake.op_count, 7);
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
	client_submit(client, ZI_OP_NOP, 0, 1);
	settle();
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
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(5 * ZI_NS_PER_S));

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
	for (uint64_t i = 0; i < 16; i++)
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
	uplink->step_options.flags = ZI_STEP_JOINED;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 3);
	turn();
	cr_assert_eq(client_reap(client).result, 0);
	cr_assert_eq(fake.options.flags, ZI_STEP_JOINED);
	uplink->step_options = good_options();
	uplink->step_options.reserved[3] = 1;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 4);
	expect_end(client, "reserved words");
	cr_assert_eq(fake.op_count, 2);
	client_close(client);
}

Test(shard, groups_of_a_step_are_copied_and_the_copy_is_checked)
{
	struct client *client = client_attach_with(ZI_FEATURE_TRAINING);
	struct zi_uplink_header *uplink = (void *)client->uplink;
	struct zi_step_group *groups = (void *)(client->uplink + zi_uplink_groups_offset(16));
	struct zi_cqe cqe;

	uplink->step_options = good_options();
	uplink->step_options.group_count = 2;
	groups[0] = (struct zi_step_group){ .lr = 0.5, .weight_decay = 0.25 };
	groups[1] = (struct zi_step_group){ .lr = 2 };
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 1);
	turn();
	cr_assert_eq(client_reap(client).result, 0);
	cr_assert_eq(fake.groups[0].weight_decay, 0.25);
	cr_assert_eq(fake.groups[1].lr, 2);
	groups[1].lr = -2;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 2);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.result, -EINVAL);
	cr_assert(strstr(client_text(client, &cqe), "group 1 of a step has lr -2"));
	groups[1] = (struct zi_step_group){ .reserved = { 7 } };
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 3);
	expect_end(client, "group 1 of a step: reserved words");
	client_close(client);
}

Test(shard, groups_of_a_step_without_their_feature_end_the_session)
{
	struct client *client = client_attach();
	struct zi_uplink_header *uplink = (void *)client->uplink;

	uplink->step_options = good_options();
	uplink->step_options.group_count = 1;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 1);
	expect_end(client, "groups of a step without feature bit 13");
	client_close(client);
}

Test(shard, deferred_step_has_its_options_later_and_betas_of_groups)
{
	struct client *client = client_attach_with(ZI_FEATURE_TRAINING | ZI_FEATURE_STEPS);
	struct zi_uplink_header *uplink = (void *)client->uplink;
	struct zi_step_group *groups = (void *)(client->uplink + zi_uplink_groups_offset(16));
	struct zi_step_betas *betas = (void *)(client->uplink + zi_uplink_betas_offset(16));
	struct zi_cqe cqe;
	double norm;

	uplink->step_options = good_options();
	uplink->step_options.flags = ZI_STEP_DEFERRED;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 1);
	client_submit(client, ZI_OP_GRAD_NORM, 0, 2);
	turn();
	cr_assert_eq(client_reap(client).result, 0);
	cqe = client_reap(client);
	memcpy(&norm, &cqe.values[0], sizeof(norm));
	cr_assert_eq(cqe.result, 0);
	cr_assert_eq(norm, 0.375);
	uplink->step_options = good_options();
	uplink->step_options.flags = ZI_STEP_BETAS;
	uplink->step_options.group_count = 2;
	groups[0] = groups[1] = (struct zi_step_group){ .lr = 0.5 };
	betas[0] = (struct zi_step_betas){ .beta1 = 0.5 };
	betas[1] = (struct zi_step_betas){ .beta2 = 0.25, .eps = 0.125 };
	client_submit(client, ZI_OP_STEP_OPTIONS, 0, 3);
	turn();
	cr_assert_eq(client_reap(client).result, 0);
	cr_assert_eq(fake.betas[0].beta1, 0.5);
	cr_assert_eq(fake.betas[1].eps, 0.125);
	betas[1].eps = -1;
	client_submit(client, ZI_OP_STEP_OPTIONS, 0, 4);
	client_submit(client, ZI_OP_STEP_DISCARD, 0, 5);
	turn();
	cqe = client_reap(client);
	cr_assert_eq(cqe.result, -EINVAL);
	cr_assert(strstr(client_text(client, &cqe), "group 1 of a step has beta1 0"));
	cr_assert_eq(client_reap(client).result, 0);
	cr_assert_eq(fake.op_count, 4);
	client_close(client);
}

Test(shard, deferred_step_without_its_feature_ends_the_session)
{
	struct client *client = client_attach_with(ZI_FEATURE_TRAINING);
	struct zi_uplink_header *uplink = (void *)client->uplink;

	uplink->step_options = good_options();
	uplink->step_options.flags = ZI_STEP_DEFERRED;
	client_submit(client, ZI_OP_STEP_BEGIN, 0, 1);
	expect_end(client, "without feature bit 22");
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
	cr_assert_eq(cqe.values[1], 4, "1 + the unit of who spoilt the step");
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
