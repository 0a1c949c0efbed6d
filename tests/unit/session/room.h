/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both halves of the sessions on one loop and one thread, turned by hand, over the fake zero; and
 * the other end of the socket. Nothing sleeps: a turn of a loop that was told to stop does not
 * wait.
 */
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/sess.h"
#include "tests/unit/session/fake_zero.h"

struct room {
	struct zi_loop *loop;
	struct tier tier;
	struct tier_holders *holders;
	struct tier_arenas *arenas;
	struct dev *worker;
	struct sess_limits limits;
	struct sess_facts facts;
	struct sess_shard *shard;
	struct sess_control *control;
	bool is_stopped;
};

static struct room room;

static inline void room_stopped(void *arg)
{
	(void)arg;
	room.is_stopped = true;
}

static inline void turn(void)
{
	zi_loop_stop(room.loop);
	cr_assert_eq(zi_loop_run(room.loop), 0);
}

/* Enough for any chain of posts between the halves. A loop that spins looks at its descriptors only
 * now and then, so first its spinning time (50 us) is let pass. */
static inline void settle(void)
{
	uint64_t until_ns = zi_clock_deadline_ns(150 * ZI_NS_PER_US);

	do
		for (int i = 0; i < 20; i++)
			turn();
	while (zi_clock_now_ns() < until_ns);
	for (int i = 0; i < 20; i++)
		turn();
}

static const struct sess_limit_fact room_limit_facts[] = {
	{ "sessions", "limits.sessions", 4 },
	{ "jobs", "limits.jobs", 5 },
	{ "units", "limits.units", 6 },
};

static inline void room_open_limited(uint32_t sessions_max, uint32_t per_uid_max,
                                     uint64_t answer_bytes_max)
{
	memset(&room, 0, sizeof(room));
	(void)signal(SIGPIPE, SIG_IGN); /* As the daemon's main thread does. */
	tier_init_cpu(&room.tier, 0, 64 << 20, NULL, false);
	fake_init(&room.tier);
	room.limits = (struct sess_limits){
		.sessions_max = sessions_max,
		.sessions_per_uid_max = per_uid_max,
		.connections_max = 64,
		.connections_per_uid_max = 64,
		.answers_per_uid_max = 8,
		.answer_bytes_per_uid_max = answer_bytes_max,
		.units_max = 100,
		.params_max = 100,
		.ring_entries = 16,
		.inflight_ops_max = 8 * sessions_max,
		.handshake_ns = 600 * ZI_NS_PER_S, /* Each turn may be slow. */
		.spin_ns = 50 * ZI_NS_PER_US,
		.coll_timeout_ms = 450000,
	};
	room.facts = (struct sess_facts){
		.socket_path = "/run/test.sock",
		.state_dir = "/var/test",
		.isa = "ref",
		.cpu_tiers = &room.tier,
		.cpu_tier_count = 1,
		.limits = room_limit_facts,
		.limit_count = 3,
	};
	cr_assert_eq(zi_loop_new(&room.loop), 0);
	cr_assert_eq(dev_fake_new(1, &room.worker), 0);
	cr_assert_eq(tier_holders_new(&room.holders), 0);
	cr_assert_eq(tier_arenas_new(room.loop, &room.arenas), 0);
	cr_assert_eq(sess_shard_new(&(struct sess_shard_options){ .loop = room.loop,
	                                                          .zero = &fake,
	                                                          .ring_tier = &room.tier,
	                                                          .holders = room.holders,
	                                                          .arenas = room.arenas,
	                                                          .worker = room.worker,
	                                                          .limits = &room.limits,
	                                                          .cpu_count = 2,
	                                                          .pool_threads = 2 },
	                            &room.shard),
	             0);
	cr_assert_eq(sess_control_new(&(struct sess_control_options){ .loop = room.loop,
	                                                              .shard_loop = room.loop,
	                                                              .shard = room.shard,
	                                                              .limits = &room.limits,
	                                                              .facts = &room.facts },
	                              &room.control),
	             0);
}

static inline void room_open_with(uint32_t sessions_max, uint32_t per_uid_max)
{
	room_open_limited(sessions_max, per_uid_max, 16 << 20);
}

