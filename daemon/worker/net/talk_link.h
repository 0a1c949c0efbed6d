/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of what daemons say to each other (daemon/worker/talk.h) to and from one other node:
 * frames of one length, in order, and pulled bytes beside them. Floor 3, of zinf-net. Owner: the
 * thread that talks (talk.h).
 *
 * The rule is that of mail_link.h: a thread of each link waits for frames, counts them and rings.
 * Pulled bytes need none: who pulls has begun to receive before it asks, so they wait for nobody,
 * and the frame that is sent behind them comes behind them.
 *
 * A frame lies still until the other one has said that it took it, which each frame says (`took`);
 * a place is filled anew after that alone. Where nothing else goes back a frame of kind HEARD says
 * it, for others than HEARD alone. Of frames that are no HEARD at most TALK_WINDOW lie, and so do
 * then at most as many HEARD: those that the other had not taken when it sent its newest frame were
 * each sent for another of its frames, all of which lay there then. So there is a place for each
 * always, and a receive that has begun.
 *
 * What is served goes in chunks, of each pull in turn, and no more of them at once than
 * TALK_WAY_BYTES: so a vote waits for that much on the way at most, whatever is pulled.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/thread.h"
#include "daemon/worker/net.h"
#include "daemon/worker/net/gloo.h"

#define TALK_WINDOW      64u
#define TALK_RING        (2 * TALK_WINDOW)
#define TALK_CHUNK_BYTES (256u << 10)
#define TALK_WAY_BYTES   (1u << 20) /* 0.1 s at 100 Mbit/s */

/* Kinds of frames beside those of entries. */
enum talk_frame_kind {
	TALK_PART = _TALK_KIND_COUNT, /* a chunk went before this frame, not the last one */
	TALK_HEARD,                   /* nothing but what it took */
	_TALK_FRAME_KIND_COUNT,
};

struct talk_frame {
	uint8_t kind, what;
	uint8_t index; /* PULL, PART, CAME, REFUSED: which of the puller's pulls */
	uint8_t reserved0;
	int32_t error;
	uint64_t tag;
	uint32_t unit, subgroup, micro, piece;
	int64_t step;
	uint64_t bytes;
	uint32_t took;   /* frames of the other one, so far, modulo 2^32 */
	uint32_t number; /* PULL: by which its chunks find where they belong */
	uint32_t data_bytes, reserved1;
	uint8_t data[TALK_DATA_BYTES];
};
static_assert(sizeof(struct talk_frame) == 256, "whole");

/* What this node pulls from the other one. */
struct talk_pull {
	bool is_used;
	uint32_t slab;
	uint64_t tag, offset_bytes, bytes;
	uint64_t come_bytes;
};

enum talk_serve_state {
	TALK_SERVE_NONE = 0,
	TALK_SERVE_ASKED = 1, /* the daemon has yet to answer */
	TALK_SERVE_GOING = 2,
	TALK_SERVE_SENT = 3, /* or refused: until the other one has taken the last frame */
};

/* What the other one pulls from here. */
struct talk_serve {
	enum talk_serve_state state;
	uint32_t slab, number;
	uint64_t tag, offset_bytes, bytes;
	uint64_t sent_bytes;
};

struct talk_slab {
	void *memory; /* NULL: there is none */
	uint64_t bytes;
};

/* Of the caller's, and there until talk_link_close(). */
struct talk_link_options {
	struct net_mesh *mesh;
	uint32_t node; /* the other one */
	struct talk_slab slabs[NET_SLABS_MAX];
	uint32_t *rung; /* see talk_ring() */
	/* An entry for the daemon, from within talk_link_hear(). */
	void (*tell)(void *arg, const struct talk_entry *entry);
	void *arg;
};

struct talk_link {
	struct talk_link_options options;
	struct net_lane *frames;                /* NULL: it is not open */
	struct net_lane *pieces[NET_SLABS_MAX]; /* NULL: no such slab */
	struct talk_frame *memory;              /* (2 * TALK_RING,) what comes in, what goes out */
	struct zi_thread thread;
	uint32_t arrived; /* writer: the thread; frames so far */
	uint32_t is_dead; /* writer: the thread, once these say why */
	int error;        /* -EPIPE, or -ECANCELED net_mesh_abort() */
	struct zi_text text;
	/* Nothing can be sent or received any more: the thread will say so when all that came is
	 * counted, in a moment; if it does not by then, so it is. */
	uint64_t cut_due_ns; /* ZI_DEADLINE_NEVER: all is well */
	struct zi_text cut;

	uint32_t taken, told; /* frames that came; of those the other one was told */
	uint32_t owed;        /* others than HEARD it was not told of */
	bool is_urgent;       /* it waits for that */
	uint32_t sent, gone;  /* frames from here; of those it said to have taken */
	uint32_t lying;       /* others than HEARD it did not */
	uint32_t pull_number;
	struct talk_pull pulls[TALK_CREDIT];
	struct talk_serve serves[TALK_CREDIT];
	uint32_t next_serve; /* whose turn it is */
	uint64_t way_bytes;  /* chunks that lie */
};

/* @link is zero, and in its place until talk_link_close(). Return: 0; -ENOMEM, -EAGAIN no thread,
 * with @text. */
int talk_link_open(struct talk_link *link, const struct talk_link_options *options,
                   struct zi_text *text);
/* After net_mesh_abort(). Of one that is not open, or half: fine. */
void talk_link_close(struct talk_link *link);

/* The oldest frame that has come. Return: 1 it is taken; 0 there is none; -EPROTO it makes no
 * sense, -ETIMEDOUT, -EPIPE, -ECANCELED, with @text. */
int talk_link_hear(struct talk_link *link, struct zi_text *text);
/* What the daemon says to this node. Return: 0; 1 it cannot be said now; -EINVAL it makes no sense,
 * with @text. */
int talk_link_say(struct talk_link *link, const struct talk_entry *entry, struct zi_text *text);
/* Chunks go that may; then what is owed. */
void talk_link_serve(struct talk_link *link);
void talk_link_answer(struct talk_link *link);

/* Adds one to what the talking thread waits for. Any thread. */
void talk_ring(uint32_t *rung);
