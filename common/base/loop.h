/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of a thread: file descriptors (epoll), timers, work posted by other threads, and
 * one optional poller for shared-memory rings. Objects are embedded in their owners; the loop never
 * allocates after zi_loop_new(). Owner thread only, except zi_loop_post() and zi_loop_stop().
 * Floor 0.
 *
 * Order of one turn: posted work, due timers, poller, ready descriptors; each in bounded batches.
 *
 * Poller: `poll` looks at its rings and says whether it found work. While it does, and for
 * spin_ns() after it last did, the loop does not sleep. Before sleeping the loop calls `arm`
 * (publish need_wakeup, fence, look again): false means work arrived meanwhile. After sleeping, and
 * after an `arm` that kept it awake, it calls `disarm`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

struct zi_loop;
struct zi_source;
struct zi_timer;
struct zi_post;

typedef void (*zi_source_fn)(struct zi_source *source, uint32_t epoll_events);
typedef void (*zi_timer_fn)(struct zi_timer *timer);
typedef void (*zi_post_fn)(struct zi_post *post);

struct zi_source {
	int fd;
	zi_source_fn ready;
	struct zi_loop *loop; /* NULL while not added */
};

struct zi_timer {
	uint64_t deadline_ns;
	zi_timer_fn due;
	struct zi_loop *loop; /* NULL while not armed */
	struct zi_list timer_link;
};

/* A node of the multi-producer queue. It belongs to the loop from zi_loop_post() until `run` is
 * called, in which it may be posted again or freed. */
struct zi_post {
	zi_post_fn run;
	struct zi_post *next;
};

struct zi_poller {
	void *arg;
	bool (*poll)(void *arg);
	bool (*arm)(void *arg);
	void (*disarm)(void *arg);
	uint64_t (*spin_ns)(void *arg);
};

int zi_loop_new(struct zi_loop **ret_loop);
/* NULL-safe; asserts that no source, timer or post is left. Returns NULL. */
struct zi_loop *zi_loop_free(struct zi_loop *loop);
ZI_DEFINE_CLEANUP(struct zi_loop *, zi_loop_free)

/* @epoll_events as for epoll_ctl (EPOLLIN, EPOLLOUT, EPOLLET…). @source->fd stays the caller's. */
int zi_loop_add(struct zi_loop *loop, struct zi_source *source, int fd, uint32_t epoll_events,
                zi_source_fn ready);
int zi_loop_modify(struct zi_source *source, uint32_t epoll_events);
/* Not added (loop is NULL): nothing to do. Call it before the fd is closed. After this `ready` is
 * never called again, not even in this turn. */
void zi_loop_remove(struct zi_source *source);

void zi_loop_arm(struct zi_loop *loop, struct zi_timer *timer, uint64_t deadline_ns,
                 zi_timer_fn due);
void zi_loop_disarm(struct zi_timer *timer);

void zi_loop_set_poller(struct zi_loop *loop, const struct zi_poller *poller);

/* Any thread. */
void zi_loop_post(struct zi_loop *loop, struct zi_post *post, zi_post_fn run);
/* Any thread: zi_loop_run() returns 0 after the present turn. */
void zi_loop_stop(struct zi_loop *loop);
/* Makes the calling thread the owner and turns until stopped, or fails with a loop error. */
int zi_loop_run(struct zi_loop *loop);
/* Also true while nobody runs the loop: setting up and tearing down may be another thread's. */
bool zi_loop_is_owner(const struct zi_loop *loop);
