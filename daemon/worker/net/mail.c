/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between nodes; see mail.h. Floor 3, of zinf-net. Owner: the mail's thread, but for
 * mail_start() and mail_stop(). */
#include "daemon/worker/net/mail.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/mail_private.h"

/* For what members here have taken to be told. */
#define MAIL_LAST_NS (100 * ZI_NS_PER_MS)

static uint32_t pair_count(const struct mail *mail)
{
	return mail->wire.self_count * mail->wire.other_count;
}

/* ---- failures ---- */

/* @suspect: a node, or NET_CULPRIT_NONE. */
static void fail(struct mail *mail, int error, uint32_t suspect, const struct zi_text *why)
{
	struct nodes_end end = { .error = error, .culprit = suspect };

	if (mail->is_over || error == -ECANCELED)
		return; /* It is known. */
	mail->is_over = true;
	zi_text_set(&end.text, "messages of group %u: %.200s", mail->options.group, why->chars);
	mail->options.failed(mail->options.arg, &end);
}

static void fail_frame(struct mail *mail, uint32_t node, const struct mail_frame *frame)
{
	struct zi_text why;

	zi_text_set(&why, "%s sent an invalid state of message %u from member %u to %u (%u)",
	            nodes_name(mail->options.nodes, node), frame->sequence, frame->from, frame->to,
	            frame->kind);
	fail(mail, -EPROTO, node, &why);
}

/* ---- the thread ---- */

/* Whose message @frame, of @node, is about; NULL: nobody's. */
static struct mail_pair *find_pair(struct mail *mail, uint32_t node, const struct mail_frame *frame)
{
	const struct zi_far_shape *shape = mail->options.shape;
	bool is_in = mail_kind_is_in(frame->kind);
	uint32_t self = is_in ? frame->to : frame->from, peer = is_in ? frame->from : frame->to;

	if (self >= shape->member_count || peer >= shape->member_count ||
	    !zi_far_is_here(shape, self) || shape->nodes[peer] != node)
		return NULL;
	return &mail->pairs[zi_far_local(shape, self) * mail->wire.other_count +
	                    zi_mail_other(&mail->wire, peer)];
}

static int take_frame(struct mail *mail, uint32_t node, const struct mail_frame *frame,
                      struct zi_text *text)
{
	struct mail_pair *pair = find_pair(mail, node, frame);

	if (!pair)
		return 1;
	switch (frame->kind) {
	case MAIL_SEND:
		return mail_take_send(mail, pair, frame, text);
	case MAIL_ROOM:
		return mail_take_room(mail, pair, frame, text);
	case MAIL_PIECE:
		return mail_take_piece(mail, pair, frame, text);
	case MAIL_OVER:
		return mail_take_over(mail, pair, frame);
	case MAIL_LATE_SEND:
	case MAIL_LATE_TAKE:
		return mail_take_late(mail, pair, frame, text);
	case MAIL_LATE_SEND_HEARD:
	case MAIL_LATE_TAKE_HEARD:
		return mail_take_late_heard(mail, pair, frame);
	case MAIL_REFUSED:
		return mail_take_refused(mail, pair, frame, text);
	case MAIL_REFUSED_HEARD:
		return mail_take_refused_heard(mail, pair, text);
	default:
		return 1;
	}
}

/* All frames that have come from @node. */
static void take_frames(struct mail *mail, uint32_t node)
{
	struct mail_link *link = &mail->links[node];
	const struct mail_frame *frame;

	while (!mail->is_over && (frame = mail_link_next(link))) {
		struct zi_text text = { "" };
		int r = take_frame(mail, node, frame, &text);

		if (r > 0)
			fail_frame(mail, node, frame);
		r = r ? r : mail_link_took(link, &text);
		if (r < 0)
			fail(mail, r, r == -EPROTO ? NET_CULPRIT_NONE : node, &text);
		if (r)
			return;
	}
}

static void poll_pair(struct mail *mail, struct mail_pair *pair)
{
	struct zi_text text = { "" };
	int r;

	if (mail->is_over)
		return;
	if (zi_meet_load(&pair->link->is_dead)) {
		if (mail_is_wanted(pair))
			fail(mail, -EPIPE, pair->node, &pair->link->text);
		return;
	}
	r = mail_poll_out(mail, pair, &text);
	r = r ? r : mail_poll_in(mail, pair, &text);
	mail_note_due(mail, pair);
	if (r)
		fail(mail, r, r == -EPROTO ? NET_CULPRIT_NONE : pair->node, &text);
}

static void turn(struct mail *mail, struct zi_meet_wants *wants)
{
	bool is_any_dead = false;

	for (uint32_t i = 0; i < mail->options.shape->node_count; i++) {
		is_any_dead |= zi_meet_load(&mail->links[i].is_dead);
		take_frames(mail, i); /* Those that came before it died as well. */
	}
	zi_meet_wants_clear(wants);
	for (uint32_t i = 0; i < mail->wire.self_count; i++) {
		const uint32_t *ring = &mail->meet.members[i].mail.value;
		uint32_t seen = zi_meet_load(ring);

		zi_meet_want(wants, &mail->meet, ring, seen + 1);
		if (seen == mail->seen[i] && !is_any_dead)
			continue;
		mail->seen[i] = seen;
		for (uint32_t k = 0; k < mail->wire.other_count; k++)
			poll_pair(mail, &mail->pairs[i * mail->wire.other_count + k]);
	}
}

