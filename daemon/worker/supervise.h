/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-net seen from the daemon: a process (process.h) that is started when asked, and spoken to in
 * the messages of net.h. Floor 3. A worker belongs to its loop's thread.
 *
 * Its end fails what it was asked for, with its reason, and nothing else: a crash or a hang costs
 * one job its operations across nodes. Requests may be made from STARTING on.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/loop.h"
#include "daemon/worker/net.h"
#include "daemon/worker/process.h"

struct net_worker;
struct net_request;

/* Exactly once for every request that was accepted, from the loop; it may make others. */
typedef void (*net_request_fn)(struct net_request *request);
/* The worker ended: @text says why. From the loop, after its requests' own calls. */
typedef void (*net_ended_fn)(void *arg, const struct zi_text *text);
/* The time of the followed group's call @sequence has passed. @member of this node's has come and
 * does not do its part; NET_CULPRIT_NONE: a rank here has not come. */
typedef void (*net_late_fn)(void *arg, uint32_t sequence, uint32_t member);
/* So has that of a message which a rank of this node does not take, or does not send. */
typedef void (*net_late_message_fn)(void *arg, const struct net_late_message *late);
/* Another node waits in the followed group's call for ranks of this one in vain. */
typedef void (*net_asked_fn)(void *arg, const struct net_asked *asked);
/* What daemons of other nodes said, and what became of what was pulled and served; see talk.h. From
 * the loop, in the order in which it came; it may send. */
typedef void (*net_talked_fn)(void *arg, const struct talk_entry *entries, uint32_t count);
/* After -EAGAIN of net_worker_talk_send(): it may be tried again. From the loop. */
typedef void (*net_writable_fn)(void *arg);

enum net_worker_state { NET_WORKER_DOWN, NET_WORKER_STARTING, NET_WORKER_UP };

/* The caller's, and in its place until `done`. */
struct net_request {
	net_request_fn done;
	int error; /* 0 or -errno; the rest with it */
	uint32_t culprit;
	struct zi_text text;
	uint64_t busy_ns;
	struct net_done reply; /* of MEET: who is where */

	/* The worker's own. */
	struct process_request base;
};

struct net_worker_options {
	const char *program;              /* path of zinf-net; kept by the caller */
	uid_t uid;                        /* of the job: the worker's, where this process is root */
	uint64_t ping_ns;                 /* between two; 0: 1 s */
	uint64_t pong_ns;                 /* an answer may take so long; 0: 5 s */
	net_ended_fn ended;               /* NULL: nobody's business */
	net_late_fn late;                 /* NULL as well */
	net_late_message_fn late_message; /* so */
	net_asked_fn asked;               /* so */
	net_talked_fn talked;             /* so */
	net_writable_fn writable;         /* so */
	void *arg;
};

/* @ret_worker: net_worker_free(); DOWN. Return: 0, -ENOMEM. */
int net_worker_new(struct zi_loop *loop, const struct net_worker_options *options,
                   struct net_worker **ret_worker);
/* Kills it, and waits until the kernel has taken it away; requests fail with -ESHUTDOWN, their
 * `done` is called. NULL-safe. Return: NULL. */
struct net_worker *net_worker_free(struct net_worker *worker);

/* From DOWN. Return: 0; -ENOENT (the program is not built or installed), -EACCES, -EAGAIN, …, with
 * @text. */
int net_worker_start(struct net_worker *worker, struct zi_text *text);
enum net_worker_state net_worker_state(const struct net_worker *worker);
/* 0 when DOWN. */
pid_t net_worker_pid(const struct net_worker *worker);

/* Requests; see net.h. Headers are filled here, and @fd stays the caller's. Return: 0 accepted:
 * @request->done comes; -ENOTCONN the worker is down, -EBUSY as many as it takes are under way. */
int net_worker_meet(struct net_worker *worker, struct net_request *request, struct net_meet *meet);
int net_worker_agree(struct net_worker *worker, struct net_request *request,
                     struct net_agree *agree);
int net_worker_join(struct net_worker *worker, struct net_request *request, struct net_join *join);
/* Has no deadline: it is done when the group is over. */
int net_worker_follow(struct net_worker *worker, struct net_request *request,
                      struct net_follow *follow);
int net_worker_map(struct net_worker *worker, struct net_request *request, uint32_t slab, int fd,
                   uint64_t bytes);
int net_worker_exchange(struct net_worker *worker, struct net_request *request,
                        struct net_exchange *exchange);
/* Has none either: it is done when the talk is over, by net_worker_abort(), an end of any node, or
 * an entry that makes no sense; all memory of pulls and serves is the caller's then. */
int net_worker_talk(struct net_worker *worker, struct net_request *request);
/* @entries: (count,) to other nodes, at most TALK_BATCH_MAX. Return: 0 all will be sent; none is:
 * -EAGAIN one of those nodes has TALK_QUEUE yet to be taken, or TALK_CREDIT of its pulls to be
 * answered, or the worker is slow: `writable` comes; -ENOTCONN there is no talk. */
int net_worker_talk_send(struct net_worker *worker, const struct talk_entry *entries,
                         uint32_t count);
/* Ends what runs, here and on all nodes, with @error (negative) and @text; nothing to do when it is
 * not UP. */
void net_worker_abort(struct net_worker *worker, int error, const struct zi_text *text);
/* Kills it now: as if it had crashed, with @text as the reason. */
void net_worker_kill(struct net_worker *worker, const struct zi_text *text);
