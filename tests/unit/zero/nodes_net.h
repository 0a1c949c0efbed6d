/* SPDX-License-Identifier: Apache-2.0 */
/* The network of nodes.h: doubles of the workers of several nodes in one process, and what is on
 * its way between them. What happens, happens in net_turn(). */
#pragma once

#include <sys/mman.h>

#include "daemon/zero/across/across.h"
#include "tests/unit/zero/nodes_state.h"

static inline bool net_is_mate(const struct net_worker *a, const struct net_worker *b)
{
	return a->has_joined && b->has_joined && a->join.epoch == b->join.epoch &&
	       strcmp(a->join.way.job, b->join.way.job) == 0 && a->join.way.run == b->join.way.run;
}

/* The mesh of @worker ends, for each node when it hears of it. @but: not for that one. */
static inline void net_end_mesh(struct net_worker *worker, const struct net_worker *but, int error,
                                const struct zi_text *text)
{
	struct net_event event = { .what = NET_EVENT_DONE, .error = error, .text = *text };

	if (worker->has_ended)
		return; /* The first word stands. */
	for (struct net_worker *mate = net.workers; mate; mate = mate->next) {
		if (mate == but || !net_is_mate(worker, mate) || mate->has_ended)
			continue;
		mate->has_ended = true;
		net_put(mate, mate->join.node, &event);
	}
	worker->has_ended = true;
}

/* What was asked of it is answered, from the loop or its own end. */
static inline void net_answer(struct net_worker *worker, int error, const struct zi_text *text)
{
	struct net_request *request = worker->request;

	if (!request)
		return;
	worker->request = NULL;
	worker->type = 0;
	request->error = error;
	request->culprit = NET_CULPRIT_NONE;
	request->text = text ? *text : (struct zi_text){ "" };
	request->done(request);
}

/* ---- what supervise.h declares ---- */

DOUBLE int net_worker_new(struct zi_loop *loop, const struct net_worker_options *options,
                          struct net_worker **ret_worker)
{
	struct net_worker *worker = calloc(1, sizeof(*worker));

	worker->options = *options;
	for (uint32_t i = 0; i < NODES_MAX; i++)
		worker->from[i].events = calloc(NET_EVENTS_MAX, sizeof(struct net_event));
	for (uint32_t i = 0; i < net.count; i++)
		if (net.nodes[i].loop == loop)
			worker->place = i;
	worker->next = net.workers;
	net.workers = worker;
	*ret_worker = worker;
	return 0;
}

/* Its process is gone: others see that, unless nobody is left to see. */
static inline void net_end(struct net_worker *worker, int error, const struct zi_text *text)
{
	struct zi_text lost;

	worker->state = NET_WORKER_DOWN;
	zi_text_set(&lost, "node %u (a double) is gone", worker->join.node);
	if (worker->has_joined)
		net_end_mesh(worker, worker, -EPIPE, &lost);
	worker->has_joined = false;
	net_answer(worker, error, text);
}

DOUBLE struct net_worker *net_worker_free(struct net_worker *worker)
{
	static const struct zi_text text = { "the daemon lets zinf-net go" };
	struct net_worker **place = &net.workers;

	if (!worker)
		return NULL;
	if (worker->state != NET_WORKER_DOWN)
		net_end(worker, -ESHUTDOWN, &text);
	while (*place != worker)
		place = &(*place)->next;
	*place = worker->next;
	for (uint32_t i = 0; i < NODES_MAX; i++)
		free(worker->from[i].events);
	if (worker->slab)
		(void)munmap(worker->slab, worker->slab_bytes);
	free(worker);
	return NULL;
}

DOUBLE int net_worker_start(struct net_worker *worker, struct zi_text *text)
{
	int error = net.start_error;

	net.start_error = 0;
	if (error)
		return zi_text_error(text, error, "zinf-net is not to be found");
	worker->state = NET_WORKER_UP;
	net.worker_count++;
	return 0;
}

DOUBLE enum net_worker_state net_worker_state(const struct net_worker *worker)
{
	return worker->state;
}

DOUBLE pid_t net_worker_pid(const struct net_worker *worker)
{
	return worker->state == NET_WORKER_DOWN ? 0 : getpid();
}

