/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the messages of a followed group under frames that other nodes send, and under words
 * that ranks of this node write to their board and to the slab. Nothing moves outside the letters
 * of a pair, no process ends, and the group fails at most once. Lanes are doubles, and the mail's
 * thread takes one turn each time the target asks for one.
 */
#include <errno.h>

#include "common/base/clock.h"
#include "daemon/worker/net/mail_private.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/lanes.h"

#define SLAB_BYTES  ZI_FAR_GROUP_BYTES
#define MEMBERS_MAX 4u
#define ACTIONS_MAX 128u
#define RING        16u /* mail_link.c's receives of frames */

static const struct {
	uint8_t member_count, node_count;
	uint8_t nodes[MEMBERS_MAX];
} shapes[] = {
	{ 2, 2, { 0, 1 } },
	{ 3, 2, { 0, 0, 1 } },
	{ 3, 3, { 1, 0, 2 } },
	{ 4, 2, { 0, 1, 0, 1 } },
};

static const uint8_t ranks[MEMBERS_MAX] = { 4, 5, 6, 7 };
static struct zi_far_shape shape;
static struct zi_board_member *board;
static char *slab;
static struct mail *mail;
static zi_thread_fn mail_turns; /* what the mail's thread would run */
static uint32_t is_carrying, is_loaded, failed_count;
static int fails; /* what is waited for */

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	board = aligned_alloc(4096, zi_board_bytes(MEMBERS_MAX + 2));
	slab = aligned_alloc(4096, SLAB_BYTES);
	fuzz_check(board && slab, "no memory");
	memset(slab, 0, SLAB_BYTES);
	return 0;
}

/* ---- doubles ---- */

/* In place of zi_thread_start() (fuzz.mk): the target runs the mail, and no link waits. */
int __wrap_zi_thread_start(struct zi_thread *thread, const char *name, zi_thread_fn entry,
                           void *arg);
int __wrap_zi_thread_start(struct zi_thread *thread, const char *name, zi_thread_fn entry,
                           void *arg)
{
	(void)thread;
	(void)arg;
	if (!strcmp(name, "mail"))
		mail_turns = entry;
	return 0;
}

/* Whether the bytes are one letter of a pair, of those that go out or of those that come in. */
static int is_letter(uint64_t offset_bytes, uint64_t bytes, int is_out)
{
	uint32_t pairs = mail->wire.self_count * mail->wire.other_count;
	uint64_t letter_bytes = mail->wire.letter_bytes;

	for (uint32_t i = 0; i < pairs * ZI_MAIL_LETTERS; i++) {
		const struct mail_pair *pair = &mail->pairs[i / ZI_MAIL_LETTERS];
		uint64_t letter = (is_out ? pair->letters_out : pair->letters_in) +
		                  i % ZI_MAIL_LETTERS * letter_bytes;

		if (offset_bytes == letter && bytes <= letter_bytes)
			return 1;
	}
	return 0;
}

static void begin(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  int is_out)
{
	(void)slot;
	fuzz_check(bytes > 0, "nothing moves");
	fuzz_check(lane->memory != slab || is_letter(offset_bytes, bytes, is_out), "no letter");
}

static int wait_for(struct net_lane *lane, uint32_t count, uint64_t deadline_ns, int is_out,
                    struct zi_text *text)
{
	(void)lane;
	(void)is_out;
	fuzz_check(count == 1 && deadline_ns != ZI_DEADLINE_NEVER, "a wait");
	return fails ? zi_text_error(text, -ETIMEDOUT, "timed out") : 0;
}

const struct lanes_target lanes_target = { .lane_max = 2 * MEMBERS_MAX,
	                                   .node_count = &shape.node_count,
	                                   .begin = begin,
	                                   .wait = wait_for };

int net_mesh_flush(struct net_mesh *mesh, uint64_t deadline_ns)
{
	(void)mesh;
	(void)deadline_ns;
	return 0;
}

