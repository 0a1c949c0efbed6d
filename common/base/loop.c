/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop. Floor 0. Owner: the thread in zi_loop_run(); while nobody runs it, whoever holds
 * it. zi_loop_post() and zi_loop_stop(): any thread.
 *
 * Posted work lies in a mailbox (mailbox.c). The doorbell, an eventfd, is rung only when the owner
 * may be asleep:
 *
 *	producer			owner
 *	P1 push the post		O1 need_wakeup = true
 *	P2 full fence			O2 full fence
 *	P3 read need_wakeup		O3 read the mailbox; sleep if empty
 *
 * A post would be lost if P3 read false and O3 read "empty". The two full fences are in one total
 * order. If P2 is before O2, O3 sees P1, and the owner does not sleep. If O2 is before P2, P3 sees
 * O1, and the producer rings. Without either fence the store may still be in its CPU's store
 * buffer while the load after it is done, in both threads, and both read the old value. Stress
 * tests hardly ever hit that; so the fences stay, whatever a test says. zi_loop_stop() follows the
 * same protocol with its flag in place of the mailbox, and a poller with its rings.
 *
 * The doorbell is registered edge-triggered and never read: each write is an edge, which saves the
 * read on every wake-up. (A 64-bit counter that is incremented by one does not overflow.)
 */
#include "common/base/loop.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/mailbox.h"

#define LOOP_CACHE_LINE_BYTES 64u
/* A turn handles at most this many of each kind, so that none starves the others. */
#define LOOP_POSTS_MAX  64u
#define LOOP_TIMERS_MAX 64u
#define LOOP_EVENTS_MAX 64
/* While the poller spins, the clock (25 ns) is read only every so many turns (10 to 50 ns each), */
#define LOOP_SPIN_TURNS 16u
/* and the descriptors (a system call, 200 ns and more) are looked at only so often: one percent
 * of the time, and far below what a person or a socket notices. */
#define LOOP_SPIN_FDS_NS (50 * ZI_NS_PER_US)

struct zi_loop {
	/* Written by all threads. */
	alignas(LOOP_CACHE_LINE_BYTES) struct zi_mailbox mailbox;
	_Atomic bool need_wakeup;
	_Atomic bool is_stopping;
	_Atomic uintptr_t owner; /* thread_id() of the thread in zi_loop_run(), 0 when none */

	/* Owner thread only. */
	alignas(LOOP_CACHE_LINE_BYTES) int epoll_fd;
	int doorbell_fd;
	struct zi_list timers; /* by deadline, the earliest first */
	struct zi_poller poller;
	bool has_poller;
	bool is_armed; /* the poller, for a sleep */

	bool is_spinning; /* decided at the last reading of the clock */
	bool is_fresh;    /* the poller has found work since then */
	uint32_t spun_turns;
	uint64_t now_ns;
	uint64_t active_ns; /* when the poller last found work */
	uint64_t fds_ns;    /* when the descriptors were last looked at */

	uint32_t sources_count;
	int events_index; /* the batch being dispatched, see zi_loop_remove() */
	int events_count;
	struct epoll_event events[LOOP_EVENTS_MAX];
};

/* Its address names the thread: valid, unlike a pthread_t, to keep and compare in an atomic. */
static __thread char thread_marker;

static uintptr_t thread_id(void)
{
	return (uintptr_t)&thread_marker;
}

/* @ret_loop: the caller's, zi_loop_free(). Return: 0, -ENOMEM, -EMFILE, -ENFILE. */
int zi_loop_new(struct zi_loop **ret_loop)
{
	_cleanup_(zi_loop_freep) struct zi_loop *loop = NULL;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = NULL };

	loop = aligned_alloc(alignof(struct zi_loop), sizeof(*loop));
	if (!loop)
		return err_origin(-ENOMEM);
	memset(loop, 0, sizeof(*loop));
	zi_mailbox_init(&loop->mailbox);
	zi_list_init(&loop->timers);
	loop->doorbell_fd = -1;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return err_origin(-errno);
	loop->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->doorbell_fd < 0)
		return err_origin(-errno);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->doorbell_fd, &event))
		return err_origin(-errno);
	*ret_loop = zi_steal(loop);
	return 0;
}