/* From its next word on a connection that says nothing is dropped as soon as this; what came before
 * it has its time on a loaded machine as well. */
static inline void room_limit_silence(void)
{
	room.control->limits.handshake_ns = 2 * ZI_NS_PER_MS;
}

static inline void room_open(void)
{
	room_open_with(4, 4);
}

/* Everything goes, and nothing stays charged. */
static inline void room_close(void)
{
	if (!room.is_stopped) {
		sess_shard_stop(room.shard, "zinfd is stopping");
		sess_control_stop(room.control, room_stopped, NULL);
		settle();
	}
	cr_assert(room.is_stopped, "%u connections, %u in the shard", room.control->used_count,
	          room.shard->polled_count + room.shard->ending_count);
	room.worker = dev_free(room.worker);
	turn();
	room.control = sess_control_free(room.control);
	room.shard = sess_shard_free(room.shard);
	room.holders = tier_holders_free(room.holders);
	room.arenas = tier_arenas_free(room.arenas);
	fake_deinit();
	cr_assert_eq(room.tier.used_bytes, 0);
	tier_deinit(&room.tier);
	room.loop = zi_loop_free(room.loop);
}

/* ---- the client's side ---- */

struct client {
	int fd;
	int fds[ZI_MESSAGE_FDS_MAX];
	uint32_t fd_count;
	uint32_t sequence;
	union {
		_Alignas(64) unsigned char bytes[ZI_MESSAGE_BYTES_MAX];
		struct zi_message_header header;
		struct zi_hello hello;
		struct zi_error_message error;
		struct zi_notice notice;
		struct zi_attached attached;
		struct zi_materialized materialized;
		struct zi_blob blob;
	} in;
	char *uplink, *downlink; /* NULL until attached */
	uint64_t uplink_bytes, downlink_bytes;
	struct zi_ring_producer sq;
	struct zi_ring_consumer cq;
};

static inline struct client *client_connect(void)
{
	struct client *client = calloc(1, sizeof(*client));
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	client->fd = fds[0];
	(void)sess_control_adopt(room.control, fds[1]);
	return client;
}

static inline void client_drop_fds(struct client *client)
{
	while (client->fd_count)
		(void)zi_close(client->fds[--client->fd_count]);
}

static inline void client_close(struct client *client)
{
	client_drop_fds(client);
	if (client->uplink) {
		cr_assert_eq(zi_region_unmap(client->uplink, client->uplink_bytes), 0);
		cr_assert_eq(zi_region_unmap(client->downlink, client->downlink_bytes), 0);
	}
	client->fd = zi_close(client->fd);
	free(client);
}

/* @message: its header is filled here. */
static inline void client_send_flags(struct client *client, void *message,
                                     enum zi_message_type type, size_t bytes, uint16_t flags)
{
	zi_message_init(message, type, (uint32_t)bytes, ++client->sequence);
	((struct zi_message_header *)message)->flags = flags;
	cr_assert_eq(zi_message_send(client->fd, message, NULL, 0), 0);
}

static inline void client_send(struct client *client, void *message, enum zi_message_type type,
                               size_t bytes)
{
	client_send_flags(client, message, type, bytes, 0);
}

static inline void client_send_plain(struct client *client, enum zi_message_type type)
{
	struct zi_message_header header;

	client_send(client, &header, type, sizeof(header));
}

/* The next message's type; 0 when there is none, -1 at the end of the connection. */
static inline int client_receive(struct client *client)
{
	int r;

	client_drop_fds(client);
	r = zi_message_receive(client->fd, client->in.bytes, client->fds, &client->fd_count);
	if (r == -EAGAIN)
		return 0;
	if (r == -ECONNRESET)
		return -1;
	cr_assert_eq(r, 0);
	cr_assert_eq(zi_message_check(&client->in.header, NULL), 0);
	return client->in.header.type;
}

static inline void expect_error(struct client *client, int error, const char *words)
{
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ERROR);
	cr_assert_eq(client->in.error.error, error, "%d: %s", client->in.error.error,
	             client->in.error.text.chars);
	cr_assert(strstr(client->in.error.text.chars, words), "'%s' is not in '%s'", words,
	          client->in.error.text.chars);
}