void net_mesh_abort(struct net_mesh *mesh)
{
	(void)mesh;
}

static void note_failed(void *arg, const struct nodes_end *end)
{
	(void)arg;
	fuzz_check(end->error < 0 && end->text.chars[0], "a failure without words");
	fuzz_check(end->culprit < shape.node_count || end->culprit == NET_CULPRIT_NONE, "whose");
	fuzz_check(!failed_count++, "failed twice");
}

static void note_late(void *arg, const struct net_late_message *late)
{
	(void)arg;
	fuzz_check(late->waiting < shape.member_count && late->absent < shape.member_count &&
	                   zi_far_is_here(&shape, late->absent),
	           "who is late");
}

/* ---- the other nodes ---- */

static uint64_t take_count(struct fuzz_input *input)
{
	const uint64_t letter = mail->wire.letter_bytes;
	const uint64_t counts[] = { 0,          1,         MAIL_INLINE_BYTES, MAIL_INLINE_BYTES + 1,
		                    letter + 1, 3 * letter };
	uint8_t which = fuzz_u8(input) % 8;

	return which < 6 ? counts[which] : fuzz_u64(input);
}

/* The number that makes sense, or one near it, or any. */
static uint32_t take_near(struct fuzz_input *input, uint32_t number)
{
	uint8_t how = fuzz_u8(input);

	if (how < 192)
		return number;
	return how < 248 ? number + how % 4 - 1 : fuzz_u32(input);
}

static struct mail_pair *take_pair(struct fuzz_input *input)
{
	return &mail->pairs[fuzz_u8(input) % (mail->wire.self_count * mail->wire.other_count)];
}

/* A frame about a pair that there is, from its node or from another. */
static void hear(struct fuzz_input *input)
{
	struct mail_pair *pair = take_pair(input);
	uint8_t how = fuzz_u8(input);
	struct mail_link *link = how & 128 ? &mail->links[how % shape.node_count] : pair->link;
	struct mail_frame *frame;
	int is_in;

	if (!link->memory || link->arrived - link->taken >= RING)
		return;
	frame = &link->memory[link->arrived % RING];
	memset(frame, 0, sizeof(*frame));
	frame->kind = fuzz_u8(input) % (_MAIL_KIND_COUNT + 1);
	is_in = mail_kind_is_in(frame->kind);
	frame->from = (uint8_t)(is_in ? pair->peer : pair->self);
	frame->to = (uint8_t)(is_in ? pair->self : pair->peer);
	if (how & 64) {
		frame->from = fuzz_u8(input);
		frame->to = fuzz_u8(input);
	}
	frame->dtype = fuzz_u8(input) % 16;
	frame->sequence = take_near(input, is_in ? pair->in.sequence + !pair->in.is_busy
	                                         : pair->out.sequence);
	frame->element_count = take_count(input);
	frame->piece = take_near(input, is_in ? pair->in.moved : pair->out.room);
	frame->bytes = (uint32_t)frame->element_count;
	if (frame->bytes > MAIL_INLINE_BYTES || how & 32)
		frame->bytes = how & 16 ? fuzz_u32(input) : 0;
	if (how & 8) {
		frame->refusal = take_near(input, 1);
		frame->error = fuzz_u8(input);
		frame->bytes = how & 4 ? sizeof(((struct zi_board_refusal *)0)->reason) : 0;
		memset(frame->data, how, sizeof(frame->data));
	}
	link->arrived++;
}

/* ---- the ranks of this node ---- */

static void ring(const struct mail_pair *pair)
{
	board[pair->local].mail.value++;
}

static void post(struct fuzz_input *input)
{
	struct mail_pair *pair = take_pair(input);
	uint8_t how = fuzz_u8(input);

	pair->said->dtype = ZI_DTYPE_F32 + how % 8;
	pair->said->element_count = take_count(input);
	pair->said->timeout_ms = 1000;
	pair->said->deadline_ns = how & 16 ? 1 : ZI_DEADLINE_NEVER;
	pair->said->sequence = take_near(input, pair->out.sequence + 1);
	if (how & 32)
		pair->said->refused = pair->said->sequence;
	ring(pair);
}