/* The last zi_loop_post() and zi_loop_stop() must have returned in every thread. Return: NULL. */
struct zi_loop *zi_loop_free(struct zi_loop *loop)
{
	if (!loop)
		return NULL;
	assert(!atomic_load_explicit(&loop->owner, memory_order_relaxed));
	assert(!loop->sources_count);
	assert(zi_list_is_empty(&loop->timers));
	assert(!zi_mailbox_has_backlog(&loop->mailbox));
	assert(!zi_mailbox_has_news(&loop->mailbox));
	loop->doorbell_fd = zi_close(loop->doorbell_fd);
	loop->epoll_fd = zi_close(loop->epoll_fd);
	free(loop);
	return NULL;
}

/*
 * Watches @fd. @source: zeroed or removed before; its owner keeps it in place until removed.
 * Return: 0, -EBADF, -EEXIST (the descriptor is watched), -EPERM (a regular file), -ENOMEM,
 * -ENOSPC (/proc/sys/fs/epoll/max_user_watches).
 */
int zi_loop_add(struct zi_loop *loop, struct zi_source *source, int fd, uint32_t epoll_events,
                zi_source_fn ready)
{
	struct epoll_event event = { .events = epoll_events, .data.ptr = source };

	zi_debug_assert(zi_loop_is_owner(loop));
	assert(!source->loop);
	assert(ready);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event))
		return err_origin(-errno);
	*source = (struct zi_source){ .fd = fd, .ready = ready, .loop = loop };
	loop->sources_count++;
	return 0;
}

/* Replaces the events that @source, which must be added, waits for. Return: 0, -ENOMEM. */
int zi_loop_modify(struct zi_source *source, uint32_t epoll_events)
{
	struct epoll_event event = { .events = epoll_events, .data.ptr = source };

	assert(source->loop);
	zi_debug_assert(zi_loop_is_owner(source->loop));
	if (epoll_ctl(source->loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event))
		return err_origin(-errno);
	return 0;
}

/* Before its descriptor is closed. Its events in the batch being dispatched are struck out, so that
 * @source may be freed, or added again with another descriptor, at once. */
void zi_loop_remove(struct zi_source *source)
{
	struct zi_loop *loop = source->loop;
	int r;

	if (!loop)
		return;
	zi_debug_assert(zi_loop_is_owner(loop));
	r = epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	assert(r ==
	       0); /* Closed before: a duplicate elsewhere would go on calling a dead source. */
	(void)r;
	for (int i = loop->events_index; i < loop->events_count; i++)
		if (loop->events[i].data.ptr == source)
			loop->events[i].data.ptr = NULL;
	assert(loop->sources_count > 0);
	loop->sources_count--;
	source->loop = NULL;
}

/*
 * Calls @due once at or after @deadline_ns. An armed timer moves; a deadline that is past is due in
 * this or the next turn. The list is sorted from its end: linear in the timers that are due later.
 * A loop has a handful (one for each session and reaper), for which a heap would not pay.
 */
void zi_loop_arm(struct zi_loop *loop, struct zi_timer *timer, uint64_t deadline_ns,
                 zi_timer_fn due)
{
	struct zi_list *after;

	zi_debug_assert(zi_loop_is_owner(loop));
	assert(!timer->loop || timer->loop == loop);
	assert(due);
	zi_loop_disarm(timer);
	*timer = (struct zi_timer){ .deadline_ns = deadline_ns, .due = due, .loop = loop };
	for (after = loop->timers.prev; after != &loop->timers; after = after->prev)
		if (container_of(after, struct zi_timer, timer_link)->deadline_ns <= deadline_ns)
			break;
	zi_list_push_front(after, &timer->timer_link); /* Equal deadlines keep their order. */
}

