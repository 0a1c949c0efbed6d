/* SPDX-License-Identifier: Apache-2.0 */
/* Private to far*.c. Floor 5, shard thread. */
#pragma once

#include <limits.h>

#include "common/base/clock.h"
#include "daemon/worker/supervise.h"
#include "daemon/zero/collectives/far.h"

enum far_phase {
	FAR_MEETING,
	FAR_AGREEING,
	FAR_JOINING,
	FAR_MAPPING,
	FAR_AGREED,
	FAR_FOLLOWING,
	FAR_OVER,
};

struct far {
	struct zero_job *job; /* NULL: it is in zero->fars */
	struct zero *zero;
	struct zi_list link;
	struct zi_loop *loop;
	char name[ZI_NAME_BYTES]; /* of the job */
	uint32_t group;
	uint64_t members; /* ranks: bits */
	bool joins;
	uint32_t node; /* which of the group's this one is, once it is JOINING */
	bool is_over;  /* what it followed is answered: the group's memory is no more touched */
	uint64_t timeout_ns, epoch;
	uint64_t deadline_ns; /* of meeting and joining */
	far_met_fn met;
	far_joined_fn joined;
	enum far_phase phase;
	enum far_phase
		failed;     /* OVER: in which phase its worker failed; OVER: none of the worker's */
	uint32_t port;      /* of the store */
	bool tells_opening; /* it stays to tell that an opening failed */
	uint64_t ranks;     /* which tells for these (bits); 0: for those that are here */
	enum net_slab slab; /* MAPPING: which one */
	/* What the worker maps: it reads and sends until it has answered FOLLOW. */
	struct tier_segment *mapped[NET_SLAB_ARENAS + 1];
	struct net_worker *worker;
	struct tier_account *fd_account; /* the worker's descriptors; NULL: not counted */
	struct net_request request;
	struct zi_timer next; /* its answer is there: handled outside of the worker's own call */
	char program[PATH_MAX];
};

/* A worker, asked for what comes first. @error, @why: as far_ask_meet() and far_ask_agree() have
 * them. Return: as far_open(). */
int far_new(const struct far *model, int error, const struct zi_text *why, struct zi_text *text,
            struct far **ret_far);

/* It makes nothing, but tells why; for so long. */
bool far_is_refusal(const struct far *far);
uint64_t far_refusal_ns(const struct far *far);

/* What its worker is to do next, for far->request. Return: 0; -ENOTCONN, -EBUSY. */
/* @error, @text: 0, or why this node makes nothing. */
int far_ask_meet(struct far *far, int error, const struct zi_text *text);
int far_ask_agree(struct far *far, int error, const struct zi_text *text);
int far_ask_join(struct far *far);
int far_ask_map(struct far *far); /* far->slab */
int far_ask_follow(struct far *far);

/* The worker touches the group's memory no more. */
void far_unmap(struct far *far);

/* How it ends (far_end.c). At once, with its worker. Return: NULL. */
struct far *far_destroy(struct far *far);
/* What a worker's last words need to be in the store, and at the other nodes. */
#define FAR_LAST_NS ZI_NS_PER_S
/* @text, and where. */
struct zi_text far_say_where(const struct far *far, const struct zi_text *text);
/* It stays for @time_ns, until its words are in the store: in zero->fars, no job's any more. */
void far_linger(struct far *far, uint64_t time_ns);
/* One that stays ends: for far->next. */
void far_last_due(struct zi_timer *timer);

/* What a worker tells (net_worker_options). A rank of this node has not come to call @sequence, or
 * not done its part (@member): the group breaks, with its name and what it does. */
void far_call_late(void *arg, uint32_t sequence, uint32_t member);
/* What a rank of this node keeps one elsewhere waiting for: so too. */
void far_message_late(void *arg, const struct net_late_message *late);
/* Another node waits for ranks of this one in vain: so too, if they have not come. */
void far_call_asked(void *arg, const struct net_asked *asked);