static inline int net_ask(struct net_worker *worker, struct net_request *request, uint32_t type)
{
	if (worker->state == NET_WORKER_DOWN)
		return -ENOTCONN;
	cr_assert_null(worker->request, "one at a time");
	worker->request = request;
	worker->type = type;
	return 0;
}

DOUBLE int net_worker_meet(struct net_worker *worker, struct net_request *request,
                           struct net_meet *meet)
{
	worker->meet = *meet;
	return net_ask(worker, request, NET_MEET);
}

DOUBLE int net_worker_agree(struct net_worker *worker, struct net_request *request,
                            struct net_agree *agree)
{
	(void)agree;
	return net_ask(worker, request, NET_AGREE);
}

DOUBLE int net_worker_join(struct net_worker *worker, struct net_request *request,
                           struct net_join *join)
{
	worker->join = *join;
	return net_ask(worker, request, NET_JOIN);
}

DOUBLE int net_worker_follow(struct net_worker *worker, struct net_request *request,
                             struct net_follow *follow)
{
	(void)follow;
	return net_ask(worker, request, NET_FOLLOW);
}

DOUBLE int net_worker_map(struct net_worker *worker, struct net_request *request, uint32_t slab,
                          int fd, uint64_t bytes)
{
	if (slab == NET_SLAB_TALK) {
		worker->slab = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		cr_assert_neq(worker->slab, MAP_FAILED);
		worker->slab_bytes = bytes;
	}
	return net_ask(worker, request, NET_MAP);
}

DOUBLE int net_worker_exchange(struct net_worker *worker, struct net_request *request,
                               struct net_exchange *exchange)
{
	(void)exchange;
	return net_ask(worker, request, NET_EXCHANGE);
}

DOUBLE int net_worker_talk(struct net_worker *worker, struct net_request *request)
{
	cr_assert(worker->has_joined);
	return net_ask(worker, request, NET_TALK);
}

static inline struct talk_entry *net_asked(struct net_worker *worker, uint32_t kind, uint32_t node,
                                           uint64_t tag)
{
	for (size_t i = 0; i < ZI_COUNT_OF(worker->asked); i++)
		if (worker->asked[i].kind == kind &&
		    (!kind || (worker->asked[i].node == node && worker->asked[i].tag == tag)))
			return &worker->asked[i];
	return NULL;
}

static inline void net_note_pull(struct net_worker *worker, const struct talk_entry *entry)
{
	struct talk_entry *place = net_asked(worker, 0, 0, 0);

	cr_assert_not_null(place);
	cr_assert_leq(entry->offset_bytes + entry->bytes, worker->slab_bytes);
	*place = *entry;
}

/* What was served moves, when it comes: both hear of it. False: nobody is there to have it from. */
static inline bool net_move(struct net_worker *worker, struct talk_entry *entry)
{
	struct talk_entry *asked = net_asked(worker, TALK_PULL, entry->node, entry->tag);
	struct net_event gone = { .what = NET_EVENT_ENTRY, .entry = *entry };
	static const struct zi_text foul = { "what a node says makes no sense" };

	if (net.lie && (!asked || asked->bytes != entry->bytes)) {
		net_end_mesh(worker, NULL, -EPROTO, &foul); /* Somebody lied about it. */
		return false;
	}
	cr_assert_not_null(asked, "a SERVE of no PULL");
	cr_assert_eq(asked->bytes, entry->bytes);
	for (struct net_worker *mate = net.workers; mate; mate = mate->next) {
		if (!net_is_mate(worker, mate) || mate->join.node != entry->node)
			continue;
		cr_assert_leq(entry->offset_bytes + entry->bytes, mate->slab_bytes);
		memcpy(worker->slab + asked->offset_bytes, mate->slab + entry->offset_bytes,
		       entry->bytes);
		net.moved_bytes += entry->bytes;
		gone.entry.kind = TALK_GONE;
		gone.entry.node = (uint16_t)worker->join.node;
		net_put(mate, worker->join.node, &gone);
		*entry = (struct talk_entry){ .kind = TALK_CAME,
			                      .what = asked->what, /* For whoever lies. */
			                      .node = entry->node,
			                      .tag = entry->tag,
			                      .slab = asked->slab,
			                      .offset_bytes = asked->offset_bytes,
			                      .bytes = asked->bytes };
		asked->kind = 0;
		return true;
	}
	return false;
}

