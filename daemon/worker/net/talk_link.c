/* SPDX-License-Identifier: Apache-2.0 */
/* Frames to and from one node; see talk_link.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/talk_link.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/futex.h"
#include "daemon/worker/net/talk_private.h"

/* No slot of exchange_slot() or mail_link.c, whose lowest byte is another. */
#define TALK_SLOT_FRAMES 0x30u
/* So many frames are not told of one by one. */
#define TALK_OWED_MAX (TALK_WINDOW / 4)
/* Places that pieces leave to what is not pulled. */
#define TALK_ROOM_LEFT (TALK_WINDOW / 4)
/* See talk_link.cut_due_ns. */
#define TALK_CUT_NS ZI_NS_PER_S

/* Documented in the header, as are all that are not static there, and in talk_private.h. */
void talk_ring(uint32_t *rung)
{
	(void)__atomic_add_fetch(rung, 1, __ATOMIC_RELEASE); /* Pairs with zi_meet_load(). */
	zi_futex_wake(rung);
}

static int link_main(void *arg)
{
	struct talk_link *link = arg;
	int r = 0;

	while (!r) {
		r = net_lane_wait_received(link->frames, 1, ZI_DEADLINE_NEVER, &link->text);
		link->error = r;
		/* Both pair with zi_meet_load(). */
		if (!r)
			__atomic_store_n(&link->arrived, link->arrived + 1, __ATOMIC_RELEASE);
		else
			__atomic_store_n(&link->is_dead, 1, __ATOMIC_RELEASE);
		talk_ring(link->options.rung);
	}
	return r;
}

/* ---- life ---- */

static void note_cut(struct talk_link *link, const struct zi_text *text)
{
	link->cut_due_ns = zi_clock_deadline_ns(TALK_CUT_NS);
	link->cut = *text;
}

void talk_send(struct talk_link *link, struct net_lane *lane, uint64_t slot, uint64_t offset_bytes,
               uint64_t bytes)
{
	struct zi_text text;

	if (link->cut_due_ns == ZI_DEADLINE_NEVER &&
	    net_lane_send(lane, slot, offset_bytes, bytes, &text))
		note_cut(link, &text);
}

void talk_receive(struct talk_link *link, struct net_lane *lane, uint64_t slot,
                  uint64_t offset_bytes, uint64_t bytes)
{
	struct zi_text text;

	if (link->cut_due_ns == ZI_DEADLINE_NEVER &&
	    net_lane_receive(lane, slot, offset_bytes, bytes, &text))
		note_cut(link, &text);
}

static void begin_frame(struct talk_link *link, uint32_t index)
{
	talk_receive(link, link->frames, TALK_SLOT_FRAMES,
	             index % TALK_RING * sizeof(struct talk_frame), sizeof(struct talk_frame));
}

static int open_lanes(struct talk_link *link)
{
	const struct talk_link_options *options = &link->options;
	int r = net_lane_new(options->mesh, options->node, link->memory,
	                     2 * TALK_RING * sizeof(link->memory[0]), &link->frames);

	for (uint32_t i = 0; i < NET_SLABS_MAX && !r; i++)
		if (options->slabs[i].memory)
			r = net_lane_new(options->mesh, options->node, options->slabs[i].memory,
			                 options->slabs[i].bytes, &link->pieces[i]);
	return err_trace(r);
}

int talk_link_open(struct talk_link *link, const struct talk_link_options *options,
                   struct zi_text *text)
{
	void *memory = mmap(NULL, 2 * TALK_RING * sizeof(link->memory[0]), PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (memory == MAP_FAILED)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory to talk to node %u",
		                                options->node));
	link->options = *options;
	link->memory = memory;
	link->cut_due_ns = ZI_DEADLINE_NEVER;
	r = open_lanes(link);
	if (r) {
		zi_text_set(text, "no memory to talk to node %u", options->node);
		return err_trace(r);
	}
	for (uint32_t i = 0; i < TALK_RING; i++)
		begin_frame(link, i);
	r = zi_thread_start(&link->thread, "talk-link", link_main, link);
	if (r)
		zi_text_set(text, "no thread to talk to node %u: %s", options->node,
		            zi_err_name(r));
	return err_trace(r);
}

void talk_link_close(struct talk_link *link)
{
	(void)zi_thread_join(&link->thread); /* Why it ended is in link->text. */
	link->frames = net_lane_free(link->frames);
	for (uint32_t i = 0; i < NET_SLABS_MAX; i++)
		link->pieces[i] = net_lane_free(link->pieces[i]);
	if (link->memory)
		(void)munmap(link->memory, 2 * TALK_RING * sizeof(link->memory[0])); /* Ours. */
	link->memory = NULL;
}

/* ---- frames that go ---- */

bool talk_has_room(const struct talk_link *link, bool is_piece)
{
	/* One that never says what it took gets HEARD into all places. */
	return link->lying + (is_piece ? TALK_ROOM_LEFT : 0) < TALK_WINDOW &&
	       link->sent - link->gone < TALK_RING;
}

static struct talk_frame *place_out(const struct talk_link *link, uint32_t index)
{
	return &link->memory[TALK_RING + index % TALK_RING];
}

struct talk_frame *talk_frame_new(struct talk_link *link, uint32_t kind)
{
	struct talk_frame *frame = place_out(link, link->sent);

	assert(link->sent - link->gone < TALK_RING);
	memset(frame, 0, sizeof(*frame));
	frame->kind = (uint8_t)kind;
	return frame;
}

