/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: a followed group's calls under the cards, frames and counts that other nodes send,
 * and under whatever the ranks of this node post. All of follow*.c runs; lanes and exchanges are
 * doubles that check where bytes go, and fill in what the other nodes say.
 */
#include <errno.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/wire/verdict.h"
#include "daemon/worker/net/follow_private.h"
#include "daemon/worker/net/mail.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/lanes.h"

#define SLAB_BYTES    ZI_FAR_GROUP_BYTES
#define ARENAS_BYTES  65536u
#define MEMBERS_MAX   4u
#define CALLS_MAX     16u
#define EXCHANGES_MAX 48u
/* Of every rank here: no piece waits. */
#define STEPS_MADE 0x40000000u

struct exchange_room {
	struct net_exchange exchange;
};

static const struct net_follow messages[] = {
	{ .group = 3, .member_count = 2, .nodes = { 0, 1 }, .ranks = { 0, 1 } },
	{ .group = 4, .member_count = 3, .nodes = { 0, 0, 1 }, .ranks = { 0, 1, 2 } },
	{ .group = 5, .member_count = 3, .nodes = { 1, 0, 2 }, .ranks = { 7, 8, 9 } },
	{ .group = 6, .member_count = 4, .nodes = { 0, 1, 0, 1 }, .ranks = { 0, 1, 2, 3 } },
};

static const struct net_follow *message;
static struct fuzz_input input;
static struct worker worker;
static struct zi_far_shape shape;
static struct zi_board_member *board;
static char *slab;
static struct zi_verdicts *verdicts;
static struct exchange_room rooms[2 * ZI_FAR_AHEAD];
static uint32_t room_count, exchange_count, call_count;

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	board = aligned_alloc(4096, zi_board_bytes(MEMBERS_MAX + 2));
	slab = aligned_alloc(4096, SLAB_BYTES);
	verdicts = aligned_alloc(4096, zi_align_up(sizeof(*verdicts), 4096));
	fuzz_check(board && slab && verdicts, "no memory");
	memset(slab, 0, SLAB_BYTES);
	memset(verdicts, 0, sizeof(*verdicts));
	return 0;
}

/* ---- the ranks of this node ---- */

static uint64_t take_count(void)
{
	static const uint64_t counts[] = { 0, 1, 3, 64, 500, 4096, 100000, 1ull << 40 };
	uint8_t which = fuzz_u8(&input);

	return which < 240 ? counts[which % 8] : fuzz_u64(&input);
}

static void take_call(struct zi_board_call *call)
{
	uint8_t how = fuzz_u8(&input);

	*call = (struct zi_board_call){ .operation = how % _ZI_COLL_COUNT,
		                        .dtype = ZI_DTYPE_F32 + fuzz_u8(&input) % 10,
		                        .reduce_op = 1 + fuzz_u8(&input) % 6,
		                        .root = fuzz_u8(&input) % MEMBERS_MAX,
		                        .element_count = take_count(),
		                        .source = ZI_DEADLINE_NEVER };
	if (how & 128)
		fuzz_take(&input, (char *)call + fuzz_u8(&input) % sizeof(*call), 1);
}

static void post_as(uint32_t local, uint32_t sequence, const struct zi_board_call *call)
{
	struct zi_board_post *post = &board[local].posts[sequence % ZI_BOARD_SLOTS];
	uint8_t *inlined = board[local].inlined[sequence % ZI_BOARD_SLOTS];

	post->call = *call;
	post->payload_bytes = fuzz_u8(&input) * 2u;
	fuzz_take(&input, post->payload, 16);
	if (call->operation == ZI_COLL_ALL_TO_ALLV)
		for (uint32_t i = 0; i < 2 * message->member_count; i++) {
			uint64_t count = take_count();

			memcpy(inlined + i * sizeof(count), &count, sizeof(count));
		}
	post->sequence = sequence;
}

/* The next call of all of them, mostly the same; after the last one control says stop. */
static void post_all(uint32_t sequence)
{
	struct zi_board_call call;

	if (!input.byte_count || ++call_count > CALLS_MAX) {
		__atomic_store_n(&worker.stop, 1, __ATOMIC_RELEASE);
		return;
	}
	take_call(&call);
	for (uint32_t i = 0; i < shape.self_count; i++) {
		if (fuzz_u8(&input) > 250)
			take_call(&call);
		post_as(i, sequence, &call);
	}
}

/* ---- the other nodes ---- */

