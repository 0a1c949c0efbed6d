/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The board of a group: shared memory in which ranks of one node tell each other what they call,
 * where their data lies, and that they are done. Floor 1.
 *
 * Every member has a part of its own and is the only one who writes it; the others, and the daemon
 * when it looks for whoever holds up a call, only read it. Calls of a group are numbered from 1; a
 * rank posts call n to slot n mod ZI_BOARD_SLOTS. Most calls are over when everybody's post has
 * been looked at. Who needs nothing from the others (the root of a small broadcast, say) goes on at
 * once, and who needs the root's data alone when it has those; they look later, so that they may be
 * some calls ahead. Each post says how many calls its member has yet to look at; a slot is written
 * again when all have said, by a later post, that they looked at what is in it, and nobody has as
 * many calls to look at as there are slots. So whoever is last can always go on
 * (libclient/coll/node/posts.c).
 *
 * Sends and receives are numbered apart from calls and apart for each ordered pair of members: a
 * pair has a line of the sender's and a line of the receiver's (struct zi_board_send, _take).
 *
 * The verdict on a group is a line in a region that the daemon alone writes (ZI_VERDICT_*).
 */
#pragma once

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire/coll.h"
#include "common/wire/layout.h"

#define ZI_BOARD_INLINE_BYTES 4096u
/* A power of two: numbers run over. Four ranks on two CPUs that only broadcast take turns so much
 * more rarely with 32 that a call of 4 KiB takes 0.95 us instead of 1.9 with 8 (3.9 where everybody
 * waited for everybody); 64 give a tenth, and cost as much memory again. */
#define ZI_BOARD_SLOTS         32u
#define ZI_BOARD_MEMBER_BYTES  147456u
#define ZI_BOARD_PAYLOAD_BYTES 16u
/* The arena of every rank begins with so many bytes in which the engine stages what lies outside
 * the arenas; each group of the rank has a part of them (zi_node_staging()). */
#define ZI_COLL_STAGING_BYTES (16ull << 20)

/* What a call is. Equal on all members but for what says otherwise. */
struct zi_board_call {
	uint8_t operation;       /* enum zi_coll_operation */
	uint8_t dtype;           /* enum zi_dtype, or 0 */
	uint8_t reduce_op;       /* enum zi_reduce_op, or 0 */
	uint8_t flags;           /* this member's own: ZI_BOARD_REFUSED, _AHEAD, … */
	uint32_t root;           /* member, or 0; of a refused call the errno */
	uint64_t element_count;  /* per member, as the operation counts; all_to_allv: 0 */
	uint64_t source, target; /* this member's own: places in the arenas, or ZI_BOARD_NOWHERE */
};
#define ZI_BOARD_NOWHERE UINT64_MAX
/* Of a source: the rest is its address in this member's process, all of whose takers have said that
 * they read that (struct zi_board_cma). It is not staged. */
#define ZI_BOARD_PRIVATE (1ull << 63)
/* This member will not make the call: the payload is its reason, a text with its NUL. */
#define ZI_BOARD_REFUSED (1u << 0)
/* Of zinf-net, in a group that spans nodes: the data go from and to where they lie (far.h). */
#define ZI_BOARD_DIRECT (1u << 1)
/* This member does not wait for the others. */
#define ZI_BOARD_AHEAD (1u << 2)
/* Of zinf-net: they came with the frames (frame.h). */
#define ZI_BOARD_SMALL (1u << 3)
/* A refusal only because something was wrong with a call before that this member was ahead of: who
 * is ahead of this one finds that out by itself. */
#define ZI_BOARD_ECHO (1u << 4)
/* This member waits for the root alone. */
#define ZI_BOARD_LEANS (1u << 5)

/* Whether two members call the same. */
static inline bool zi_board_is_same_call(const struct zi_board_call *a,
                                         const struct zi_board_call *b)
{
	return a->operation == b->operation && a->dtype == b->dtype &&
	       a->reduce_op == b->reduce_op && a->root == b->root &&
	       a->element_count == b->element_count;
}