/* What was pulled does not come: where it was to lie is said by its own side. False: it was not. */
static inline bool net_refuse(struct net_worker *worker, struct talk_entry *entry)
{
	struct talk_entry *asked = net_asked(worker, TALK_PULL, entry->node, entry->tag);

	if (net.lie && !asked)
		return false;
	cr_assert_not_null(asked, "a REFUSED of no PULL");
	cr_assert_lt(entry->error, 0);
	entry->slab = asked->slab;
	entry->offset_bytes = asked->offset_bytes;
	entry->bytes = asked->bytes;
	asked->kind = 0;
	return true;
}

DOUBLE int net_worker_talk_send(struct net_worker *worker, const struct talk_entry *entries,
                                uint32_t count)
{
	if (worker->type != NET_TALK)
		return -ENOTCONN;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t node = entries[i].node;
		struct net_event event = { .what = NET_EVENT_ENTRY, .entry = entries[i] };

		cr_assert(node != worker->join.node && node < worker->join.node_count);
		event.entry.node = (uint16_t)worker->join.node;
		for (struct net_worker *mate = net.workers; mate; mate = mate->next) {
			uint32_t from = worker->join.node;

			if (mate->join.node != node || !net_is_mate(worker, mate))
				continue;
			if (net.room && mate->from[from].put - mate->from[from].taken >= net.room) {
				worker->is_refused = true;
				return -EAGAIN;
			}
			net_put(mate, from, &event);
		}
		if (entries[i].kind == TALK_PULL)
			net_note_pull(worker, &entries[i]);
	}
	return 0;
}

DOUBLE void net_worker_abort(struct net_worker *worker, int error, const struct zi_text *text)
{
	struct zi_text lost = { "broken off" };

	if (worker->state == NET_WORKER_UP && worker->has_joined)
		net_end_mesh(worker, NULL, error, text ? text : &lost);
}

DOUBLE void net_worker_kill(struct net_worker *worker, const struct zi_text *text)
{
	if (worker->state != NET_WORKER_DOWN)
		net_end(worker, -ECANCELED, text);
}

/* ---- the network ---- */

/* Who meets nobody, but tells why. */
#define net_is_teller(worker) \
	((worker)->type == NET_MEET && (worker)->meet.failed == (worker)->meet.opening)

/* Who tells @worker, which meets, that there is nothing to be met for; or NULL. */
static inline const struct net_worker *net_teller(const struct net_worker *worker)
{
	for (const struct net_worker *mate = net.workers; mate; mate = mate->next)
		if (net_is_teller(mate) && mate->meet.opening == worker->meet.opening &&
		    strcmp(mate->meet.way.job, worker->meet.way.job) == 0 &&
		    strcmp(mate->meet.way.incarnation, worker->meet.way.incarnation) == 0)
			return mate;
	return NULL;
}

/* Ranks whose nodes meet where @worker does. */
static inline uint64_t net_met_mask(const struct net_worker *worker)
{
	uint64_t mask = 0;

	for (const struct net_worker *mate = net.workers; mate; mate = mate->next)
		if (mate->type == NET_MEET && !net_is_teller(mate) &&
		    mate->meet.opening == worker->meet.opening &&
		    strcmp(mate->meet.way.job, worker->meet.way.job) == 0)
			mask |= mate->meet.ranks;
	return mask;
}