void talk_frame_send(struct talk_link *link, struct talk_frame *frame)
{
	assert(frame == place_out(link, link->sent));
	frame->took = link->told = link->taken;
	link->owed = 0;
	link->is_urgent = false;
	link->lying += frame->kind != TALK_HEARD;
	link->sent++;
	talk_send(link, link->frames, TALK_SLOT_FRAMES,
	          (uint64_t)((const char *)frame - (char *)link->memory), sizeof(*frame));
}

int talk_link_say(struct talk_link *link, const struct talk_entry *entry, struct zi_text *text)
{
	struct talk_frame *frame;
	int r = 0;

	if (!talk_kind_is_said(entry->kind) || entry->data_bytes > sizeof(entry->data) ||
	    entry->error > 0 || entry->error < -TALK_ERRNO_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "no daemon says %u, with error %d and %u bytes of "
		                                "data",
		                                entry->kind, entry->error, entry->data_bytes));
	if (entry->kind == TALK_SERVE)
		return err_trace(talk_say_serve(link, entry, text));
	if (!talk_has_room(link, false))
		return 1;
	frame = talk_frame_new(link, entry->kind);
	frame->what = entry->what;
	frame->error = entry->error;
	frame->tag = entry->tag;
	frame->unit = entry->unit;
	frame->subgroup = entry->subgroup;
	frame->micro = entry->micro;
	frame->piece = entry->piece;
	frame->step = entry->step;
	frame->data_bytes = entry->data_bytes;
	memcpy(frame->data, entry->data, entry->data_bytes);
	if (entry->kind == TALK_PULL)
		r = talk_say_pull(link, entry, frame, text);
	else if (entry->kind == TALK_REFUSED)
		r = talk_say_refused(link, entry, frame, text);
	if (!r)
		talk_frame_send(link, frame);
	return err_trace(r);
}

void talk_link_answer(struct talk_link *link)
{
	/* One that says more than it may has its answer when there is a place. */
	if (link->sent - link->gone < TALK_RING && (link->is_urgent || link->owed >= TALK_OWED_MAX))
		talk_frame_send(link, talk_frame_new(link, TALK_HEARD));
}

/* ---- frames that come ---- */

int talk_nonsense(const struct talk_link *link, const struct talk_frame *frame, const char *what,
                  struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -EPROTO, "node %u sent an invalid message (%u, tag %llu): %s",
		link->options.node, frame->kind, (unsigned long long)frame->tag, what));
}

/* The other one has taken frames up to @took: their places are free. */
static int count_gone(struct talk_link *link, const struct talk_frame *heard, struct zi_text *text)
{
	uint32_t count = heard->took - link->gone;
	int r;

	if (count > link->sent - link->gone)
		return err_trace(talk_nonsense(link, heard, "it took what was never sent", text));
	if (!count)
		return 0;
	r = net_lane_wait_sent(link->frames, count, zi_clock_deadline_ns(TALK_SOON_NS), text);
	for (uint32_t i = 0; i < count && !r; i++) {
		const struct talk_frame *frame = place_out(link, link->gone++);

		link->lying -= frame->kind != TALK_HEARD;
		r = talk_gone(link, frame, text);
	}
	return err_trace(r);
}

/* Words from another node: nothing of it is a place here. */
static void make_entry(const struct talk_link *link, const struct talk_frame *frame,
                       struct talk_entry *entry)
{
	*entry = (struct talk_entry){ .kind = frame->kind,
		                      .what = frame->what,
		                      .node = (uint16_t)link->options.node,
		                      .error = frame->error,
		                      .tag = frame->tag,
		                      .unit = frame->unit,
		                      .subgroup = frame->subgroup,
		                      .micro = frame->micro,
		                      .piece = frame->piece,
		                      .step = frame->step,
		                      .data_bytes = frame->data_bytes };
	memcpy(entry->data, frame->data, frame->data_bytes);
}

static int take(struct talk_link *link, const struct talk_frame *frame, struct zi_text *text)
{
	struct talk_entry entry;
	bool is_told = true;
	int r;

	if (!frame->kind || frame->kind == TALK_SERVE || frame->kind == TALK_GONE ||
	    frame->kind >= _TALK_FRAME_KIND_COUNT || frame->reserved0 || frame->reserved1 ||
	    frame->data_bytes > sizeof(frame->data) || frame->error > 0 ||
	    frame->error < -TALK_ERRNO_MAX)
		return err_trace(talk_nonsense(link, frame, "there is no such word", text));
	r = count_gone(link, frame, text);
	if (r || frame->kind == TALK_HEARD)
		return err_trace(r);
	link->owed++;
	make_entry(link, frame, &entry);
	if (frame->kind == TALK_PULL) {
		r = talk_hear_pull(link, frame, text);
		entry.bytes = frame->bytes;
	} else if (frame->kind == TALK_PART || frame->kind == TALK_CAME ||
	           frame->kind == TALK_REFUSED) {
		r = talk_hear_answer(link, frame, &entry, &is_told, text);
		link->is_urgent |= frame->kind != TALK_REFUSED;
	}
	if (!r && is_told)
		link->options.tell(link->options.arg, &entry);
	return err_trace(r);
}

int talk_link_hear(struct talk_link *link, struct zi_text *text)
{
	int r;

	/* The load's acquire pairs with the thread's release. */
	if (!link->frames || __atomic_load_n(&link->arrived, __ATOMIC_ACQUIRE) == link->taken)
		return 0;
	r = take(link, &link->memory[link->taken % TALK_RING], text);
	if (r)
		return err_trace(r);
	begin_frame(link, link->taken++);
	return 1;
}
