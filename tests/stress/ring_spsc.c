/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a ring and its sleep protocol lose, double and tear nothing between two threads, and no
 * access races. Method: a producer and a consumer pass two million numbered slots across the wrap
 * of 2^32, both sleeping on eventfds whenever they run dry (bursts of random length force it); run
 * under ThreadSanitizer. A lost wake-up shows as a poll() that times out.
 *
 * With -DBROKEN_RING the producer publishes the tail before the slot's bytes, relaxed:
 * ThreadSanitizer must report that, or it would not see a broken ring either. (Built without
 * sanitizer such a program usually passes: that is the point.)
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/wire/ring.h"

#ifndef MESSAGES
#define MESSAGES 2000000u
#endif
/* Few enough that both ends meet full and empty all the time. */
#define ENTRIES 16u
/* Begin so that the wrap lies in the middle. */
#define FIRST (0u - MESSAGES / 2)
#ifdef BROKEN_RING
#define IS_BROKEN true
#else
#define IS_BROKEN false
#endif
/* No healthy sleeper waits this long, even under a sanitizer on a busy machine. */
#define LOST_MS 30000

static struct zi_uplink_header *up;
static struct zi_downlink_header *down;
static int request_fd; /* rung by the producer */
static int credit_fd;  /* rung by the consumer, when it has made room */
static uint64_t request_sleeps, credit_sleeps;

static void die(const char *what)
{
	fprintf(stderr, "ring_spsc: %s\n", what);
	exit(1);
}

static void ring(int fd)
{
	const uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		die("write");
}

static void sleep_on(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	uint64_t count;

	if (poll(&ready, 1, LOST_MS) != 1)
		die("a wake-up was lost");
	if (read(fd, &count, sizeof(count)) != sizeof(count))
		die("read");
}

static int push(struct zi_ring_producer *producer, const struct zi_sqe *sqe)
{
#ifdef BROKEN_RING
	uint32_t tail = producer->tail_private;

	if (tail - __atomic_load_n(producer->head, __ATOMIC_RELAXED) >= ENTRIES)
		return ZI_RING_E_FULL;
	producer->tail_private = tail + 1;
	__atomic_store_n(producer->tail, tail + 1, __ATOMIC_RELAXED);
	memcpy((char *)producer->slots + (size_t)(tail % ENTRIES) * ZI_SLOT_BYTES, sqe,
	       ZI_SLOT_BYTES);
	return 0;
#else
	return zi_ring_push(producer, sqe);
#endif
}

/* Numbers from 0; the CQ carries nothing but "there is room again". */
static void *produce(void *arg)
{
	struct zi_ring_producer sq;
	struct zi_ring_consumer credits;
	struct zi_cqe cqe;
	unsigned seed = 1;

	zi_ring_sq_producer(&sq, up, down, ENTRIES);
	zi_ring_cq_consumer(&credits, up, down, ENTRIES);
	for (uint64_t i = 0; i < MESSAGES;) {
		struct zi_sqe sqe = { .user_data = i, .args = { i, ~i, i * 3, i, ~i, i * 5 } };

		if (push(&sq, &sqe) == 0) {
			i++;
			if (rand_r(&seed) % 8 == 0 && zi_ring_must_wake(&sq))
				ring(request_fd);
			continue;
		}
		if (zi_ring_must_wake(&sq))
			ring(request_fd);
		while (zi_ring_pop(&credits, &cqe) == ZI_RING_E_EMPTY) {
			if (!zi_ring_arm(&credits))
				continue;
			credit_sleeps++;
			sleep_on(credit_fd);
			zi_ring_disarm(&credits);
		}
	}
	if (zi_ring_must_wake(&sq))
		ring(request_fd);
	return arg;
}

/* A broken ring may well tear: then the sanitizer's report is what counts. */
static void check(const struct zi_sqe *sqe, uint64_t i)
{
	if (IS_BROKEN)
		return;
	if (sqe->user_data != i || sqe->args[0] != i || sqe->args[1] != ~i ||
	    sqe->args[2] != i * 3 || sqe->args[4] != ~i || sqe->args[5] != i * 5) {
		fprintf(stderr, "ring_spsc: slot %llu holds %llu\n", (unsigned long long)i,
		        (unsigned long long)sqe->user_data);
		exit(1);
	}
}

static void consume(void)
{
	struct zi_ring_consumer sq;
	struct zi_ring_producer credits;
	unsigned seed = 2;

	zi_ring_sq_consumer(&sq, up, down, ENTRIES);
	zi_ring_cq_producer(&credits, up, down, ENTRIES);
	for (uint64_t i = 0; i < MESSAGES;) {
		struct zi_cqe cqe = { .user_data = i };
		struct zi_sqe sqe;
		int r = zi_ring_pop(&sq, &sqe);

		if (r == ZI_RING_E_EMPTY) {
			if (zi_ring_arm(&sq)) {
				request_sleeps++;
				sleep_on(request_fd);
				zi_ring_disarm(&sq);
			}
			continue;
		}
		if (r)
			die("the consumer was lied to");
		check(&sqe, i);
		i++;
		if (rand_r(&seed) % 4 == 0) {
			/* A full CQ holds credits enough. */
			r = zi_ring_push(&credits, &cqe);
			if (r && r != ZI_RING_E_FULL)
				die("the producer of credits was lied to");
		}
		if (zi_ring_must_wake(&credits)) {
			(void)zi_ring_push(&credits, &cqe);
			ring(credit_fd);
		}
	}
}

int main(void)
{
	pthread_t producer;

	up = aligned_alloc(4096, zi_uplink_bytes(ENTRIES));
	down = aligned_alloc(4096, zi_downlink_bytes(ENTRIES));
	request_fd = eventfd(0, EFD_CLOEXEC);
	credit_fd = eventfd(0, EFD_CLOEXEC);
	if (!up || !down || request_fd < 0 || credit_fd < 0)
		die("setting up");
	memset(up, 0, zi_uplink_bytes(ENTRIES));
	memset(down, 0, zi_downlink_bytes(ENTRIES));
	up->sq_tail.value = down->sq_head.value = FIRST;
	up->cq_head.value = down->cq_tail.value = FIRST;
	if (pthread_create(&producer, NULL, produce, NULL))
		die("pthread_create");
	consume();
	pthread_join(producer, NULL);
	if (up->sq_tail.value != FIRST + MESSAGES || down->sq_head.value != FIRST + MESSAGES)
		die("indices");
	printf("ring_spsc: %u messages, %llu sleeps of the consumer, %llu of the producer\n",
	       MESSAGES, (unsigned long long)request_sleeps, (unsigned long long)credit_sleeps);
	free(up);
	free(down);
	close(request_fd);
	close(credit_fd);
	return 0;
}
