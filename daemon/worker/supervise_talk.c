/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon says to those of other nodes through its worker; see supervise.h. Floor 3. The
 * loop's thread. Here is counted what the worker has room for, so that it never has to refuse. */
#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/supervise_private.h"

/* A worker that takes no messages is looked at again: it may stop for no longer than its answer to
 * PING may take. */
#define TALK_AGAIN_NS ZI_NS_PER_MS

static void writable_due(struct zi_timer *timer)
{
	struct net_worker *worker = container_of(timer, struct net_worker, talk.writable);

	if (worker->options.writable)
		worker->options.writable(worker->options.arg);
}

static void tell_writable(struct net_worker *worker, uint64_t after_ns)
{
	worker->talk.is_short = false;
	zi_loop_arm(worker->process.loop, &worker->talk.writable, zi_clock_deadline_ns(after_ns),
	            writable_due);
}

/* Documented in supervise.h, as is the next. */
int net_worker_talk(struct net_worker *worker, struct net_request *request)
{
	struct net_header header;
	int r;

	if (worker->talk.request)
		return err_origin(-EBUSY);
	r = supervise_submit(worker, request, &header, NET_TALK, sizeof(header), SUPERVISE_NO_LIMIT,
	                     -1);
	if (!r)
		worker->talk = (struct supervise_talk){ .request = request };
	return err_trace(r);
}

/* Documented in supervise_private.h. */
void supervise_talk_end(struct net_worker *worker)
{
	zi_loop_disarm(&worker->talk.writable);
	worker->talk.request = NULL;
}

static bool has_room(const struct supervise_talk *talk, const struct talk_entry *entries,
                     uint32_t count)
{
	uint8_t more[SUBTREE_NODES_MAX] = { 0 }, pulls[SUBTREE_NODES_MAX] = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		uint32_t node = entries[i].node;

		assert(node < SUBTREE_NODES_MAX && talk_kind_is_said(entries[i].kind));
		if (talk->sent[node] - talk->taken[node] + ++more[node] > TALK_QUEUE)
			return false;
		if (entries[i].kind == TALK_PULL && talk->pulls[node] + ++pulls[node] > TALK_CREDIT)
			return false;
	}
	return true;
}

int net_worker_talk_send(struct net_worker *worker, const struct talk_entry *entries,
                         uint32_t count)
{
	struct supervise_talk *talk = &worker->talk;
	struct net_talk_batch batch = { .count = count };
	int r;

	assert(count && count <= TALK_BATCH_MAX);
	if (!talk->request)
		return err_origin(-ENOTCONN);
	if (!has_room(talk, entries, count)) {
		talk->is_short = true;
		return err_origin(-EAGAIN);
	}
	batch.header = (struct net_header){ NET_TALK_BATCH, net_talk_batch_bytes(count), 0 };
	memcpy(batch.entries, entries, count * sizeof(*entries));
	r = supervise_send(worker, &batch.header, -1);
	if (r == -EBUSY) {
		tell_writable(worker, TALK_AGAIN_NS);
		return err_origin(-EAGAIN);
	}
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < count; i++) {
		talk->sent[entries[i].node]++;
		talk->pulls[entries[i].node] += entries[i].kind == TALK_PULL;
	}
	return 0;
}

/* Whether it can be; and the pulls that it answers are. */
static bool count_answers(struct supervise_talk *talk, const struct net_talk_batch *batch)
{
	uint32_t pulls[SUBTREE_NODES_MAX];

	memcpy(pulls, talk->pulls, sizeof(pulls));
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct talk_entry *entry = &batch->entries[i];

		if (!talk_kind_is_heard(entry->kind) || entry->node >= SUBTREE_NODES_MAX ||
		    entry->data_bytes > sizeof(entry->data))
			return false;
		if (entry->kind != TALK_CAME && entry->kind != TALK_REFUSED)
			continue;
		if (!pulls[entry->node]--)
			return false;
	}
	memcpy(talk->pulls, pulls, sizeof(pulls));
	return true;
}

/* Documented in supervise_private.h. */
bool supervise_talked(struct net_worker *worker, const struct net_talk_batch *batch, uint64_t bytes)
{
	struct supervise_talk *talk = &worker->talk;

	/* One that is over says nothing any more, in the order of its words. */
	if (!talk->request || !net_talk_batch_is_whole(batch, bytes) ||
	    batch->node >= SUBTREE_NODES_MAX ||
	    batch->taken - talk->taken[batch->node] >
	            talk->sent[batch->node] - talk->taken[batch->node] ||
	    !count_answers(talk, batch))
		return false;
	talk->taken[batch->node] = batch->taken;
	if (talk->is_short)
		tell_writable(worker, 0);
	if (batch->count && worker->options.talked)
		worker->options.talked(worker->options.arg, batch->entries, batch->count);
	return true;
}
