/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what zinfd orders of zinf-net. An order of the right length may have any words in
 * it: it is refused, or carried out within the slabs that were mapped, and answered once. What
 * meets, joins and moves is a double that checks what it is given.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/worker/net/worker.h"
#include "tests/fuzz/fuzz.h"

#define SLAB_BYTES  65536u
#define ORDERS_MAX  32u
#define NODES_COUNT 3u

struct exchange_room {
	int is_mapped[NET_SLABS_MAX];
};

static struct zi_loop *loop;
static struct worker worker;
static struct exchange_room the_room;
static int slab_fd;
static uint32_t out_count, answer_count;

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	fuzz_check(!zi_loop_new(&loop), "zi_loop_new");
	slab_fd = memfd_create("fuzz", MFD_CLOEXEC);
	fuzz_check(slab_fd >= 0 && !ftruncate(slab_fd, SLAB_BYTES), "memfd");
	return 0;
}

static void turn(void)
{
	zi_loop_stop(loop);
	fuzz_check(!zi_loop_run(loop), "zi_loop_run");
}

static int is_text(const char *chars, size_t capacity)
{
	return memchr(chars, '\0', capacity) != NULL;
}

static void check_way(const struct net_way *way)
{
	fuzz_check(is_text(way->job, sizeof(way->job)) && is_text(way->token, sizeof(way->token)) &&
	                   is_text(way->incarnation, sizeof(way->incarnation)) &&
	                   is_text(way->interface, sizeof(way->interface)) &&
	                   is_text(way->place.host, sizeof(way->place.host)),
	           "a way without end");
}

/* ---- doubles: what meets ---- */

int meet_all(const struct net_meet *meet, struct zi_text *text, struct meet_result *ret_result,
             struct store_client **ret_client)
{
	(void)ret_client;
	check_way(&meet->way);
	fuzz_check(meet->ranks && meet->world_size && meet->world_size <= ZI_WORLD_MAX &&
	                   meet->timeout_ms && is_text(meet->text.chars, sizeof(meet->text)),
	           "a rendezvous");
	fuzz_check(meet->world_size == ZI_WORLD_MAX || !(meet->ranks >> meet->world_size),
	           "a rank beyond the world");
	if (meet->error)
		return zi_text_error(text, meet->error, "%s", meet->text.chars);
	ret_result->node_count = NODES_COUNT;
	return 0;
}

int agree_all(const struct net_agree *agree, struct zi_text *text)
{
	check_way(&agree->way);
	fuzz_check(agree->node < agree->node_count && agree->node_count <= SUBTREE_NODES_MAX &&
	                   agree->world_size && agree->world_size <= ZI_WORLD_MAX &&
	                   is_text(agree->text.chars, sizeof(agree->text)),
	           "what to agree on");
	return agree->error ? zi_text_error(text, agree->error, "%s", agree->text.chars) : 0;
}

int nodes_join(const struct net_join *join, const struct nodes_watcher *watcher,
               struct zi_text *text, struct nodes **ret_nodes)
{
	(void)watcher;
	(void)text;
	check_way(&join->way);
	fuzz_check(join->node < join->node_count && join->node_count <= SUBTREE_NODES_MAX &&
	                   join->timeout_ms && join->epoch,
	           "a join");
	*ret_nodes = (struct nodes *)&the_room; /* Nobody looks into it. */
	return 0;
}

struct nodes *nodes_leave(struct nodes *nodes)
{
	(void)nodes;
	return NULL;
}

void nodes_refuse(struct nodes *nodes, int error, const struct zi_text *text)
{
	(void)nodes;
	(void)error;
	(void)text;
}

void nodes_stop_watch(struct nodes *nodes)
{
	(void)nodes;
}

const char *nodes_name(const struct nodes *nodes, uint32_t node)
{
	(void)nodes;
	(void)node;
	return "node N (10.0.0.1, host)";
}

void nodes_blame(struct nodes *nodes, int error, uint32_t suspect, uint32_t done,
                 uint64_t moment_ns, const struct zi_text *text, struct nodes_end *ret_end)
{
	(void)nodes;
	(void)done;
	(void)moment_ns;
	*ret_end = (struct nodes_end){ .error = error, .culprit = suspect, .text = *text };
}

/* ---- doubles: what moves ---- */

uint64_t exchange_ring_bytes(uint32_t leaf_count, uint64_t share_bytes)
{
	return leaf_count + share_bytes;
}

int exchange_room_new(const struct exchange_room_options *options, struct exchange_room **ret_room)
{
	fuzz_check(options->node < options->node_count, "a room");
	memset(&the_room, 0, sizeof(the_room));
	*ret_room = &the_room;
	return 0;
}

struct exchange_room *exchange_room_free(struct exchange_room *room)
{
	(void)room;
	return NULL;
}