/* As this node says, but for what the input spoils. */
static void say_frame(const struct net_lane *lane)
{
	const uint32_t bytes = zi_frame_bytes(&shape);
	char *frame = lane->memory + lane->places[0];
	uint64_t index = (lane->places[0] - ZI_FAR_FRAMES_OFFSET) / bytes;
	const char *own =
		lane->memory + ZI_FAR_FRAMES_OFFSET + (index - lane->peer + shape.node) * bytes;
	struct follow_card card;
	uint8_t how = fuzz_u8(&input);

	memcpy(frame, own, bytes);
	memcpy(&card, own, sizeof(card));
	if (how & 1)
		fuzz_take(&input, (char *)&card + fuzz_u8(&input) % 48, 1 + how / 2 % 8);
	if (how & 16)
		card.longest = take_count();
	if (how & 32)
		card.is_direct = how >> 6 & 1;
	if (how & 128) {
		card.error = -(int32_t)fuzz_u8(&input);
		memset(card.text.chars, 'x', sizeof(card.text.chars));
	}
	memcpy(frame, &card, sizeof(card));
}

/* What each member of node @node sends and takes, by its words: so that it agrees, or not. */
static void say_counts(uint32_t node)
{
	char *own = worker.slabs[NET_SLAB_OWN].memory + FOLLOW_COUNTS_OFFSET;
	uint32_t members = shape.member_count;
	uint8_t how = fuzz_u8(&input);

	for (uint32_t i = 0; i < members; i++) {
		uint64_t *counts = (void *)(own + shape.orders[i] * ZI_BOARD_COUNTS_BYTES(members));

		if (shape.nodes[i] != node)
			continue;
		for (uint32_t k = 0; k < members; k++) {
			const uint64_t *others =
				(const void *)(own +
			                       shape.orders[k] * ZI_BOARD_COUNTS_BYTES(members));
			uint64_t any = how & 1 ? take_count() : 5;

			counts[k] = zi_far_is_here(&shape, k) ? others[members + i] : any;
			counts[members + k] = zi_far_is_here(&shape, k) ? others[i] : any;
			if (how & 2)
				counts[k + members * (how >> 2 & 1)] = take_count();
		}
	}
}

/* ---- doubles: lanes ---- */

void nodes_ask(struct nodes *nodes, uint32_t node, const struct net_asked *asked)
{
	(void)nodes;
	(void)asked;
	fuzz_check(node < shape.node_count && node != shape.node, "whom to ask");
}

/* Of receives: the place of the present call, and of the next one. */
static void begin(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  int is_out)
{
	(void)bytes;
	if (is_out)
		return;
	lane->places[0] = lane->places[1];
	lane->places[1] = offset_bytes;
	if (lane == &lanes[0])
		post_all((uint32_t)(slot >> 8 & 0xffffff));
}

static int wait_for(struct net_lane *lane, uint32_t count, uint64_t deadline_ns, int is_out,
                    struct zi_text *text)
{
	(void)deadline_ns;
	if (is_out)
		return 0;
	fuzz_check(count == 1, "frames");
	if (fuzz_u8(&input) == 255)
		return zi_text_error(text, -ETIMEDOUT, "timed out");
	say_frame(lane);
	return 0;
}

const struct lanes_target lanes_target = {
	.lane_max = MEMBERS_MAX, .node_count = &shape.node_count, .begin = begin, .wait = wait_for
};

/* ---- doubles: exchanges ---- */

uint64_t exchange_ring_bytes(uint32_t leaf_count, uint64_t share_bytes)
{
	return leaf_count * share_bytes;
}

int exchange_room_new(const struct exchange_room_options *options, struct exchange_room **ret_room)
{
	(void)options;
	fuzz_check(room_count < 2 * ZI_FAR_AHEAD, "rooms");
	*ret_room = &rooms[room_count++];
	return 0;
}

struct exchange_room *exchange_room_free(struct exchange_room *room)
{
	(void)room;
	return NULL;
}

int exchange_room_map(struct exchange_room *room, uint32_t index, const struct exchange_slab *area)
{
	(void)room;
	(void)area;
	fuzz_check(index < NET_SLABS_MAX, "a slab");
	return 0;
}

static void check_range(const struct net_exchange *exchange, const struct net_range *range)
{
	uint64_t bytes = worker.slabs[exchange->slab].bytes;

	fuzz_check(!range->bytes ||
	                   (range->bytes <= bytes && range->offset_bytes <= bytes - range->bytes),
	           "a transfer outside its slab");
}