static void fill(struct fuzz_input *input)
{
	struct mail_pair *pair = take_pair(input);

	pair->said->filled = take_near(input, pair->out.moved + 1);
	ring(pair);
}

static void take(struct fuzz_input *input)
{
	struct mail_pair *pair = take_pair(input);
	uint8_t how = fuzz_u8(input);

	pair->taken->deadline_ns = how & 1 ? 1 : ZI_DEADLINE_NEVER;
	pair->taken->sequence = take_near(input, pair->in.sequence);
	pair->taken->emptied = take_near(input, how & 2 ? pair->in.base + pair->in.piece_count + 1
	                                                : pair->in.moved);
	pair->taken->done = how & 2 ? pair->taken->sequence : pair->taken->sequence - 1;
	if (how & 4) {
		pair->taken->refused = pair->in.sequence;
		pair->taken->refusal = how >> 3 & 1;
		pair->taken->refused_dtype = how >> 4;
	}
	ring(pair);
}

/* Anywhere on a rank's part of the board, or in the boxes of the slab. */
static void scribble(struct fuzz_input *input)
{
	struct mail_pair *pair = take_pair(input);
	uint8_t how = fuzz_u8(input);
	uint32_t value = fuzz_u32(input);
	char *line = how & 1   ? (char *)pair->said
	             : how & 2 ? (char *)pair->taken
	             : how & 4 ? (char *)pair->box
	                       : (char *)board[pair->local].refused;

	memcpy(line + how % ZI_LINE_BYTES / 4 * 4, &value, sizeof(value));
	ring(pair);
}

/* ---- the mail ---- */

static void turn(void)
{
	__atomic_store_n(&mail->stopping, 1, __ATOMIC_RELEASE); /* It comes back after one. */
	(void)mail_turns(mail);                                 /* Always 0. */
}

static void look_at_clock(void)
{
	struct zi_text text = { "" };
	uint32_t node = 0;

	if (!mail->is_over)
		(void)mail_ask_late(mail, ZI_DEADLINE_NEVER - 1, &text, &node); /* Or they do. */
}

static void act(struct fuzz_input *input)
{
	uint8_t what = fuzz_u8(input);

	fails = what == 255;
	switch (what % 8) {
	case 0:
		post(input);
		break;
	case 1:
		fill(input);
		break;
	case 2:
		take(input);
		break;
	case 3:
		scribble(input);
		break;
	case 4:
		look_at_clock();
		break;
	default:
		hear(input);
		break;
	}
	is_loaded = what >> 3 & 1;
	turn();
}

static void start(uint8_t which)
{
	struct zi_text text = { "" };
	struct zi_mail wire;

	memset(board, 0, zi_board_bytes(MEMBERS_MAX + 2));
	failed_count = is_carrying = 0;
	lanes_forget();
	zi_far_shape_init(&shape, shapes[which].nodes, shapes[which].member_count,
	                  shapes[which].node_count, 0);
	zi_mail_init(&wire, &shape, slab, SLAB_BYTES);
	memset(wire.boxes, 0, (size_t)(wire.letters - (char *)wire.boxes));
	fuzz_check(!mail_start(&(struct mail_options){ .shape = &shape,
	                                               .board = board,
	                                               .slab = slab,
	                                               .slab_bytes = SLAB_BYTES,
	                                               .ranks = ranks,
	                                               .is_carrying = &is_carrying,
	                                               .is_loaded = &is_loaded,
	                                               .failed = note_failed,
	                                               .late = note_late },
	                       &text, &mail),
	           text.chars);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };

	start(fuzz_u8(&input) % 4);
	for (uint32_t i = 0; i < ACTIONS_MAX && input.byte_count; i++)
		act(&input);
	mail = mail_stop(mail);
	return 0;
}