int exchange_room_map(struct exchange_room *room, uint32_t index, const struct exchange_slab *slab)
{
	fuzz_check(index < NET_SLABS_MAX, "a slab");
	room->is_mapped[index] = slab->memory != NULL;
	return 0;
}

/* What lies in the slab is touched: a range outside is found. */
static void touch(const struct exchange_slab *slab, const struct net_range *range)
{
	if (!range->bytes)
		return;
	fuzz_check(range->bytes <= slab->bytes && range->offset_bytes <= slab->bytes - range->bytes,
	           "a range outside the slab");
	((volatile char *)slab->memory)[range->offset_bytes] = 1;
	((volatile char *)slab->memory)[range->offset_bytes + range->bytes - 1] = 1;
}

int exchange_run(struct exchange_room *room, const struct net_exchange *exchange,
                 struct zi_text *text, uint32_t *ret_suspect)
{
	const struct exchange_slab *slab = &worker.slabs[exchange->slab];

	(void)text;
	fuzz_check(room && slab->memory && room->is_mapped[exchange->slab], "no such slab");
	*ret_suspect = NET_CULPRIT_NONE;
	for (uint32_t i = 0; i < SUBTREE_NODES_MAX && exchange->kind == NET_MOVE; i++)
		if (i < worker.join.node_count) {
			touch(slab, &exchange->sends[i]);
			touch(slab, &exchange->receives[i]);
		}
	return 0;
}

int worker_follow(struct worker *self, const struct net_follow *follow, struct zi_text *text,
                  uint32_t *ret_suspect)
{
	(void)self;
	fuzz_check(follow->member_count && follow->member_count <= ZI_WORLD_MAX, "a group");
	for (uint32_t i = 0; i < follow->member_count; i++)
		fuzz_check(follow->nodes[i] < SUBTREE_NODES_MAX, "a node");
	*ret_suspect = NET_CULPRIT_NONE;
	return zi_text_error(text, -EPIPE, "the group is over");
}

int worker_talk(struct worker *self, struct zi_text *text, uint32_t *ret_suspect)
{
	(void)self;
	*ret_suspect = NET_CULPRIT_NONE;
	return zi_text_error(text, -EPIPE, "the talk is over");
}

int worker_open_inbox(struct worker *self, struct zi_text *text)
{
	if (self->inbox)
		return zi_text_error(text, -EBUSY, "the worker talks already");
	self->inbox = (struct talk_inbox *)&the_room; /* As nodes are. */
	return 0;
}

void worker_close_inbox(struct worker *self)
{
	self->inbox = NULL;
}

/* ---- doubles: control ---- */

void worker_end_epoch(struct worker *self, struct nodes *nodes, const struct nodes_end *end)
{
	(void)nodes;
	fuzz_check(end->error < 0 && is_text(end->text.chars, sizeof(end->text)), "an end");
	self->is_aborted = true;
}

void worker_watched(struct zi_post *post)
{
	(void)post;
}

void worker_tell_asked(void *arg, const struct net_asked *asked)
{
	(void)arg;
	(void)asked;
}

void worker_send(struct worker *self, const void *bytes, uint32_t byte_count)
{
	(void)self;
	(void)bytes;
	fuzz_check(byte_count == sizeof(struct net_header), "PONG");
	answer_count++;
}

void worker_refuse(struct worker *self, uint64_t cookie, int error, const struct zi_text *text)
{
	(void)self;
	(void)cookie;
	fuzz_check(error < 0 && is_text(text->chars, sizeof(text->chars)), "a refusal");
	answer_count++;
}

/* The store is not served: control takes the order as one that finds it. */
struct worker_op *worker_take_op(struct worker *self, const union net_message *message)
{
	for (uint32_t i = 0; i < NET_QUEUE_MAX; i++) {
		struct worker_op *op = &self->ops[i];

		if (op->is_used)
			continue;
		*op = (struct worker_op){ .worker = self, .message = *message, .is_used = true };
		out_count++;
		return op;
	}
	return NULL;
}

void worker_op_done(struct zi_post *post)
{
	struct worker_op *op = container_of(post, struct worker_op, post);

	fuzz_check(op->is_used && out_count, "done twice");
	if (op->message.header.type == NET_JOIN)
		worker.is_joining = false;
	if (op->message.header.type == NET_JOIN && !op->end.error)
		worker.joined = worker.nodes;
	if (op->message.header.type == NET_TALK)
		worker_close_inbox(&worker);
	op->is_used = false;
	out_count--;
}

/* ---- the daemon ---- */

static void fill_way(struct fuzz_input *input, struct net_way *way, uint8_t how)
{
	way->place.port = how & 1 ? (uint16_t)fuzz_u32(input) : 40000;
	if (how & 2)
		memset(way->place.host, 'h', sizeof(way->place.host));
	if (how & 4)
		memset(way->token, 't', sizeof(way->token));
}

