/* SPDX-License-Identifier: Apache-2.0 */
/* See actions.h. */
#include "tests/fuzz/actions.h"
#include "common/wire/gpu.h"
#include "common/wire/state.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/actions_coll.h"
#include "tests/fuzz/actions_model.h"
#include "tests/fuzz/house_gpu.h"

/* An input is not worth more. An action may be a whole step: without a limit of the turns a tenth
 * of the inputs takes half of the time, and reaches nothing more. */
#define ACTIONS_MAX 256u
#define TURNS_MAX   500u

/* ---- before there are rings ---- */

static void take_hello(struct peer *peer, struct fuzz_input *input)
{
	struct zi_hello hello = peer_hello(ZI_PROTOCOL_MAJOR + fuzz_u8(input) % 4);

	peer_send(peer, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
}

/*
 * @place: bits 0-1 rank, 2-3 world less one, 4 which job, 5-6 which incarnation (0: none), 7 a
 * short deadline. @config: bit 0 bf16 parameters, 1 bf16 gradients, 2-4 optimizer, 4 sharded, 5
 * state on NVMe, 6 durable, 7 takeover. @resident: bits 0-3 eighths of a MiB; 7 parameters on NVMe,
 * 4-6 their budget in quarters of a MiB; 0 also a tail, of bits 1-2 (strategy), 4 (shard_size);
 * with 0 and 5 all other ranks are on other nodes.
 */
static void send_attach(struct peer *peer, uint8_t place, uint8_t config, uint8_t resident)
{
	static const char *const incarnations[] = { "", "a", "b", "c" };
	struct zi_attach_training message = { .training = { ZI_STRATEGY_DDP + (resident >> 1 & 3),
		                                            resident >> 4 & 1 } };
	struct zi_attach attach = {
		.rank = place & 3,
		.world_size = 1 + (place >> 2 & 3),
		.flags = config & 128 ? ZI_ATTACH_TAKEOVER : 0,
		.timeout_ms = place & 128 ? 1 : 60000,
		.config = {
			.param_dtype = config & 1 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			.grad_dtype = config & 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			.optimizer = ZI_OPTIMIZER_ADAMW + (config >> 2 & 7) % 5,
			.schedule = config & 16 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			.offload_optimizer = config & 32 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU,
			.durability = config & 64 ? ZI_DURABILITY_POWER : ZI_DURABILITY_PROCESS,
			.offload_param = resident & 128 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_NONE,
			.resident_bytes = (uint64_t)(resident & 15) << 17,
			.param_budget_bytes = resident & 128 ? (uint64_t)(resident & 112) << 14 : 0,
		},
	};

	(void)zi_copy_name(attach.job, sizeof(attach.job), place & 16 ? "other" : "train");
	(void)zi_copy_name(attach.incarnation, sizeof(attach.incarnation),
	                   incarnations[place >> 5 & 3]);
	if ((resident & 33) == 33 && attach.world_size > 1)
		attach.local_world_size = 1;
	message.attach = attach;
	peer_send(peer, &message, ZI_MESSAGE_ATTACH,
	          resident & 1 ? sizeof(message) : sizeof(attach));
}

static void send_write(struct peer *peer, uint16_t type, uint32_t unit, uint32_t root)
{
	struct zi_param_write_end message = { .unit = unit, .root = root };

	peer_send(peer, &message, type, sizeof(message));
}

static void send_plain(struct peer *peer, uint16_t type)
{
	struct zi_message_header message;

	peer_send(peer, &message, type, sizeof(message));
}

static void take_admin(struct peer *peer, struct fuzz_input *input)
{
	struct zi_admin message = { 0 };

	fuzz_text(input, message.command, sizeof(message.command));
	peer_send(peer, &message, ZI_MESSAGE_ADMIN, sizeof(message));
}

/* GPU_OPEN of the house's GPU, and of a few chunks; GPU_CHUNKS of small numbers. */
static void mend_gpu(void *buffer, uint16_t type)
{
	struct zi_gpu_open *open = buffer;
	struct zi_gpu_chunks *chunks = buffer;

	if (type == ZI_MESSAGE_GPU_OPEN) {
		memset(open->uuid, 0, sizeof(open->uuid));
		memcpy(open->uuid, HOUSE_GPU_UUID, sizeof(HOUSE_GPU_UUID));
		open->chunk_bytes = open->chunk_bytes % 5 * (HOUSE_GPU_GRANULARITY / 2);
		open->param_chunk_count %= 16;
		open->grad_chunk_count %= 16;
		open->flags = open->reserved0 = 0;
		memset(open->reserved, 0, sizeof(open->reserved));
	} else if (type == ZI_MESSAGE_GPU_CHUNKS) {
		chunks->first = chunks->first % 4 * 8;
		chunks->count = 0;
		memset(chunks->reserved, 0, sizeof(chunks->reserved));
	}
}

/* The length that the type has; with an odd byte one that the input gives. */
static void take_message(struct peer *peer, struct fuzz_input *input)
{
	static const uint32_t type_bytes[_ZI_MESSAGE_COUNT] = {
		[ZI_MESSAGE_HELLO] = sizeof(struct zi_hello),
		[ZI_MESSAGE_ATTACH] = sizeof(struct zi_attach),
		[ZI_MESSAGE_ATTACHED] = sizeof(struct zi_attached),
		[ZI_MESSAGE_LAYOUT] = sizeof(struct zi_layout) + sizeof(struct zi_layout_entry),
		[ZI_MESSAGE_MATERIALIZE] = sizeof(struct zi_materialize),
		[ZI_MESSAGE_MATERIALIZED] = sizeof(struct zi_materialized),
		[ZI_MESSAGE_PARAM_WRITE_BEGIN] = sizeof(struct zi_param_write_begin),
		[ZI_MESSAGE_PARAM_WRITE] = sizeof(struct zi_param_write),
		[ZI_MESSAGE_PARAM_WRITE_END] = sizeof(struct zi_param_write_end),
		[ZI_MESSAGE_BLOB] = sizeof(struct zi_blob),
		[ZI_MESSAGE_ERROR] = sizeof(struct zi_error_message),
		[ZI_MESSAGE_NOTICE] = sizeof(struct zi_notice),
		[ZI_MESSAGE_ADMIN] = sizeof(struct zi_admin),
		[ZI_MESSAGE_TENSOR_OPEN] = sizeof(struct zi_tensor_open),
		[ZI_MESSAGE_COLL_OPEN] = sizeof(struct zi_coll_open),
		[ZI_MESSAGE_COLL_GROUP] = sizeof(struct zi_coll_group),
		[ZI_MESSAGE_COLL_GROUP_FREE] = sizeof(struct zi_coll_group_free),
		[ZI_MESSAGE_COLL_FAIL] = sizeof(struct zi_coll_fail),
		[ZI_MESSAGE_STATE_OPENED] = sizeof(struct zi_state_opened),
		[ZI_MESSAGE_STATE_READ] = sizeof(struct zi_state_range),
		[ZI_MESSAGE_STATE_WRITE] = sizeof(struct zi_state_range),
		[ZI_MESSAGE_STATE_COUNT] = sizeof(struct zi_state_count),
		[ZI_MESSAGE_GPU_OPEN] = sizeof(struct zi_gpu_open),
		[ZI_MESSAGE_GPU_OPENED] = sizeof(struct zi_gpu_opened),
		[ZI_MESSAGE_GPU_CHUNKS] = sizeof(struct zi_gpu_chunks),
	};
	static _Alignas(64) unsigned char buffer[2048];
	uint16_t type = fuzz_u8(input) % (_ZI_MESSAGE_COUNT + 2u);
	uint32_t bytes = type < _ZI_MESSAGE_COUNT ? type_bytes[type] : 0;
	uint8_t how = fuzz_u8(input);

	if (how & 1)
		bytes = fuzz_u32(input) % sizeof(buffer);
	bytes = ZI_MAX(bytes, (uint32_t)sizeof(struct zi_message_header));
	memset(buffer, 0, sizeof(buffer));
	fuzz_take(input, buffer + sizeof(struct zi_message_header),
	          bytes - sizeof(struct zi_message_header));
	if (how & 2 && type < _ZI_MESSAGE_COUNT && bytes == type_bytes[type])
		mend_gpu(buffer, type);
	peer_send(peer, buffer, type, bytes);
}

static void take_packet(struct peer *peer, struct fuzz_input *input)
{
	uint32_t fd_count = fuzz_u8(input) % 12;
	char packet[256];
	size_t byte_count = fuzz_u8(input);

	fuzz_take(input, packet, byte_count);
	peer_send_packet(peer, packet, byte_count, fd_count);
}

/* ---- rings ---- */

static void push(struct peer *peer, uint16_t opcode, uint32_t unit, uint64_t argument)
{
	struct zi_sqe sqe = {
		.user_data = peer->sq_tail, .opcode = opcode, .unit = unit, .args = { argument }
	};

	peer_push(peer, &sqe);
}

static void take_submit(struct peer *peer, struct fuzz_input *input)
{
	uint16_t opcode = fuzz_u8(input) % _ZI_OP_COUNT;
	uint8_t unit = fuzz_u8(input);
	uint8_t argument = fuzz_u8(input);
	bool has_blob = opcode == ZI_OP_STEP || opcode == ZI_OP_COMMIT;
	bool has_unit = opcode >= ZI_OP_UNSHARD && opcode <= ZI_OP_REDUCE;

	if (opcode >= ZI_OP_TENSOR_ALLOC) {
		/* Few ids, so that they meet; lengths around a page and around a budget. */
		struct zi_sqe sqe = { .user_data = peer->sq_tail,
			              .opcode = opcode,
			              .args = { unit % 8u } };

		if (opcode <= ZI_OP_TENSOR_PUT)
			sqe.args[1] = (uint64_t)argument << 9;
		if (opcode == ZI_OP_CANCEL)
			sqe.args[0] = peer->sq_tail - 1u - argument % 4u;
		if (opcode == ZI_OP_UNSHARD_PART)
			sqe.args[1] = argument;
		peer_push(peer, &sqe);
		return;
	}
	push(peer, opcode, has_unit ? unit : 0, has_blob ? (uint64_t)argument << 9 : 0);
}

static void take_slot(struct peer *peer, struct fuzz_input *input)
{
	struct zi_sqe sqe;

	fuzz_take(input, &sqe, sizeof(sqe));
	peer_push(peer, &sqe);
}

static void take_word(struct peer *peer, struct fuzz_input *input)
{
	struct zi_uplink_header *header = (void *)peer->uplink;
	uint8_t which = fuzz_u8(input) % 3;
	uint32_t value = fuzz_u32(input);

	if (!header)
		return;
	if (which == 0)
		zi_line_store(&header->sq_tail, peer->sq_tail += value);
	else if (which == 1)
		zi_line_store(&header->cq_head, peer->cq_head += value);
	else
		zi_line_store(&header->cq_need_wakeup, value);
}

static struct zi_step_options good_options(uint8_t how)
{
	return (struct zi_step_options){
		.lr = 1e-2,
		.beta1 = 0.9,
		.beta2 = 0.99,
		.eps = 1e-8,
		.max_norm = how & 1 ? 1.0 : 0.0,
		.unscale = how & 2 ? 0.5 : 1.0,
		.micro_batches = how & 4 ? 2 : 1,
		.flags = (how >> 3 & 15u) | (how & 2 ? ZI_STEP_UPDATE_EARLY : 0),
	};
}

/* @how: bits 0-6 as good_options(); 7: then one field is the input's. */
static void take_options(struct peer *peer, struct fuzz_input *input)
{
	struct zi_uplink_header *header = (void *)peer->uplink;
	uint8_t how = fuzz_u8(input);
	struct zi_step_options options = good_options(how);

	if (how & 128) {
		size_t offset = fuzz_u8(input) % sizeof(options) & ~7u;
		uint64_t value = fuzz_u64(input);

		memcpy((char *)&options + offset, &value, sizeof(value));
	}
	if (header)
		header->step_options = options;
}

static void take_wild(struct peer *peer, struct fuzz_input *input)
{
	uint64_t offset = (uint64_t)fuzz_u8(input) * 8;
	uint64_t value = fuzz_u64(input);

	if (peer->uplink && offset + sizeof(value) <= peer->uplink_bytes)
		memcpy(peer->uplink + offset, &value, sizeof(value));
}

static void fill(struct peer *peer, uint8_t value)
{
	if (peer->grad)
		memset(peer->grad, value, peer->grad_bytes);
	if (peer->staging)
		memset(peer->staging, value, peer->staging_bytes);
}

static void use_doorbell(struct peer *peer, uint8_t how)
{
	uint64_t value = how & 1 ? UINT64_MAX - 1 : 1;

	if (peer->doorbell_fd < 0)
		return;
	/* Whatever comes of it: the descriptors are the client's to spoil. */
	if (how & 2)
		(void)!read(peer->doorbell_fd, &value, sizeof(value));
	else
		(void)!write(peer->doorbell_fd, &value, sizeof(value));
	if (how & 4)
		(void)!read(peer->wakeup_fd, &value, sizeof(value));
}

/* ---- what takes a while by hand ---- */

static void settle_all(struct peer *peers)
{
	house_settle();
	for (uint32_t i = 0; i < PEERS; i++) {
		peer_receive(&peers[i]);
		peer_reap(&peers[i]);
	}
}

/* @how: as good_options(), with bit 7: no settling in between. */
static void do_step(struct peer *peers, uint8_t how)
{
	for (uint32_t i = 0; i < PEERS; i++)
		if (peers[i].uplink) {
			struct zi_uplink_header *header = (void *)peers[i].uplink;

			header->step_options = good_options(how & 127);
			push(&peers[i], ZI_OP_STEP_BEGIN, 0, 0);
		}
	if (!(how & 128))
		settle_all(peers);
	for (uint32_t unit = peers[0].unit_count; unit-- > 0;) {
		for (uint32_t i = 0; i < PEERS; i++)
			push(&peers[i], ZI_OP_GRAD_ACQUIRE, unit, 0);
		if (!(how & 128))
			settle_all(peers);
		for (uint32_t i = 0; i < PEERS; i++)
			push(&peers[i], ZI_OP_REDUCE, unit, 0);
	}
	for (uint32_t i = 0; i < PEERS; i++)
		push(&peers[i], ZI_OP_STEP, 0, how & 8 ? 100 : 0);
	if (!(how & 128))
		settle_all(peers);
}

static void do_values(struct peer *peers)
{
	for (uint32_t unit = 0; unit < peers[0].unit_count; unit++) {
		send_write(&peers[0], ZI_MESSAGE_PARAM_WRITE_BEGIN, unit, 0);
		settle_all(peers);
		for (uint32_t i = 0; i < PEERS; i++)
			send_write(&peers[i], ZI_MESSAGE_PARAM_WRITE_END, unit, 0);
		settle_all(peers);
	}
	for (uint32_t i = 0; i < PEERS; i++)
		push(&peers[i], ZI_OP_COMMIT, 0, 64);
	settle_all(peers);
}

void actions_begin(struct peer *peers, uint32_t world, uint8_t config, uint8_t resident,
                   uint8_t model)
{
	struct zi_hello hello = peer_hello(ZI_PROTOCOL_MAJOR);

	for (uint32_t i = 0; i < world; i++) {
		peer_connect(&peers[i]);
		peer_send(&peers[i], &hello, ZI_MESSAGE_HELLO, sizeof(hello));
		house_settle();
		send_attach(&peers[i], (uint8_t)(i | (world - 1) << 2), config, resident);
	}
	settle_all(peers);
	for (uint32_t i = 0; i < world; i++) {
		action_send_model(&peers[i], model & 3, model >> 2);
		action_send_materialize(&peers[i], 0);
	}
	settle_all(peers);
	do_values(peers);
}

/* ---- the interpreter ---- */

static void run_message(struct peer *peer, struct fuzz_input *input, enum action action)
{
	uint8_t unit;

	switch (action) {
	case ACTION_CONNECT:
		peer_connect(peer);
		return;
	case ACTION_HELLO:
		take_hello(peer, input);
		return;
	case ACTION_ATTACH: {
		uint8_t place = fuzz_u8(input);
		uint8_t config = fuzz_u8(input);

		send_attach(peer, place, config, fuzz_u8(input));
		return;
	}
	case ACTION_MODEL:
		unit = fuzz_u8(input);
		action_send_model(peer, unit, fuzz_u8(input));
		return;
	case ACTION_ENTRY:
		action_take_entry(peer, input);
		return;
	case ACTION_MATERIALIZE:
		action_send_materialize(peer, fuzz_u8(input));
		return;
	case ACTION_WRITE_BEGIN:
		send_write(peer, ZI_MESSAGE_PARAM_WRITE_BEGIN, fuzz_u8(input), 0);
		return;
	case ACTION_WRITE_END:
		unit = fuzz_u8(input);
		send_write(peer, ZI_MESSAGE_PARAM_WRITE_END, unit, fuzz_u8(input));
		return;
	case ACTION_BLOB_GET:
		send_plain(peer, ZI_MESSAGE_BLOB_GET);
		return;
	case ACTION_DETACH:
		send_plain(peer, ZI_MESSAGE_DETACH);
		return;
	case ACTION_DESTROY:
		send_plain(peer, ZI_MESSAGE_DESTROY);
		return;
	case ACTION_ADMIN:
		take_admin(peer, input);
		return;
	case ACTION_MESSAGE:
		take_message(peer, input);
		return;
	default:
		take_packet(peer, input);
		return;
	}
}

static void run_ring(struct peer *peers, struct peer *peer, struct fuzz_input *input,
                     enum action action)
{
	static const int ways[] = { SHUT_RD, SHUT_WR, SHUT_RDWR };

	switch (action) {
	case ACTION_CLOSE:
		peer_close(peer);
		return;
	case ACTION_TURN:
		house_turns(1u + fuzz_u8(input) % 16);
		return;
	case ACTION_SUBMIT:
		take_submit(peer, input);
		return;
	case ACTION_SLOT:
		take_slot(peer, input);
		return;
	case ACTION_WORD:
		take_word(peer, input);
		return;
	case ACTION_REAP:
		peer_receive(peer);
		peer_reap(peer);
		return;
	case ACTION_OPTIONS:
		take_options(peer, input);
		return;
	case ACTION_SETTLE:
		settle_all(peers);
		return;
	case ACTION_FILL:
		fill(peer, fuzz_u8(input));
		return;
	case ACTION_SHUTDOWN:
		if (peer->fd >= 0)
			(void)shutdown(peer->fd, ways[fuzz_u8(input) % 3]); /* Gone: as well. */
		return;
	case ACTION_DOORBELL:
		use_doorbell(peer, fuzz_u8(input));
		return;
	case ACTION_STEP:
		do_step(peers, fuzz_u8(input));
		return;
	case ACTION_VALUES:
		do_values(peers);
		return;
	default:
		take_wild(peer, input);
		return;
	}
}

void actions_run(struct peer *peers, struct fuzz_input *input, enum action first)
{
	for (uint32_t i = 0; i < ACTIONS_MAX && house.turn_count < TURNS_MAX && input->byte_count;
	     i++) {
		uint8_t what = fuzz_u8(input);
		enum action action = first + what % (_ACTION_COUNT - first);
		struct peer *peer = &peers[fuzz_u8(input) % PEERS];

		if (what >= ACTION_COLL_FIRST)
			action_coll(peers, peer, input, (uint8_t)(what - ACTION_COLL_FIRST));
		else if (action < ACTION_CLOSE)
			run_message(peer, input, action);
		else
			run_ring(peers, peer, input, action);
	}
}
