/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that talks; see talk.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/talk.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/meet.h"

/* Places of the inbox that the daemon is told of when they are free. */
#define TALK_TAKEN_MIN (TALK_QUEUE / 4)

struct talk {
	const struct talk_options *options;
	struct talk_link *links; /* (node_count,) */
	struct net_talk_batch batch;
	uint32_t told[SUBTREE_NODES_MAX]; /* of what was taken from the inbox */
	uint64_t due_ns;                  /* when a link is known to be cut */
};

/* ---- the inbox ---- */

/* Documented in the header, as is the other. */
int talk_inbox_put(struct talk_inbox *inbox, const struct talk_entry *entries, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t node = entries[i].node, put;

		if (node >= SUBTREE_NODES_MAX)
			return err_origin(-EPROTO);
		put = inbox->peers[node].put;
		if (put - zi_meet_load(&inbox->peers[node].taken) == TALK_QUEUE)
			return err_origin(-EPROTO);
		inbox->peers[node].entries[put % TALK_QUEUE] = entries[i];
		/* Pairs with zi_meet_load(), as does talk_ring(). */
		__atomic_store_n(&inbox->peers[node].put, put + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&inbox->nodes, inbox->nodes | 1ull << node, __ATOMIC_RELAXED);
	}
	talk_ring(&inbox->rung);
	return 0;
}

/* ---- to the daemon ---- */

/* @node: of whose places in the inbox the daemon is told as well. */
static void flush(struct talk *talk, uint32_t node)
{
	struct net_talk_batch *batch = &talk->batch;

	batch->header.bytes = net_talk_batch_bytes(batch->count);
	batch->node = node;
	batch->taken = talk->told[node] = talk->options->inbox->peers[node].taken;
	talk->options->tell(talk->options->arg, batch);
	batch->count = 0;
}

static void tell(void *arg, const struct talk_entry *entry)
{
	struct talk *talk = arg;

	talk->batch.entries[talk->batch.count++] = *entry;
	if (talk->batch.count == TALK_BATCH_MAX)
		flush(talk, entry->node);
}

/* ---- one node ---- */

/* Return: 0, an error with @text. @ret_more: there is more to hear. */
static int hear(struct talk_link *link, struct zi_text *text, bool *ret_more)
{
	int r = 1;

	for (uint32_t i = 0; i < TALK_RING && r > 0; i++)
		r = talk_link_hear(link, text);
	*ret_more |= r > 0;
	return r < 0 ? err_trace(r) : 0;
}

static int say(struct talk *talk, uint32_t node, struct zi_text *text)
{
	struct talk_inbox *inbox = talk->options->inbox;
	uint32_t put = zi_meet_load(&inbox->peers[node].put);
	uint32_t taken = inbox->peers[node].taken;

	for (; taken != put; taken++) {
		int r = talk_link_say(&talk->links[node],
		                      &inbox->peers[node].entries[taken % TALK_QUEUE], text);

		if (r < 0)
			return err_trace(r);
		if (r)
			break;
		/* Pairs with zi_meet_load(). */
		__atomic_store_n(&inbox->peers[node].taken, taken + 1, __ATOMIC_RELEASE);
	}
	return 0;
}

static int look(struct talk *talk, uint32_t node, struct zi_text *text, bool *ret_more)
{
	struct talk_link *link = &talk->links[node];
	/* First: all that came before it died is heard. */
	bool is_dead = zi_meet_load(&link->is_dead), has_more = false;
	int r = hear(link, text, &has_more);

	if (!r && is_dead && !has_more)
		r = zi_text_error(text, link->error, "%s", link->text.chars);
	else if (!r && zi_clock_now_ns() >= link->cut_due_ns)
		r = zi_text_error(text, -EPIPE, "%s", link->cut.chars);
	r = r ? r : say(talk, node, text);
	if (!r) {
		talk_link_serve(link);
		talk_link_answer(link);
	}
	talk->due_ns = ZI_MIN(talk->due_ns, link->cut_due_ns);
	if (talk->batch.count ||
	    talk->options->inbox->peers[node].taken - talk->told[node] >= TALK_TAKEN_MIN)
		flush(talk, node);
	*ret_more |= has_more;
	return err_trace(r);
}

/* ---- life ---- */

static bool is_other(const struct talk *talk, uint32_t node)
{
	return node < talk->options->node_count && node != talk->options->node;
}

static int check_nodes(const struct talk *talk, struct zi_text *text)
{
	uint64_t nodes = __atomic_load_n(&talk->options->inbox->nodes, __ATOMIC_RELAXED);

	for (uint32_t i = 0; i < SUBTREE_NODES_MAX && nodes >> i; i++)
		if (nodes >> i & 1 && !is_other(talk, i))
			return err_origin(zi_text_error(
				text, -EINVAL, "there is no other node %u: this one is %u of %u", i,
				talk->options->node, talk->options->node_count));
	return 0;
}

static int open_links(struct talk *talk, struct zi_text *text)
{
	const struct talk_options *options = talk->options;
	struct talk_link_options link = { .mesh = nodes_mesh(options->nodes),
		                          .rung = &options->inbox->rung,
		                          .tell = tell,
		                          .arg = talk };
	int r = 0;

	for (uint32_t i = 0; i < NET_SLABS_MAX; i++)
		link.slabs[i] = options->slabs[i];
	for (link.node = 0; link.node < options->node_count && !r; link.node++)
		if (is_other(talk, link.node))
			r = talk_link_open(&talk->links[link.node], &link, text);
	return err_trace(r);
}

/* All that there is to do. Then, unless there is more, until somebody rings. */
static int turn(struct talk *talk, struct zi_text *text, uint32_t *ret_suspect)
{
	struct talk_inbox *inbox = talk->options->inbox;
	struct zi_meet_wants wants = { .count = 0 };
	uint32_t rung = zi_meet_load(&inbox->rung);
	bool has_more = false;
	int r;

	if (zi_meet_load(talk->options->stop))
		return err_origin(zi_text_error(text, -ECANCELED, "broken off"));
	r = check_nodes(talk, text);
	for (uint32_t i = 0; i < talk->options->node_count && !r; i++) {
		if (!is_other(talk, i))
			continue;
		r = look(talk, i, text, &has_more);
		/* What the own daemon says wrongly is nobody else's. */
		if (r && r != -EINVAL)
			*ret_suspect = i;
	}
	if (r || has_more)
		return err_trace(r);
	zi_meet_want(&wants, NULL, &inbox->rung, rung + 1);
	zi_meet_want(&wants, NULL, talk->options->stop, 1);
	(void)zi_meet_wait(&wants, NULL, talk->due_ns); /* Whatever ends it: look. */
	return 0;
}

int talk_run(const struct talk_options *options, struct zi_text *text, uint32_t *ret_suspect)
{
	struct talk talk = { .options = options,
		             .due_ns = ZI_DEADLINE_NEVER,
		             .batch.header.type = NET_TALK_BATCH,
		             .links = calloc(options->node_count, sizeof(*talk.links)) };
	int r;

	assert(options->node < options->node_count && options->node_count <= SUBTREE_NODES_MAX);
	*ret_suspect = NET_CULPRIT_NONE;
	if (!talk.links)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory to talk to other nodes"));
	r = open_links(&talk, text);
	while (!r)
		r = turn(&talk, text, ret_suspect);
	net_mesh_abort(nodes_mesh(options->nodes));
	for (uint32_t i = 0; i < options->node_count; i++)
		talk_link_close(&talk.links[i]);
	free(talk.links);
	return err_trace(r);
}