/* Numbers that mostly make sense. */
static void fill(struct fuzz_input *input, union net_message *message, uint8_t how)
{
	struct net_exchange *exchange = &message->exchange;

	switch (message->header.type) {
	case NET_MEET:
		fill_way(input, &message->meet.way, how);
		message->meet.world_size = 1 + fuzz_u8(input) % ZI_WORLD_MAX;
		message->meet.ranks = fuzz_u8(input) | (how & 8 ? fuzz_u64(input) : 0);
		message->meet.timeout_ms = 1000;
		message->meet.opening = 1;
		return;
	case NET_JOIN:
		fill_way(input, &message->join.way, how);
		message->join.node_count = 1 + fuzz_u8(input) % NODES_COUNT;
		message->join.node = fuzz_u8(input) % 4;
		message->join.epoch = 1 + fuzz_u8(input);
		message->join.timeout_ms = 1000;
		message->join.flags = how & 16 ? 0 : NET_JOIN_AS_CLIENT;
		return;
	case NET_MAP:
		message->map.slab = fuzz_u8(input) % (NET_SLABS_MAX + 1);
		message->map.bytes = how & 8 ? fuzz_u64(input) : fuzz_u8(input) * 512ull;
		return;
	case NET_EXCHANGE:
		exchange->kind = 1 + how % 3;
		exchange->mode = 1 + fuzz_u8(input) % 5;
		exchange->dtype = fuzz_u8(input) % 12;
		exchange->op = fuzz_u8(input) % 8;
		exchange->rank_count = 1 + how / 4 % 4;
		exchange->slab = fuzz_u8(input) % NET_SLABS_MAX;
		exchange->sequence = worker.sequence + 1;
		exchange->timeout_ms = 1000;
		exchange->element_count = fuzz_u8(input);
		exchange->partial_offset_bytes = fuzz_u8(input) * 64ull;
		exchange->result_offset_bytes = fuzz_u8(input) * 64ull;
		for (uint32_t i = 0; i < NODES_COUNT; i++) {
			exchange->nodes[i] = (uint8_t)i;
			exchange->sends[i] =
				(struct net_range){ fuzz_u8(input) * 64ull, fuzz_u8(input) };
			exchange->receives[i] =
				(struct net_range){ fuzz_u8(input) * 64ull, fuzz_u8(input) };
		}
		return;
	case NET_AGREE:
		fill_way(input, &message->agree.way, how);
		message->agree.node_count = 1 + fuzz_u8(input) % NODES_COUNT;
		message->agree.world_size = 4;
		message->agree.epoch = 1;
		message->agree.timeout_ms = 1000;
		return;
	default:
		message->follow.member_count = fuzz_u8(input) % (ZI_WORLD_MAX + 2);
	}
}

static void order(struct fuzz_input *input)
{
	static union net_message message;
	uint8_t how = fuzz_u8(input), spoils = fuzz_u8(input);
	uint32_t type = how % _NET_TYPE_COUNT, bytes = worker_message_bytes(type);
	uint32_t before = out_count + answer_count;

	if (!bytes)
		return;
	memset(&message, 0, sizeof(message));
	message.header = (struct net_header){ type, bytes, 7 };
	fill(input, &message, how ^ spoils);
	for (uint32_t i = 0; i < spoils % 4 && bytes > sizeof(message.header); i++) {
		uint32_t place = sizeof(message.header) +
		                 fuzz_u32(input) % (bytes - (uint32_t)sizeof(message.header));

		((uint8_t *)&message)[place] = fuzz_u8(input);
	}
	worker_handle(&worker, &message, how & 128 ? slab_fd : -1);
	for (uint32_t i = 0; i < NET_QUEUE_MAX; i++)
		worker.ops[i].wants_store = false;
	fuzz_check(type == NET_ABORT || out_count + answer_count == before + 1, "answers");
	if (!(how & 64))
		for (uint32_t i = 0; i < 3; i++)
			turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };

	worker = (struct worker){ .loop = loop, .net_loop = loop };
	worker.broken = (struct nodes_end){ .error = -ENOTCONN, .culprit = NET_CULPRIT_NONE };
	zi_list_init(&worker.queue);
	out_count = answer_count = 0;
	for (uint32_t i = 0; i < ORDERS_MAX && input.byte_count; i++)
		order(&input);
	for (uint32_t i = 0; i < 4; i++)
		turn();
	fuzz_check(!out_count, "an order is never done");
	for (uint32_t i = 0; i < NET_SLABS_MAX; i++)
		if (worker.slabs[i].memory)
			(void)munmap(worker.slabs[i].memory,
			             worker.slabs[i].bytes); /* As mapped. */
	return 0;
}