/* One line: whoever reads the number has the rest without another miss. */
struct zi_board_post {
	alignas(ZI_LINE_BYTES) uint32_t sequence; /* written last, released */
	uint16_t payload_bytes;                   /* that lie here, or in the inline part */
	uint16_t unseen; /* calls before this one whose posts this member has yet to look at */
	struct zi_board_call call;
	uint8_t payload[ZI_BOARD_PAYLOAD_BYTES];
	uint64_t staging; /* this member's own: where its pieces lie in the arenas */
};
static_assert(sizeof(struct zi_board_post) == ZI_LINE_BYTES, "a post is one line");

/* all_to_allv: two of these per member, how much the poster sends to it and takes from it. */
#define ZI_BOARD_COUNTS_BYTES(member_count) (2u * (member_count) * (uint32_t)sizeof(uint64_t))
static_assert(ZI_BOARD_COUNTS_BYTES(ZI_WORLD_MAX) <= ZI_BOARD_INLINE_BYTES, "the counts fit");

/* What a member sends to one peer; writer: the sender. */
struct zi_board_send {
	alignas(ZI_LINE_BYTES)
		uint32_t sequence; /* of the message, from 1; written last, released */
	uint32_t filled;           /* pieces staged, of all messages; released */
	uint64_t element_count;
	uint64_t source;  /* a place in the arenas, or ZI_BOARD_NOWHERE: in pieces */
	uint64_t staging; /* where the pieces lie */
	uint32_t piece_bytes;
	uint8_t dtype;
	uint8_t is_over; /* for whoever asks, of a member on another node: `sequence` is over */
	uint8_t reserved0[2];
	/* For a member on another node: until when the sender waits (zi_clock_now_ns()), and for
	 * how long that was. */
	uint64_t deadline_ns;
	uint32_t timeout_ms;
	/* Messages up to this one are refused, of those that the receiver has not left; stored
	 * before `sequence`, which counts them as well. */
	uint32_t refused;
	/* Why: number of the sender's zi_board_refusal, as of `refused`, which a member on another
	 * node stores first. */
	uint32_t refusal;
	uint32_t base; /* of message `sequence`: pieces of all messages before it */
};
static_assert(sizeof(struct zi_board_send) == ZI_LINE_BYTES, "one line");

/* What a member takes from one peer; writer: the receiver. */
struct zi_board_take {
	alignas(ZI_LINE_BYTES) uint32_t sequence; /* of the message it waits for, or has taken */
	uint32_t done;                            /* newest message that it has left */
	uint32_t emptied;                         /* pieces taken, of all messages; released */
	uint8_t dtype;                            /* of the receive number `sequence` */
	uint8_t refused_dtype; /* 0, or message `done` was not taken: what would have been */
	uint8_t reserved0[2];
	uint64_t element_count; /* as `dtype` */
	uint64_t refused_count; /* as `refused_dtype` */
	uint64_t deadline_ns;   /* as a sender's */
	uint32_t timeout_ms;
	/* Messages up to this one are refused, of those that the receiver has not left: the sender
	 * need not wait until they are. */
	uint32_t refused;
	uint32_t refusal; /* why, as in zi_board_send; 0: refused_dtype is of that message */
	uint8_t reserved[12];
};
static_assert(sizeof(struct zi_board_take) == ZI_LINE_BYTES, "one line");

/* Why a member refused messages, which say so on their lines. Only the newest few are kept. */
struct zi_board_refusal {
	alignas(ZI_LINE_BYTES) uint32_t number; /* from 1; 0 while it is written */
	uint32_t error;                         /* errno */
	char reason[248];                       /* a text with its NUL */
};
#define ZI_BOARD_REFUSALS 8u /* number n is kept at n mod 8 */
/* A number that none is given: it is kept no more. */
#define ZI_BOARD_REFUSAL_LOST UINT32_MAX
/* So many of the messages that a member refused say for which reason each. */
#define ZI_BOARD_REFUSED_MESSAGES 128u