static void look_at_clock(struct mail *mail)
{
	uint64_t now_ns = zi_clock_now_ns();
	struct zi_text text = { "" };
	uint32_t node;
	int r;

	if (mail->is_over || now_ns < mail->due_ns)
		return;
	r = mail_ask_late(mail, now_ns, &text, &node);
	if (r)
		fail(mail, r, node, &text);
}

static int mail_main(void *arg)
{
	struct mail *mail = arg;
	struct zi_meet_wants wants;

	for (;;) {
		bool is_stopping = zi_meet_load(&mail->stopping);
		uint32_t rung = zi_meet_load(&mail->rung);

		turn(mail, &wants);
		if (is_stopping) {
			mail_ring(&mail->ended);
			return 0;
		}
		look_at_clock(mail);
		zi_meet_want(&wants, NULL, &mail->rung, rung + 1);
		/* Whatever ends it: look. */
		(void)zi_meet_wait(&wants, NULL, mail->is_over ? ZI_DEADLINE_NEVER : mail->due_ns);
	}
}

/* ---- life ---- */

static void init_pairs(struct mail *mail)
{
	const struct zi_far_shape *shape = mail->options.shape;
	uint32_t counts[SUBTREE_NODES_MAX] = { 0 };

	for (uint32_t i = 0; i < pair_count(mail); i++) {
		uint32_t local = i / mail->wire.other_count, other = i % mail->wire.other_count;
		struct mail_pair *pair = &mail->pairs[i];
		struct zi_board_member *member = &mail->meet.members[local];
		char *letters = zi_mail_letters(&mail->wire, local, other, true);

		pair->local = local;
		pair->self = shape->members[local];
		pair->peer = mail->wire.others[other];
		pair->node = shape->nodes[pair->peer];
		pair->index = counts[pair->node]++;
		pair->link = &mail->links[pair->node];
		pair->box = zi_mail_box(&mail->wire, local, other);
		pair->said = &member->sends[mail->wire.lines[pair->peer]];
		pair->taken = &member->takes[mail->wire.lines[pair->peer]];
		pair->letters_out = (uint64_t)(letters - mail->options.slab);
		pair->letters_in = pair->letters_out + ZI_MAIL_LETTERS * mail->wire.letter_bytes;
	}
}

static int open_links(struct mail *mail, struct zi_text *text)
{
	const struct zi_far_shape *shape = mail->options.shape;
	int r = 0;

	for (uint32_t i = 0; i < shape->node_count && !r; i++)
		if (i != shape->node)
			r = mail_link_open(&mail->links[i], nodes_mesh(mail->options.nodes), i,
			                   shape->self_count * shape->counts[i], mail->options.slab,
			                   mail->options.slab_bytes, &mail->rung, text);
	return err_trace(r);
}

/* Documented in the header, as is the next. */
int mail_start(const struct mail_options *options, struct zi_text *text, struct mail **ret_mail)
{
	const struct zi_far_shape *shape = options->shape;
	uint32_t pairs = shape->self_count * (shape->member_count - shape->self_count);
	struct mail *mail = calloc(1, sizeof(*mail) + pairs * sizeof(mail->pairs[0]));
	int r;

	if (!mail)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for messages"));
	mail->options = *options;
	zi_mail_init(&mail->wire, shape, options->slab, options->slab_bytes);
	mail->meet = (struct zi_meet){ .members = options->board,
		                       .verdict = &mail->zero,
		                       .spin_us = &mail->zero,
		                       .member_count = shape->self_count + 1,
		                       .self = shape->self_count + 1 };
	mail->due_ns = ZI_DEADLINE_NEVER;
	init_pairs(mail);
	r = open_links(mail, text);
	if (!r) {
		r = zi_thread_start(&mail->thread, "mail", mail_main, mail);
		if (r)
			zi_text_set(text, "no thread for messages: %s", zi_err_name(r));
	}
	if (r) {
		(void)mail_stop(mail);
		return err_trace(r);
	}
	*ret_mail = mail;
	return 0;
}

/* It may wait for a node that does not answer: not for long. */
static void await_last_turn(struct mail *mail)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(MAIL_LAST_NS);
	int r = 0;

	while (!r && !zi_meet_has_come(&mail->ended, 1)) {
		struct zi_meet_wants wants = { .count = 0 };

		zi_meet_want(&wants, NULL, &mail->ended, 1);
		r = zi_meet_wait(&wants, NULL, deadline_ns);
	}
	/* What it said last must be begun before its lanes go. */
	(void)net_mesh_flush(nodes_mesh(mail->options.nodes), deadline_ns);
}

struct mail *mail_stop(struct mail *mail)
{
	if (!mail)
		return NULL;
	__atomic_store_n(&mail->stopping, 1, __ATOMIC_RELEASE); /* Pairs with zi_meet_load(). */
	mail_ring(&mail->rung);
	if (mail->thread.is_started)
		await_last_turn(mail);
	net_mesh_abort(nodes_mesh(mail->options.nodes));
	(void)zi_thread_join(&mail->thread); /* Returns 0 always. */
	for (uint32_t i = 0; i < mail->options.shape->node_count; i++)
		mail_link_close(&mail->links[i]);
	__atomic_store_n(mail->options.is_carrying, 0, __ATOMIC_RELEASE);
	free(mail);
	return NULL;
}