int exchange_begin(struct exchange_room *room, const struct net_exchange *exchange,
                   const struct exchange_runs *runs, struct zi_text *text, uint32_t *ret_suspect)
{
	fuzz_check(exchange->slab < NET_SLABS_MAX && worker.slabs[exchange->slab].memory, "slab");
	*ret_suspect = shape.node ? 0 : 1;
	if (++exchange_count > EXCHANGES_MAX)
		return zi_text_error(text, -ETIMEDOUT, "timed out");
	for (uint32_t i = 0; i < shape.node_count; i++) {
		check_range(exchange, &exchange->sends[i]);
		check_range(exchange, &exchange->receives[i]);
	}
	for (uint32_t i = 0; runs && i < runs->firsts[shape.node_count]; i++) {
		check_range(exchange, &runs->sends[i]);
		check_range(exchange, &runs->receives[i]);
	}
	room->exchange = *exchange;
	return 0;
}

int exchange_turn(struct exchange_room *room, struct zi_text *text, uint32_t *ret_suspect)
{
	(void)room;
	(void)text;
	*ret_suspect = NET_CULPRIT_NONE;
	return 0;
}

int exchange_end(struct exchange_room *room, struct zi_text *text, uint32_t *ret_suspect)
{
	(void)text;
	*ret_suspect = NET_CULPRIT_NONE;
	for (uint32_t i = 0; i < shape.node_count && room->exchange.slab == NET_SLAB_OWN; i++)
		if (i != shape.node)
			say_counts(i);
	return 0;
}

/* ---- doubles: the worker ---- */

void worker_tell_late(struct worker *self, uint32_t sequence, uint32_t member)
{
	(void)self;
	(void)sequence;
	fuzz_check(member < shape.self_count || member == NET_CULPRIT_NONE, "who is late");
	__atomic_store_n(&worker.stop, 1, __ATOMIC_RELEASE); /* The daemon ends the group. */
}

void worker_mail_failed(void *arg, const struct nodes_end *end)
{
	(void)arg;
	(void)end;
}

void worker_tell_late_message(void *arg, const struct net_late_message *late)
{
	(void)arg;
	(void)late;
}

int mail_start(const struct mail_options *options, struct zi_text *text, struct mail **ret_mail)
{
	(void)options;
	(void)text;
	*ret_mail = NULL;
	return 0;
}

struct mail *mail_stop(struct mail *mail)
{
	(void)mail;
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct zi_text text = { "" };
	uint32_t suspect = NET_CULPRIT_NONE, node_count = 0;
	char *arenas = mmap(NULL, ARENAS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                    -1, 0);
	int r;

	input = (struct fuzz_input){ bytes, byte_count };
	message = &messages[fuzz_u8(&input) % 4];
	for (uint32_t i = 0; i < message->member_count; i++)
		node_count = node_count > message->nodes[i] ? node_count : message->nodes[i] + 1u;
	lanes_forget();
	room_count = exchange_count = call_count = 0;
	fuzz_check(arenas != MAP_FAILED, "no memory");
	memset(board, 0, zi_board_bytes(MEMBERS_MAX + 2));
	for (uint32_t i = 0; i < MEMBERS_MAX; i++)
		board[i].step.value = STEPS_MADE;
	zi_far_shape_init(&shape, message->nodes, message->member_count, node_count, 0);
	worker = (struct worker){
		.join = { .node = 0, .node_count = node_count },
		.last = UINT32_MAX,
		.slabs = { [NET_SLAB_DATA] = { slab, SLAB_BYTES },
		           [NET_SLAB_BOARD] = { (char *)board, zi_board_bytes(MEMBERS_MAX + 2) },
		           [NET_SLAB_VERDICTS] = { (char *)verdicts, sizeof(*verdicts) },
		           [NET_SLAB_ARENAS] = { arenas, ARENAS_BYTES } }
	};
	fuzz_check(!exchange_room_new(NULL, &worker.room), "a room");
	r = worker_follow(&worker, message, &text, &suspect);
	fuzz_check(r < 0 && text.chars[0] && memchr(text.chars, '\0', sizeof(text.chars)),
	           "an end without words");
	fuzz_check(suspect < node_count || suspect == NET_CULPRIT_NONE, "a suspect");
	fuzz_check(!worker.slabs[NET_SLAB_ARENAS].memory, "the arenas stay mapped");
	return 0;
}
