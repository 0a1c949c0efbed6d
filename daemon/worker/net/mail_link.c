/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and pieces to and from one node; see mail_link.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/mail_link.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/futex.h"

/* Receives of frames that have begun: what comes faster waits at its sender. */
#define LINK_RING 16u
/* What is known to have come or gone; Gloo's thread may still be about to count it. */
#define LINK_SOON_NS (10 * ZI_NS_PER_S)
/* No slots of exchange_slot(), whose lowest byte is small. */
#define LINK_SLOT_FRAMES 0x10u
#define LINK_SLOT_PIECES 0x20u

/* Documented in the header, as are all that are not static. */
void mail_ring(uint32_t *rung)
{
	(void)__atomic_add_fetch(rung, 1, __ATOMIC_RELEASE); /* Pairs with zi_meet_load(). */
	zi_futex_wake(rung);
}

static int link_main(void *arg)
{
	struct mail_link *link = arg;
	int r = 0;

	while (!r) {
		r = net_lane_wait_received(link->frames, 1, ZI_DEADLINE_NEVER, &link->text);
		if (!r)
			__atomic_store_n(&link->arrived, link->arrived + 1, __ATOMIC_RELEASE);
		else
			__atomic_store_n(&link->is_dead, 1, __ATOMIC_RELEASE);
		mail_ring(link->rung); /* Pairs with zi_meet_load(), as the two stores do. */
	}
	return r;
}

static int begin_frame(struct mail_link *link, uint32_t index, struct zi_text *text)
{
	return err_trace(net_lane_receive(link->frames, LINK_SLOT_FRAMES,
	                                  index % LINK_RING * sizeof(struct mail_frame),
	                                  sizeof(struct mail_frame), text));
}

static int start(struct mail_link *link, struct net_mesh *mesh, uint32_t node, void *slab,
                 uint64_t slab_bytes, struct zi_text *text)
{
	int r = net_lane_new(mesh, node, link->memory, link->memory_bytes, &link->frames);

	r = r ? r : net_lane_new(mesh, node, slab, slab_bytes, &link->pieces);
	for (uint32_t i = 0; i < LINK_RING && !r; i++)
		r = begin_frame(link, i, text);
	return r ? err_trace(r)
	         : err_trace(zi_thread_start(&link->thread, "mail-link", link_main, link));
}

int mail_link_open(struct mail_link *link, struct net_mesh *mesh, uint32_t node,
                   uint32_t pair_count, void *slab, uint64_t slab_bytes, uint32_t *rung,
                   struct zi_text *text)
{
	void *memory;
	int r;