/* NULL loop (never armed, or was due): nothing to do. After this `due` is not called. */
void zi_loop_disarm(struct zi_timer *timer)
{
	if (!timer->loop)
		return;
	zi_debug_assert(zi_loop_is_owner(timer->loop));
	zi_list_remove(&timer->timer_link);
	timer->loop = NULL;
}

/* @poller is copied; NULL: none from now on. */
void zi_loop_set_poller(struct zi_loop *loop, const struct zi_poller *poller)
{
	zi_debug_assert(zi_loop_is_owner(loop));
	assert(!loop->is_armed);
	loop->has_poller = poller;
	loop->poller = poller ? *poller : (struct zi_poller){ 0 };
	loop->is_spinning = false;
	loop->is_fresh = false;
}

/* P2 and P3 of the proof above, after P1. */
static void loop_wake(struct zi_loop *loop)
{
	atomic_thread_fence(memory_order_seq_cst); /* Pairs with the one in loop_prepare_sleep(). */
	if (!atomic_load_explicit(&loop->need_wakeup, memory_order_relaxed))
		return;
	if (atomic_exchange_explicit(&loop->need_wakeup, false, memory_order_relaxed))
		(void)eventfd_write(loop->doorbell_fd, 1); /* One rings. Fails only at 2^64 - 1. */
}

/*
 * Calls @run with @post once, in the loop's thread; posts of one thread run in their order. @post
 * belongs to the loop until then. Any thread, also the owner (then it runs in the next turn).
 */
void zi_loop_post(struct zi_loop *loop, struct zi_post *post, zi_post_fn run)
{
	assert(run);
	post->run = run;
	zi_mailbox_push(&loop->mailbox, post);
	loop_wake(loop);
}

/* The loop must outlive this call, so another thread joins the owner before it frees the loop. */
void zi_loop_stop(struct zi_loop *loop)
{
	/* Release: pairs with the acquire in zi_loop_run(). */
	atomic_store_explicit(&loop->is_stopping, true, memory_order_release);
	loop_wake(loop);
}

/* What is posted meanwhile runs in the next turn. */
static void loop_run_posts(struct zi_loop *loop)
{
	struct zi_post *post;

	zi_mailbox_collect(&loop->mailbox);
	for (uint32_t i = 0; i < LOOP_POSTS_MAX && (post = zi_mailbox_pop(&loop->mailbox)); i++)
		post->run(post); /* May free the post. */
}

static void loop_run_timers(struct zi_loop *loop)
{
	for (uint32_t i = 0; !zi_list_is_empty(&loop->timers) && i < LOOP_TIMERS_MAX; i++) {
		struct zi_timer *timer =
			container_of(loop->timers.next, struct zi_timer, timer_link);

		if (timer->deadline_ns > loop->now_ns)
			return;
		zi_loop_disarm(timer);
		timer->due(timer); /* May free the timer. */
	}
}

static uint64_t loop_next_deadline_ns(const struct zi_loop *loop)
{
	if (zi_list_is_empty(&loop->timers))
		return ZI_DEADLINE_NEVER;
	return container_of(loop->timers.next, struct zi_timer, timer_link)->deadline_ns;
}

/* Reads the clock, and decides from it whether the poller is still within its spinning time. */
static void loop_tick(struct zi_loop *loop)
{
	if (loop->is_spinning && ++loop->spun_turns < LOOP_SPIN_TURNS)
		return;
	loop->spun_turns = 0;
	loop->now_ns = zi_clock_now_ns();
	if (loop->is_fresh)
		loop->active_ns = loop->now_ns;
	loop->is_fresh = false;
	loop->is_spinning = loop->has_poller && loop->active_ns &&
	                    loop->now_ns - loop->active_ns < loop->poller.spin_ns(loop->poller.arg);
}

