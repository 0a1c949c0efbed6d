/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What suites `coll` and `step` tell a rank to do, and what it answers: a packet each. Every
 * rank of every side (ours, Open MPI's, Gloo's) connects to $COLL_SOCKET, says hello, and obeys
 * until the socket ends; between orders it sleeps in the kernel, so that sides do not disturb each
 * other.
 *
 *   hello    "RANK ready WORDS"  or  "RANK skip REASON"
 *   order    "OPERATION BYTES ITERATIONS VARIANT"
 *   answer   "STARTED_NS ENDED_NS" (CLOCK_MONOTONIC, around all iterations)  or  "cannot REASON"
 *
 * Before the clock starts, the ranks meet at a barrier of their own library.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define COLL_PACKET_BYTES 256u
#define COLL_RANKS_MAX    8u

enum coll_operation {
	COLL_BARRIER,
	COLL_ALL_REDUCE,     /* f32, sum */
	COLL_REDUCE_SCATTER, /* f32, sum */
	COLL_ALL_GATHER,
	COLL_BROADCAST,
	COLL_ALL_TO_ALL,
	_COLL_OPERATION_COUNT,
	/* Suite `step` alone, no collective: an optimizer step over what bytes of gradient make. */
	COLL_STEP = _COLL_OPERATION_COUNT,
};

/* Of one side: where its buffers lie. */
enum coll_variant {
	COLL_IN_PLACE, /* ours: in arenas, no copy; MPI: MPI_IN_PLACE */
	COLL_APART,    /* ours: in private memory, staged; MPI: source and target are two buffers */
	_COLL_VARIANT_COUNT,
};

struct coll_order {
	enum coll_operation operation;
	/* Of the longest buffer that a rank has: all_reduce and broadcast of the buffer,
	 * reduce_scatter of the source, all_gather of the target, all_to_all of either. */
	uint64_t bytes;
	uint32_t iterations;
	enum coll_variant variant;
};

const char *coll_operation_name(enum coll_operation operation);
/* False: @text is no order. */
bool coll_order_parse(const char *text, struct coll_order *ret_order);
void coll_order_print(const struct coll_order *order, char text[static COLL_PACKET_BYTES]);

/* ---- for ranks written in C ---- */

/* Of the environment; 0: not there. */
uint32_t coll_rank_number(const char *name);
/* Does one order and answers it. Return: not 0 ends the rank. */
typedef int (*coll_obey_fn)(void *arg, int socket_fd, const struct coll_order *order);
/* Says @words, and obeys while they are not "skip …". False: that, or a failure, was the end. */
bool coll_rank_serve(unsigned rank, const char *words, coll_obey_fn obey, void *arg);
/* The connected socket after saying @words; -1: errno says why. */
int coll_rank_connect(unsigned rank, const char *words);
/* False: there are no more orders. */
bool coll_rank_next(int socket_fd, struct coll_order *ret_order);
void coll_rank_answer(int socket_fd, uint64_t started_ns, uint64_t ended_ns);
void coll_rank_refuse(int socket_fd, const char *reason);
uint64_t coll_now_ns(void);
/* To the CPU of this rank's number. A rank that is not pinned is slower, not wrong. */
void coll_rank_pin(unsigned rank);
/* Private memory, touched, in transparent huge pages where there are any. NULL: none left. */
void *coll_rank_memory(uint64_t bytes);