	link->rung = rung;
	link->memory_bytes =
		(LINK_RING + (uint64_t)pair_count * MAIL_PAIR_FRAMES) * sizeof(struct mail_frame) +
		pair_count * sizeof(link->lying[0]);
	memory = mmap(NULL, link->memory_bytes, PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return err_origin(
			zi_text_error(text, -ENOMEM, "no memory for messages to node %u", node));
	link->memory = memory;
	link->lying = (void *)&link->memory[LINK_RING + pair_count * MAIL_PAIR_FRAMES];
	r = start(link, mesh, node, slab, slab_bytes, text);
	if (r == -ENOMEM)
		zi_text_set(text, "no memory for messages to node %u", node);
	return err_trace(r);
}

void mail_link_close(struct mail_link *link)
{
	(void)zi_thread_join(&link->thread); /* Why it ended is in link->text. */
	link->frames = net_lane_free(link->frames);
	link->pieces = net_lane_free(link->pieces);
	if (link->memory)
		(void)munmap(link->memory, link->memory_bytes); /* Ours: cannot fail. */
	link->memory = NULL;
}

/* ---- frames ---- */

static_assert(MAIL_PAIR_FRAMES <= 16, "bits of `lying`");

/* Which place of a pair's. */
static uint32_t place_of(enum mail_kind kind, uint32_t piece)
{
	static const uint8_t firsts[_MAIL_KIND_COUNT] = {
		[MAIL_SEND] = 0,
		[MAIL_OVER] = 1,
		[MAIL_ROOM] = 2,
		[MAIL_PIECE] = 4,
		[MAIL_LATE_SEND] = 6,
		[MAIL_LATE_TAKE] = 7,
		[MAIL_LATE_SEND_HEARD] = 8,
		[MAIL_LATE_TAKE_HEARD] = 9,
		[MAIL_REFUSED] = 10,
		[MAIL_REFUSED_HEARD] = 11,
	};

	return firsts[kind] + (kind == MAIL_ROOM || kind == MAIL_PIECE ? piece % 2 : 0);
}

struct mail_frame *mail_link_frame(struct mail_link *link, uint32_t pair, enum mail_kind kind,
                                   uint32_t piece)
{
	uint32_t place = place_of(kind, piece);
	struct mail_frame *frame = &link->memory[LINK_RING + pair * MAIL_PAIR_FRAMES + place];

	assert(!(link->lying[pair] >> place & 1));
	memset(frame, 0, offsetof(struct mail_frame, data));
	frame->kind = (uint8_t)kind;
	frame->piece = piece;
	return frame;
}

int mail_link_send(struct mail_link *link, const struct mail_frame *frame, struct zi_text *text)
{
	uint64_t index = (uint64_t)(frame - link->memory) - LINK_RING;

	link->lying[index / MAIL_PAIR_FRAMES] |= (uint16_t)(1u << index % MAIL_PAIR_FRAMES);
	return err_trace(net_lane_send(link->frames, LINK_SLOT_FRAMES,
	                               (uint64_t)((const char *)frame - (char *)link->memory),
	                               sizeof(*frame), text));
}

bool mail_link_lies(const struct mail_link *link, uint32_t pair, enum mail_kind kind,
                    uint32_t piece)
{
	return link->lying[pair] >> place_of(kind, piece) & 1;
}

void mail_link_gone(struct mail_link *link, uint32_t pair, enum mail_kind kind, uint32_t piece)
{
	uint64_t deadline_ns;
	struct zi_text text;

	if (!mail_link_lies(link, pair, kind, piece))
		return;
	link->lying[pair] &= (uint16_t) ~(1u << place_of(kind, piece));
	deadline_ns = zi_clock_deadline_ns(LINK_SOON_NS);
	/* A connection that is lost shows elsewhere. */
	(void)net_lane_wait_sent(link->frames, 1, deadline_ns, &text);
	if (kind == MAIL_PIECE)
		(void)net_lane_wait_sent(link->pieces, 1, deadline_ns, &text);
}

const struct mail_frame *mail_link_next(struct mail_link *link)
{
	if (!link->memory || __atomic_load_n(&link->arrived, __ATOMIC_ACQUIRE) == link->taken)
		return NULL;
	return &link->memory[link->taken % LINK_RING];
}

int mail_link_took(struct mail_link *link, struct zi_text *text)
{
	return err_trace(begin_frame(link, link->taken++, text));
}

/* ---- pieces ---- */

static uint64_t slot_of(uint32_t from, uint32_t to)
{
	return (uint64_t)from << 24 | to << 16 | LINK_SLOT_PIECES;
}

int mail_link_send_piece(struct mail_link *link, uint32_t from, uint32_t to, uint64_t offset_bytes,
                         uint64_t bytes, struct zi_text *text)
{
	return err_trace(net_lane_send(link->pieces, slot_of(from, to), offset_bytes, bytes, text));
}

int mail_link_begin_piece(struct mail_link *link, uint32_t from, uint32_t to, uint64_t offset_bytes,
                          uint64_t bytes, struct zi_text *text)
{
	return err_trace(
		net_lane_receive(link->pieces, slot_of(from, to), offset_bytes, bytes, text));
}

int mail_link_end_piece(struct mail_link *link, struct zi_text *text)
{
	return err_trace(
		net_lane_wait_received(link->pieces, 1, zi_clock_deadline_ns(LINK_SOON_NS), text));
}
