/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-net itself. Floor 3. Its threads:
 *
 *   control    main()'s loop: the daemon's socket, the store (on node 0), time limits. Never waits
 *   net        a loop too, of operations, one after the other: waits in Gloo, each with a deadline
 *   watch      of nodes.h: waits for the epoch's end
 *   mail       of mail.h: messages of a followed group; and one for each other node, that waits
 *   talk-link  of talk.h: one for each other node, that waits; net talks
 *
 * (and Gloo's own, which moves the bytes). A request goes from control to net as a post, and comes
 * back as one when it is done. What does not come back in time ends the process: the daemon hears
 * why, and starts another.
 *
 *   worker.h    requests are taken by worker_requests.c and done by worker_ops.c; worker_end.c;
 *               worker_talk.c
 *   meet.h      finds the nodes of a job; way.h the way to its store
 *   nodes.h     the nodes as one of them sees them; blame.c whose fault; agree.h makes a group
 *   exchange.h  one operation of all nodes: check.c, cards.c, reduce.c, spread.c
 *   follow*.c   calls of a followed group, made of such (follow_private.h)
 *   mail.h      its messages; mail_link.h what travels
 *   talk.h      what daemons say to each other; talk_link.h what travels
 *   gloo.h      Gloo in C; gloo.cc alone knows it
 */
#pragma once

#include "daemon/worker/net/agree.h"
#include "daemon/worker/net/exchange.h"
#include "daemon/worker/net/meet.h"
#include "daemon/worker/net/talk.h"
#include "daemon/worker/store_server.h"

/* Exit codes: 0 the daemon closed its end; 1 it could not start. */
#define WORKER_EXIT_STUCK    3 /* an operation did not end, deadline and all */
#define WORKER_EXIT_PROTOCOL 4 /* a message that no daemon sends */

struct worker;

struct worker_op {
	struct zi_post post;
	struct zi_list queue_link; /* worker->queue, in their order */
	struct worker *worker;
	union net_message message;
	struct exchange_slab slab; /* NET_MAP */
	bool is_used;
	bool wants_store;         /* JOIN, MEET: control is to serve it first, at an address … */
	struct place_address own; /* … that net finds, as the resolver may be slow */
	uint64_t patience_ns;     /* then a port in use is an error; 0: it was not in use yet */
	struct nodes_end end;     /* how it ended; error 0: well */
	struct meet_result met;   /* NET_MEET */
	uint64_t started_ns, busy_ns;
};

struct worker {
	/* Of control. */
	struct zi_loop *loop;
	struct zi_source control;
	struct zi_timer limit; /* of the oldest operation */
	struct zi_list queue;
	struct worker_op ops[NET_QUEUE_MAX];
	struct store_server *store;
	struct nodes *joined;        /* whom to abort; net owns it */
	bool is_aborted;             /* this epoch, already */
	bool is_told;                /* abort_ends says why this epoch ends, now or soon */
	bool is_joining;             /* a JOIN is in the queue */
	struct zi_timer moment;      /* the rest of an operation's data may be on their way */
	struct nodes_end moment_end; /* what comes after it */
	uint32_t control_side;       /* of abort_ends: this epoch's */
	struct talk_inbox *inbox;    /* of the TALK in the queue; NULL: there is none */

	/* Written by control, once, before net_mesh_abort() or `last`; read by net when one of
	 * these ended what it did.
	 * Two, as control begins an epoch while net may still end the former. */
	struct nodes_end abort_ends[2];

	/* Of both. */
	uint32_t stop;      /* writer: control. 1: what net waits for will not come; it is woken */
	uint32_t moving;    /* writer: net. The call that all ranks here have come to; 0: to none */
	uint32_t last;      /* writer: control. Calls after this one end at once */
	uint32_t is_loaded; /* writer: net. 1: data of a call are under way */
	/* Writer: the mail, 1: messages from here are not over; or net, 1: it talks. */
	uint32_t is_carrying;
	struct zi_post mail_post;  /* writer: the mail, once while a group is followed */
	struct nodes_end mail_end; /* so */

	/* Of net. */
	uint32_t net_side;
	uint32_t done;      /* calls of the followed group that are completed */
	uint64_t moment_ns; /* others have so long to speak first when the present call fails */
	struct zi_thread thread;
	struct zi_loop *net_loop;
	struct nodes *nodes;
	struct exchange_room *room;
	struct store_client *claims; /* holds this node's ranks, once all have met */
	struct net_join join;
	struct nodes_end broken; /* error 0: the mesh is whole */
	struct exchange_slab slabs[NET_SLABS_MAX];
	uint64_t sequence;
};

/* follow.c, net's thread: a group's calls, until the group is over; nothing then writes any more to
 * its slab and the arenas, which are no more mapped. Return: always an error. */
int worker_follow(struct worker *worker, const struct net_follow *message, struct zi_text *text,
                  uint32_t *ret_suspect);
/* worker_talk.c, net's thread: until the talk is over; as above. */
int worker_talk(struct worker *worker, struct zi_text *text, uint32_t *ret_suspect);
/* worker_talk.c, control: what comes is kept from TALK on until it is done. Return: 0; -EBUSY one
 * is in the queue, -ENOMEM; with @text. */
int worker_open_inbox(struct worker *worker, struct zi_text *text);
void worker_close_inbox(struct worker *worker);
/* worker_talk.c, control: Return: 0; -EPROTO it is none of a daemon's. */
int worker_take_batch(struct worker *worker, const struct net_talk_batch *batch);
/* worker.c, net's thread: the time of call @sequence has passed; see net_late_cookie(). */
void worker_tell_late(struct worker *worker, uint32_t sequence, uint32_t member);
/* worker.c, the mail's thread: see struct net_late_message, whose header is filled here. */
void worker_tell_late_message(void *arg, const struct net_late_message *late);
/* worker.c, the watch's thread: see struct net_asked, whose header is filled here. */
void worker_tell_asked(void *arg, const struct net_asked *asked);
/* worker_end.c, control: what runs ends with @end, and all of this epoch with it. */
void worker_end_epoch(struct worker *worker, struct nodes *nodes, const struct nodes_end *end);
/* worker_end.c, control: the watch of @nodes has seen the end. */
void worker_end_watched(struct worker *worker, struct nodes *nodes);
/* worker_end.c, the mail's thread: a followed group's message cannot go on. */
void worker_mail_failed(void *arg, const struct nodes_end *end);
/* worker_requests.c, control: the address of one that wants a store is found, or is not. Back to
 * net for a moment, where the port is in use by what may just be ending. */
void worker_op_placed(struct zi_post *post);
/* Of a JOIN or MEET. */
const struct net_way *worker_way_of(const struct worker_op *op);
/* worker_ops.c, net's thread: carries @op out, and sends it back to control. */
void worker_op_run(struct zi_post *post);
/* worker.c, control: to the daemon; the process ends where that has closed its end. */
void worker_send(struct worker *worker, const void *message, uint32_t bytes);
/* worker.c, control: what does not come back ends the process; anew whenever its time changes. */
void worker_arm_limit(struct worker *worker);
/* worker.c, control: a request is answered with an error. */
void worker_refuse(struct worker *worker, uint64_t cookie, int error, const struct zi_text *text);
/* worker.c, control: a place in the queue; NULL: it is full. */
struct worker_op *worker_take_op(struct worker *worker, const union net_message *message);
/* worker_requests.c, control: how long a message of @type is; 0: it is none of the daemon's. */
uint32_t worker_message_bytes(uint32_t type);
/* worker_requests.c, control: a request of that length. @fd: what came with it, or -1. */
void worker_handle(struct worker *worker, union net_message *message, int fd);
/* worker.c, control: @op is done; its answer goes to the daemon. */
void worker_op_done(struct zi_post *post);
/* worker.c, control: another node's word, or none from the store, ended the epoch. */
void worker_watched(struct zi_post *post);