/* Everybody is there: nodes are numbered in the order of their first ranks. */
static inline bool net_meet(struct net_worker *worker)
{
	struct net_done reply = { .run = net.run + 1 };
	uint64_t seen = 0, world = job_mask_of(worker->meet.world_size);
	const struct net_worker *teller = net_teller(worker);

	if (net_is_teller(worker))
		return false;
	if (teller) {
		net_answer(worker, teller->meet.error, &teller->meet.text);
		return true;
	}
	if (net_met_mask(worker) != world)
		return false;
	net.run++;
	while (seen != world) {
		uint64_t ranks = 0;

		for (struct net_worker *mate = net.workers; mate; mate = mate->next)
			if (mate->type == NET_MEET &&
			    strcmp(mate->meet.way.job, worker->meet.way.job) == 0 &&
			    mate->meet.ranks >> __builtin_ctzll(~seen) & 1)
				ranks = mate->meet.ranks;
		seen |= ranks;
		for (; ranks; ranks &= ranks - 1)
			reply.nodes[__builtin_ctzll(ranks)] = (uint8_t)reply.node_count;
		reply.node_count++;
	}
	for (struct net_worker *mate = net.workers; mate; mate = mate->next) {
		if (mate->type != NET_MEET || strcmp(mate->meet.way.job, worker->meet.way.job) != 0)
			continue;
		reply.node = reply.nodes[__builtin_ctzll(mate->meet.ranks)];
		mate->request->reply = reply;
		/* Each hears of it when it does. */
		mate->type = NET_DONE;
	}
	return true;
}

static inline bool net_join(struct net_worker *worker)
{
	uint32_t count = 0;

	for (const struct net_worker *mate = net.workers; mate; mate = mate->next)
		count += mate->type == NET_JOIN && mate->join.epoch == worker->join.epoch &&
		         mate->join.way.run == worker->join.way.run &&
		         strcmp(mate->join.way.job, worker->join.way.job) == 0;
	if (count < worker->join.node_count)
		return false;
	for (struct net_worker *mate = net.workers; mate; mate = mate->next)
		if (mate->type == NET_JOIN && mate->join.epoch == worker->join.epoch &&
		    mate->join.way.run == worker->join.way.run &&
		    strcmp(mate->join.way.job, worker->join.way.job) == 0) {
			mate->has_joined = true;
			mate->has_ended = false;
			mate->type = NET_DONE;
		}
	return true;
}

static inline bool net_deliver(struct net_worker *worker, uint32_t from)
{
	struct net_event event;
	uint32_t *taken = &worker->from[from].taken;

	if (*taken == worker->from[from].put || net.held[worker->place] >> from & 1)
		return false;
	/* What comes before the talk waits, as in the kernel. */
	if (worker->type != NET_TALK && worker->type != NET_FOLLOW)
		return false;
	event = worker->from[from].events[*taken % NET_EVENTS_MAX];
	if (event.what != NET_EVENT_DONE && net.holds && net.holds(worker, from, &event.entry))
		return false;
	net.still_count = 0;
	(*taken)++;
	if (event.what == NET_EVENT_DONE) {
		net_answer(worker, event.error, &event.text);
		return true;
	}
	if (event.entry.kind == TALK_SERVE && !net_move(worker, &event.entry))
		return true;
	if (event.entry.kind == TALK_REFUSED && !net_refuse(worker, &event.entry))
		return true;
	if (net.spoil)
		net.spoil(worker, from, &event.entry);
	net.entry_count++;
	for (uint32_t i = net.lie ? net.lie(worker, &event.entry) : 1; i > 0; i--)
		worker->options.talked(worker->options.arg, &event.entry, 1);
	return true;
}

/* One thing happens to @worker, if there is one. It may be gone then. */
static inline bool net_happen(struct net_worker *worker)
{
	uint32_t first = net_draw(NODES_MAX);

	if (worker->type == NET_MEET)
		return net_meet(worker);
	if (worker->type == NET_JOIN)
		return net_join(worker);
	if (worker->type == NET_MAP || worker->type == NET_AGREE || worker->type == NET_DONE) {
		net_answer(worker, 0, NULL);
		return true;
	}
	if (worker->is_refused && net_draw(2)) {
		worker->is_refused = false;
		worker->options.writable(worker->options.arg);
		return true;
	}
	for (uint32_t i = 0; i < NODES_MAX; i++)
		if (net_deliver(worker, (first + i) % NODES_MAX))
			return true;
	return false;
}

static inline void net_turn(void)
{
	uint32_t count = 0, index;
	struct net_worker *worker = net.workers;

	for (; worker; worker = worker->next)
		count++;
	if (!count)
		return;
	index = net_draw(count);
	for (worker = net.workers; index; index--)
		worker = worker->next;
	if (!(net.lost >> worker->place & 1))
		(void)net_happen(worker);
}
