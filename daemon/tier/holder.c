/* SPDX-License-Identifier: Apache-2.0 */
/* Holders: processes that received segments. Floor 4, shard thread. */
#include "daemon/tier/holder.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"

struct tier_holder {
	struct tier_holders *holders;
	struct zi_list holders_link;
	struct zi_source source; /* the pidfd: readable when the process is gone */
	int pidfd;
	pid_t pid;
	struct tier_segment **segments; /* (segment_count,) a reference each */
	uint32_t segment_count;
};

struct tier_holders {
	struct zi_loop *loop;
	struct zi_list list;
	uint32_t count;
};

/* @ret_holders: the caller's, tier_holders_free(). Return: 0; -ENOMEM. */
int tier_holders_new(struct zi_loop *loop, struct tier_holders **ret_holders)
{
	struct tier_holders *holders;

	holders = calloc(1, sizeof(*holders));
	if (!holders)
		return err_origin(-ENOMEM);
	holders->loop = loop;
	zi_list_init(&holders->list);
	*ret_holders = holders;
	return 0;
}

static struct tier_holder *holder_free(struct tier_holder *holder)
{
	zi_loop_remove(&holder->source);
	zi_list_remove(&holder->holders_link);
	holder->pidfd = zi_close(holder->pidfd);
	for (uint32_t i = 0; i < holder->segment_count; i++) {
		assert(holder->segments[i]->holder_count > 0);
		holder->segments[i]->holder_count--;
		(void)tier_segment_unref(holder->segments[i]); /* Always NULL. */
	}
	free(holder->segments);
	assert(holder->holders->count > 0);
	holder->holders->count--;
	free(holder);
	return NULL;
}

/* At the end of the daemon: what processes still hold is theirs now. */
struct tier_holders *tier_holders_free(struct tier_holders *holders)
{
	if (!holders)
		return NULL;
	zi_list_for_each_safe(link, &holders->list)
		(void)holder_free(container_of(link, struct tier_holder, holders_link));
	assert(holders->count == 0);
	free(holders);
	return NULL;
}

static void holder_gone(struct zi_source *source, uint32_t epoll_events)
{
	(void)epoll_events; /* A pidfd has one event. */
	(void)holder_free(container_of(source, struct tier_holder, source));
}

static bool pidfd_is_gone(int pidfd)
{
	struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) > 0;
}

/* A pid may be used again before the loop heard that its former owner is gone. */
static struct tier_holder *holder_find(struct tier_holders *holders, pid_t pid)
{
	zi_list_for_each_safe(link, &holders->list) {
		struct tier_holder *holder = container_of(link, struct tier_holder, holders_link);

		if (holder->pid != pid)
			continue;
		if (!pidfd_is_gone(holder->pidfd))
			return holder;
		(void)holder_free(holder);
	}
	return NULL;
}

static int holder_new(struct tier_holders *holders, pid_t pid, int pidfd,
                      struct tier_holder **ret_holder)
{
	struct tier_holder *holder;
	int r;

	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return err_origin(-ENOMEM);
	holder->holders = holders;
	holder->pid = pid;
	zi_list_init(&holder->holders_link);
	holders->count++;
	holder->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
	if (holder->pidfd < 0) {
		r = err_origin(-errno);
		(void)holder_free(holder);
		return r;
	}
	r = zi_loop_add(holders->loop, &holder->source, holder->pidfd, EPOLLIN, holder_gone);
	if (r) {
		(void)holder_free(holder);
		return err_trace(r);
	}
	zi_list_push_back(&holders->list, &holder->holders_link);
	*ret_holder = holder;
	return 0;
}

static bool holder_has(const struct tier_holder *holder, const struct tier_segment *segment)
{
	for (uint32_t i = 0; i < holder->segment_count; i++)
		if (holder->segments[i] == segment)
			return true;
	return false;
}

/**
 * tier_holders_add() - a process received a segment
 * @holders: all of them
 * @pid: of the process, for people and for finding it
 * @pidfd: of the same process; duplicated
 * @segment: referenced until the process is gone
 *
 * Return: 0, also when it was told before; -EMFILE, -ENOMEM, -EBADF. Context: shard thread.
 */
int tier_holders_add(struct tier_holders *holders, pid_t pid, int pidfd,
                     struct tier_segment *segment)
{
	struct tier_holder *holder = holder_find(holders, pid);
	struct tier_segment **segments;
	int r;

	if (!holder) {
		r = holder_new(holders, pid, pidfd, &holder);
		if (r)
			return err_trace(r);
	}
	if (holder_has(holder, segment))
		return 0;
	segments = reallocarray(holder->segments, holder->segment_count + 1, sizeof(*segments));
	if (!segments) {
		if (!holder->segment_count)
			(void)holder_free(holder);
		return err_origin(-ENOMEM);
	}
	holder->segments = segments;
	segments[holder->segment_count++] = tier_segment_ref(segment);
	segment->holder_count++;
	return 0;
}

/* Return: processes that hold anything. */
uint32_t tier_holders_count(const struct tier_holders *holders)
{
	return holders->count;
}

static uint64_t holder_lingering_bytes(const struct tier_holder *holder, const struct tier *tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < holder->segment_count; i++) {
		const struct tier_segment *segment = holder->segments[i];

		if (segment->ref_count == segment->holder_count)
			bytes += tier_segment_bytes_on(segment, tier) / segment->holder_count;
	}
	return bytes;
}

/* Shared among several holders, a segment counts in equal parts, so that the sum is right (but for
 * the division's remainder). @ret_pid: who holds most, may be NULL. */
uint64_t tier_holders_lingering_bytes(const struct tier_holders *holders, const struct tier *tier,
                                      pid_t *ret_pid)
{
	uint64_t total_bytes = 0;
	uint64_t most_bytes = 0;

	zi_list_for_each(link, &holders->list) {
		const struct tier_holder *holder =
			container_of(link, struct tier_holder, holders_link);
		uint64_t bytes = holder_lingering_bytes(holder, tier);

		total_bytes += bytes;
		if (bytes > most_bytes) {
			most_bytes = bytes;
			if (ret_pid)
				*ret_pid = holder->pid;
		}
	}
	return total_bytes;
}

static uint64_t count_lingering(const void *arg, const struct tier *tier, pid_t *ret_pid)
{
	return tier_holders_lingering_bytes(arg, tier, ret_pid);
}

/* Refusals of @tier name who still holds its memory. @holders: outlives that; NULL: no more. */
void tier_holders_watch(const struct tier_holders *holders, struct tier *tier)
{
	tier->lingering_bytes = holders ? count_lingering : NULL;
	tier->lingering_arg = holders;
}