/*
 * Cross memory attach: what peers need to copy straight out of this member's private memory, and
 * whose memory this member reads so. A reader believes nothing of it: only who finds `word` at its
 * address, in the process of that number, reads there, and looks at it again behind what it read.
 */
struct zi_board_cma {
	alignas(ZI_LINE_BYTES) uint32_t pid; /* 0: not offered; released behind word… */
	uint32_t unread; /* newest call of which this member could not read what it needs */
	uint64_t word_address, word;
	uint64_t from_bytes; /* it would have shorter blocks staged: the highest of all counts */
	/* Parts of the board: whether their member's memory can be read by this one has been tried,
	 * and it can. Bits. */
	uint64_t tried, reads;
	uint8_t reserved[16];
};
static_assert(sizeof(struct zi_board_cma) == ZI_LINE_BYTES, "one line");

struct zi_board_member {
	struct zi_board_post posts[ZI_BOARD_SLOTS];
	/* Number of the newest call whose data in memory this member has left; of calls whose data
	 * travel with the posts, which nobody waits to be left, only every 2^20th is told. */
	struct zi_line finished;
	struct zi_line sleeping; /* 1: whoever posts or finishes wakes this member */
	struct zi_line step;     /* steps of calls in pieces that this member has made */
	struct zi_line mail;     /* words that it changed for members on other nodes (mail.h) */
	/* Newest call whose posts this member saw to contradict each other, or which it refuses:
	 * who waits for somebody else looks at all posts again. Every 2^20th call it follows. */
	struct zi_line alarm;
	struct zi_board_cma cma;
	uint8_t reserved0[42 * ZI_LINE_BYTES];
	struct zi_board_refusal refusals[ZI_BOARD_REFUSALS];
	/* The newest messages refused, number in the upper half, then one byte for the line, one
	 * that is 1 of a send, and the low 16 bits of its reason's number: each is one word, so
	 * that it is whole. Before `refused` of that line says so. */
	uint64_t refused[ZI_BOARD_REFUSED_MESSAGES];
	uint8_t inlined[ZI_BOARD_SLOTS][ZI_BOARD_INLINE_BYTES]; /* of the post of the same index */
	struct zi_board_send sends[ZI_WORLD_MAX];               /* to each member */
	struct zi_board_take takes[ZI_WORLD_MAX];               /* from each member */
};
static_assert(sizeof(struct zi_board_refusal) == 256, "whole lines");
static_assert(sizeof(struct zi_board_member) == ZI_BOARD_MEMBER_BYTES, "whole pages");

/* Bytes of a board. */
static inline uint64_t zi_board_bytes(uint32_t member_count)
{
	return (uint64_t)member_count * ZI_BOARD_MEMBER_BYTES;
}
/* For one who only looks in, and takes what is there for hearsay: a copy of what was posted last to
 * this slot. While its member posts the next one, the copy may be a bit of both. */
void zi_board_look(const struct zi_board_post *post, struct zi_board_post *ret_post);

/* Says that message @sequence on @line is refused, for reason @number; 0: for its type, as that
 * line says. @count: of messages that were before, by this member. */
void zi_board_refuse_message(struct zi_board_member *self, uint32_t count, uint32_t sequence,
                             uint32_t line, bool is_send, uint32_t number);
/* What another said so. Return: the number, 0; ZI_BOARD_REFUSAL_LOST: it is said no more. */
uint32_t zi_board_refused_for(const struct zi_board_member *member, uint32_t sequence,
                              uint32_t line, bool is_send);
/* Keeps number @number, whose writer this is. @error: a positive errno; @reason is cut. */
void zi_board_refuse(struct zi_board_refusal *refusals, uint32_t number, uint32_t error,
                     const char *reason);
/* Another's. Return: whether number @number is still kept; then @ret_refusal is a whole copy, whose
 * reason ends and can be printed. */
bool zi_board_refusal_of(const struct zi_board_refusal *refusals, uint32_t number,
                         struct zi_board_refusal *ret_refusal);
