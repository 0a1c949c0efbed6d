/* SPDX-License-Identifier: Apache-2.0 */
/* A rank in a process of its own: it trains until it is told otherwise, and tells its progress. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "tests/gpu/device/peer.h"
#include "tests/gpu/device/rank.h"

enum rank_event {
	RANK_READY, /* the job is there, and each unit was compared with its first values */
	RANK_STEPPED,
	RANK_FAILED, /* a call failed; the process waits for its end */
	RANK_DONE,   /* it was told to end: the bits of its parameters */
};

struct rank_news {
	uint32_t event;
	int32_t error;        /* RANK_FAILED: -errno, with text */
	uint64_t step;        /* so many steps */
	uint64_t call_ns;     /* RANK_FAILED: how long the call that told it took */
	uint64_t limit_ns;    /* the deadline of a call */
	uint64_t wrong_count; /* RANK_READY: elements */
	uint64_t hash;        /* RANK_DONE: of all masters */
	struct zi_text text;
};

/* @fake: as for peer_start(). */
int rank_peer_start(struct peer *peer, const struct rank_settings *settings, const char *fake);
/* The next event of this kind; steps in between are passed over. Return: 0; -ETIMEDOUT; -EPIPE it
 * ended; -ECANCELED it failed, as *ret_news says. */
int rank_peer_await(const struct peer *peer, enum rank_event event, struct rank_news *ret_news);
/* So many steps that end after this call. Return: as rank_peer_await(). */
int rank_peer_await_steps(const struct peer *peer, uint32_t count, struct rank_news *ret_news);
/* From the next step on. */
int rank_peer_order(const struct peer *peer, enum rank_deed deed);
/* Tells it to end after the step that is under way, and waits. @ret_news: of RANK_DONE. Return: as
 * rank_peer_await(); another exit code than 0, positive. */
int rank_peer_finish(struct peer *peer, struct rank_news *ret_news);
/* Waits for RANK_DONE of a rank with a last step, and for its end. Return: as above. */
int rank_peer_await_end(struct peer *peer, struct rank_news *ret_news);
