/* SPDX-License-Identifier: Apache-2.0 */
/* What is pulled from one node, and served to it; see talk_link.h. Floor 3, of zinf-net. Owner: the
 * thread that talks. */
#include <errno.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/talk_private.h"

/* As TALK_SLOT_FRAMES; above it the pull's number. */
#define PULL_SLOT 0x40u

static uint64_t slot_of(uint32_t number)
{
	return (uint64_t)number << 8 | PULL_SLOT;
}

/* Of a pull of @bytes, behind @offset. */
static uint64_t chunk_bytes(uint64_t bytes, uint64_t offset)
{
	return ZI_MIN(bytes - offset, (uint64_t)TALK_CHUNK_BYTES);
}

/* Whether the own daemon's places can be. Return: 0, -EINVAL with @text. */
static int check_place(const struct talk_link *link, const struct talk_entry *entry,
                       struct zi_text *text)
{
	bool is_there = entry->slab < NET_SLABS_MAX && link->pieces[entry->slab];
	uint64_t slab_bytes = is_there ? link->options.slabs[entry->slab].bytes : 0;

	if (entry->bytes && entry->bytes <= TALK_PULL_BYTES_MAX && entry->bytes <= slab_bytes &&
	    entry->offset_bytes <= slab_bytes - entry->bytes)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"%llu bytes at %llu of slab %u: it has %llu, and at most %llu go at once",
		(unsigned long long)entry->bytes, (unsigned long long)entry->offset_bytes,
		entry->slab, (unsigned long long)slab_bytes,
		(unsigned long long)TALK_PULL_BYTES_MAX));
}

/* ---- from the other one ---- */

static struct talk_pull *find_pull(struct talk_link *link, uint64_t tag)
{
	for (uint32_t i = 0; i < TALK_CREDIT; i++)
		if (link->pulls[i].is_used && link->pulls[i].tag == tag)
			return &link->pulls[i];
	return NULL;
}

static struct talk_pull *free_pull(struct talk_link *link)
{
	for (uint32_t i = 0; i < TALK_CREDIT; i++)
		if (!link->pulls[i].is_used)
			return &link->pulls[i];
	return NULL;
}

/* Documented in talk_private.h, as are all that are not static and not in talk_link.h. */
int talk_say_pull(struct talk_link *link, const struct talk_entry *entry, struct talk_frame *frame,
                  struct zi_text *text)
{
	struct talk_pull *pull = free_pull(link);
	int r = check_place(link, entry, text);

	if (r)
		return err_trace(r);
	if (!pull || find_pull(link, entry->tag))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"pull %llu is there already, or one beyond %u that are not answered",
			(unsigned long long)entry->tag, TALK_CREDIT));
	*pull = (struct talk_pull){ .is_used = true,
		                    .slab = entry->slab,
		                    .tag = entry->tag,
		                    .offset_bytes = entry->offset_bytes,
		                    .bytes = entry->bytes };
	frame->index = (uint8_t)(pull - link->pulls);
	frame->number = link->pull_number++;
	frame->bytes = entry->bytes;
	for (uint64_t i = 0; i < entry->bytes; i += chunk_bytes(entry->bytes, i))
		talk_receive(link, link->pieces[entry->slab], slot_of(frame->number),
		             entry->offset_bytes + i, chunk_bytes(entry->bytes, i));
	return 0;
}

/*
 * A chunk that came lies there: it was sent before @frame. Of what is refused nothing comes; its
 * receives stay begun, under a number that no other pull has.
 */
int talk_hear_answer(struct talk_link *link, const struct talk_frame *frame,
                     struct talk_entry *entry, bool *ret_is_told, struct zi_text *text)
{
	struct talk_pull *pull = &link->pulls[frame->index % TALK_CREDIT];
	bool is_refused = frame->kind == TALK_REFUSED;
	uint64_t bytes;
	int r = 0;

	if (frame->index >= TALK_CREDIT || !pull->is_used || pull->tag != frame->tag)
		return err_trace(talk_nonsense(link, frame, "nothing is pulled as that", text));
	bytes = is_refused ? 0 : chunk_bytes(pull->bytes, pull->come_bytes);
	if (is_refused ? pull->come_bytes || !frame->error
	               : frame->bytes != pull->bytes || (pull->come_bytes + bytes == pull->bytes) !=
	                                                        (frame->kind == TALK_CAME))
		return err_trace(talk_nonsense(link, frame, "it is not what is pulled", text));
	if (bytes)
		r = net_lane_wait_received(link->pieces[pull->slab], 1,
		                           zi_clock_deadline_ns(TALK_SOON_NS), text);
	if (r)
		return err_trace(r);
	pull->come_bytes += bytes;
	*ret_is_told = frame->kind != TALK_PART;
	if (!*ret_is_told)
		return 0;
	entry->slab = pull->slab;
	entry->offset_bytes = pull->offset_bytes;
	entry->bytes = pull->bytes;
	pull->is_used = false;
	return 0;
}

/* ---- to the other one ---- */

/* Of those that the daemon has yet to answer. */
static struct talk_serve *find_asked(struct talk_link *link, uint64_t tag)
{
	for (uint32_t i = 0; i < TALK_CREDIT; i++)
		if (link->serves[i].state == TALK_SERVE_ASKED && link->serves[i].tag == tag)
			return &link->serves[i];
	return NULL;
}