/* O1 to O3 of the proof above. Return: whether the loop may sleep. */
static bool loop_prepare_sleep(struct zi_loop *loop)
{
	atomic_store_explicit(&loop->need_wakeup, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* Pairs with the one in loop_wake(). */
	if (zi_mailbox_has_news(&loop->mailbox) ||
	    atomic_load_explicit(&loop->is_stopping, memory_order_relaxed))
		return false;
	if (!loop->has_poller)
		return true;
	loop->is_armed = true;
	return loop->poller.arm(loop->poller.arg);
}

/* Undoes loop_prepare_sleep(), whatever it said. */
static void loop_finish_sleep(struct zi_loop *loop)
{
	atomic_store_explicit(&loop->need_wakeup, false, memory_order_relaxed);
	if (loop->is_armed)
		loop->poller.disarm(loop->poller.arg);
	loop->is_armed = false;
	loop->is_spinning = false; /* The clock is stale. */
}

/* Waits until @deadline_ns at most (0: looks only), then dispatches one batch. */
static int loop_dispatch(struct zi_loop *loop, uint64_t deadline_ns)
{
	int timeout_ms = deadline_ns ? zi_clock_poll_ms(deadline_ns) : 0;
	bool is_sleeping = timeout_ms != 0;
	int count;
	int r;

	if (is_sleeping && !loop_prepare_sleep(loop))
		timeout_ms = 0;
	count = epoll_wait(loop->epoll_fd, loop->events, LOOP_EVENTS_MAX, timeout_ms);
	r = count < 0 ? -errno : 0;
	if (is_sleeping)
		loop_finish_sleep(loop);
	if (r)
		return r == -EINTR ? 0 : err_origin(r);
	loop->events_count = count;
	for (loop->events_index = 0; loop->events_index < loop->events_count;) {
		const struct epoll_event *event = &loop->events[loop->events_index++];
		struct zi_source *source = event->data.ptr;

		if (source) /* Neither the doorbell nor removed in this batch. */
			source->ready(source, event->events); /* May free the source. */
	}
	loop->events_index = 0;
	loop->events_count = 0;
	return 0;
}

static int loop_turn(struct zi_loop *loop)
{
	bool is_found = false;

	loop_run_posts(loop);
	loop_tick(loop);
	loop_run_timers(loop);
	if (loop->has_poller)
		is_found = loop->poller.poll(loop->poller.arg);
	loop->is_fresh |= is_found;

	if (!zi_mailbox_has_backlog(&loop->mailbox) && !loop->is_fresh && !loop->is_spinning)
		return err_trace(loop_dispatch(loop, loop_next_deadline_ns(loop)));
#if defined(__x86_64__)
	if (!is_found)
		__builtin_ia32_pause(); /* Leaves the core's other thread its share. */
#endif
	if (loop->has_poller && loop->now_ns - loop->fds_ns < LOOP_SPIN_FDS_NS)
		return 0;
	loop->fds_ns = loop->now_ns;
	return err_trace(loop_dispatch(loop, 0));
}

/*
 * Turns until zi_loop_stop(), which may have been called before. The calling thread is the owner
 * until this returns. Return: 0 when stopped, an errno of epoll_wait() otherwise.
 */
int zi_loop_run(struct zi_loop *loop)
{
	int r;

	assert(!atomic_load_explicit(&loop->owner, memory_order_relaxed));
	atomic_store_explicit(&loop->owner, thread_id(), memory_order_relaxed);
	loop->is_spinning = false;
	do {
		r = loop_turn(loop);
		/* Acquire: pairs with the release in zi_loop_stop(). */
	} while (!r && !atomic_load_explicit(&loop->is_stopping, memory_order_acquire));
	atomic_store_explicit(&loop->is_stopping, false, memory_order_relaxed);
	atomic_store_explicit(&loop->owner, 0, memory_order_relaxed);
	return err_trace(r);
}

/* Return: whether the calling thread runs the loop, or nobody does. */
bool zi_loop_is_owner(const struct zi_loop *loop)
{
	uintptr_t owner = atomic_load_explicit(&loop->owner, memory_order_relaxed);

	return !owner || owner == thread_id();
}