static inline void client_hello_with(struct client *client, uint64_t features)
{
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR,
		                  .minor = ZI_PROTOCOL_MINOR,
		                  .features = ZI_FEATURE_COLL_VERSION | features,
		                  .coll_version = ZI_COLL_VERSION,
		                  .program = "test" };

	client_send(client, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_HELLO);
}

static inline void client_hello(struct client *client)
{
	client_hello_with(client, 0);
}

static inline struct zi_attach attach_template(void)
{
	struct zi_attach attach = {
		.job = "train",
		.rank = 0,
		.world_size = 2,
		.timeout_ms = 1000,
		.config = { .param_dtype = ZI_DTYPE_F32,
		            .grad_dtype = ZI_DTYPE_F32,
		            .optimizer = ZI_OPTIMIZER_ADAMW,
		            .schedule = ZI_SCHEDULE_LOCAL },
	};
	return attach;
}

/* An attached client with its rings mapped. */
static inline struct client *client_attach_with(uint64_t features)
{
	struct client *client = client_connect();
	struct zi_attach attach = attach_template();
	void *uplink, *downlink;

	client_hello_with(client, features);
	client_send(client, &attach, ZI_MESSAGE_ATTACH, sizeof(attach));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ATTACHED, "%s",
	             client->in.error.text.chars);
	cr_assert_eq(client->fd_count, 4);
	cr_assert_eq(zi_region_map(client->fds[0], client->in.attached.uplink_bytes, true, &uplink),
	             0);
	cr_assert_eq(
		zi_region_map(client->fds[1], client->in.attached.downlink_bytes, false, &downlink),
		0);
	client->uplink = uplink;
	client->downlink = downlink;
	client->uplink_bytes = client->in.attached.uplink_bytes;
	client->downlink_bytes = client->in.attached.downlink_bytes;
	zi_ring_sq_producer(&client->sq, uplink, downlink, client->in.attached.ring_entries);
	zi_ring_cq_consumer(&client->cq, uplink, downlink, client->in.attached.ring_entries);
	return client;
}

static inline struct client *client_attach(void)
{
	return client_attach_with(0);
}

static inline void client_submit_args(struct client *client, uint16_t opcode, uint64_t first,
                                      uint64_t second, uint64_t user_data)
{
	struct zi_sqe sqe = { .user_data = user_data, .opcode = opcode, .args = { first, second } };

	cr_assert_eq(zi_ring_push(&client->sq, &sqe), 0);
}

static inline void client_submit(struct client *client, uint16_t opcode, uint32_t unit,
                                 uint64_t user_data)
{
	struct zi_sqe sqe = { .user_data = user_data, .opcode = opcode, .unit = unit };

	cr_assert_eq(zi_ring_push(&client->sq, &sqe), 0);
}

static inline struct zi_cqe client_reap(struct client *client)
{
	struct zi_cqe cqe = { 0 };

	cr_assert_eq(zi_ring_pop(&client->cq, &cqe), 0);
	return cqe;
}

static inline const char *client_text(const struct client *client, const struct zi_cqe *cqe)
{
	cr_assert_gt(cqe->text_index, 0);
	cr_assert_leq(cqe->text_index, ZI_TEXT_SLOTS);
	return client->downlink + zi_downlink_text_offset(16) +
	       (cqe->text_index - 1) * ZI_ERROR_TEXT_BYTES;
}

/* The rank that attached as the @index-th. */
static inline struct zero_rank *rank_of(uint32_t index)
{
	cr_assert_lt(index, fake.rank_count);
	return &fake.ranks[index];
}

/* The first session, the only one, is over because it broke the protocol. */
static inline void expect_end(struct client *client, const char *reason)
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

static inline void send_materialize(struct client *client, uint32_t unit_count,
                                    uint32_t param_count)
{
	struct zi_materialize message = { .unit_count = unit_count, .param_count = param_count };

	client_send(client, &message, ZI_MESSAGE_MATERIALIZE, sizeof(message));
	settle();
}