int talk_hear_pull(struct talk_link *link, const struct talk_frame *frame, struct zi_text *text)
{
	struct talk_serve *serve = &link->serves[frame->index % TALK_CREDIT];

	if (frame->index >= TALK_CREDIT || serve->state != TALK_SERVE_NONE)
		return err_trace(talk_nonsense(link, frame, "it pulls more than it may", text));
	if (!frame->bytes || frame->bytes > TALK_PULL_BYTES_MAX)
		return err_trace(talk_nonsense(link, frame, "nobody pulls so much", text));
	for (uint32_t i = 0; i < TALK_CREDIT; i++)
		if (link->serves[i].state != TALK_SERVE_NONE && link->serves[i].tag == frame->tag)
			return err_trace(talk_nonsense(link, frame, "it is pulled already", text));
	*serve = (struct talk_serve){ .state = TALK_SERVE_ASKED,
		                      .number = frame->number,
		                      .tag = frame->tag,
		                      .bytes = frame->bytes };
	return 0;
}

static int say_unasked(const struct talk_entry *entry, struct zi_text *text)
{
	return err_origin(zi_text_error(text, -EINVAL,
	                                "pull %llu is answered, of which node %u asked nothing, or "
	                                "other than %llu bytes",
	                                (unsigned long long)entry->tag, entry->node,
	                                (unsigned long long)entry->bytes));
}

/* The worker alone hears it: no frame goes before its chunks. */
int talk_say_serve(struct talk_link *link, const struct talk_entry *entry, struct zi_text *text)
{
	struct talk_serve *serve = find_asked(link, entry->tag);
	int r = check_place(link, entry, text);

	if (r)
		return err_trace(r);
	if (!serve || serve->bytes != entry->bytes)
		return err_trace(say_unasked(entry, text));
	serve->slab = entry->slab;
	serve->offset_bytes = entry->offset_bytes;
	serve->state = TALK_SERVE_GOING;
	return 0;
}

int talk_say_refused(struct talk_link *link, const struct talk_entry *entry,
                     struct talk_frame *frame, struct zi_text *text)
{
	struct talk_serve *serve = find_asked(link, entry->tag);

	if (!serve || entry->error >= 0 || entry->error < -TALK_ERRNO_MAX)
		return err_trace(say_unasked(entry, text));
	frame->index = (uint8_t)(serve - link->serves);
	serve->state = TALK_SERVE_SENT;
	return 0;
}

/* The next one's chunk, and the frame that says so. */
static void send_chunk(struct talk_link *link, struct talk_serve *serve)
{
	uint64_t bytes = chunk_bytes(serve->bytes, serve->sent_bytes);
	bool is_last = serve->sent_bytes + bytes == serve->bytes;
	struct talk_frame *frame = talk_frame_new(link, is_last ? TALK_CAME : TALK_PART);

	talk_send(link, link->pieces[serve->slab], slot_of(serve->number),
	          serve->offset_bytes + serve->sent_bytes, bytes);
	frame->index = (uint8_t)(serve - link->serves);
	frame->tag = serve->tag;
	frame->bytes = serve->bytes;
	serve->sent_bytes += bytes;
	if (is_last)
		serve->state = TALK_SERVE_SENT;
	link->way_bytes += bytes;
	talk_frame_send(link, frame);
}

/* Documented in talk_link.h. */
void talk_link_serve(struct talk_link *link)
{
	/* Once around without one that goes, and none does. */
	for (uint32_t idle = 0; idle < TALK_CREDIT; link->next_serve++) {
		struct talk_serve *serve = &link->serves[link->next_serve % TALK_CREDIT];

		idle++;
		if (serve->state != TALK_SERVE_GOING)
			continue;
		if (!talk_has_room(link, true) ||
		    link->way_bytes + chunk_bytes(serve->bytes, serve->sent_bytes) > TALK_WAY_BYTES)
			return; /* It stays its turn. */
		send_chunk(link, serve);
		idle = 0;
	}
}

/* Chunks went before their frames. */
int talk_gone(struct talk_link *link, const struct talk_frame *frame, struct zi_text *text)
{
	struct talk_serve *serve = &link->serves[frame->index % TALK_CREDIT];
	bool is_part = frame->kind == TALK_PART;
	int r;

	if (frame->kind == TALK_REFUSED)
		serve->state = TALK_SERVE_NONE;
	if (!is_part && frame->kind != TALK_CAME)
		return 0;
	r = net_lane_wait_sent(link->pieces[serve->slab], 1, zi_clock_deadline_ns(TALK_SOON_NS),
	                       text);
	link->way_bytes -= is_part ? TALK_CHUNK_BYTES : (serve->bytes - 1) % TALK_CHUNK_BYTES + 1;
	if (r || is_part)
		return err_trace(r);
	serve->state = TALK_SERVE_NONE;
	link->options.tell(link->options.arg,
	                   &(struct talk_entry){ .kind = TALK_GONE,
	                                         .node = (uint16_t)link->options.node,
	                                         .tag = serve->tag,
	                                         .slab = serve->slab,
	                                         .offset_bytes = serve->offset_bytes,
	                                         .bytes = serve->bytes });
	return 0;
}
