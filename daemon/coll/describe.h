/* SPDX-License-Identifier: Apache-2.0 */
/* A group as an administrator sees it. Floor 3, shard thread. */
#pragma once

#include "daemon/coll/coll.h"

/* So many of a group's messages are told one by one. */
#define COLL_MESSAGES_TOLD 32u

/* A message that @rank waits in. */
struct coll_waiting {
	uint32_t rank, peer;
	struct zi_text call; /* "send (f32 x 4, to rank 1)" */
};

struct coll_description {
	uint32_t number;
	uint32_t member_count;
	const uint32_t *ranks; /* (member_count,) */
	uint64_t timeout_ns;   /* of its calls */
	uint32_t sequence;     /* of the oldest call that is waited in, else the newest; 0: none */
	struct zi_text call;   /* "all_reduce (f32 x 4096, sum)"; "" */
	uint64_t come_mask;    /* members that have made it */
	uint64_t awaited_mask; /* members that others wait for in it; 0: nobody waits */
	/* (message_count,), the first COLL_MESSAGES_TOLD of them: who waits for whom in sends and
	 * receives */
	struct coll_waiting messages[COLL_MESSAGES_TOLD];
	uint32_t message_count;
	uint64_t waited_ns;              /* since somebody first looked in and saw it so */
	uint64_t read_mask, unread_mask; /* as of coll_look_read() */
	uint64_t left_mask;              /* members that have freed the group, or are gone */
	int error;                       /* 0: it stands */
	const char *reason;              /* why not; "" */
	uint32_t culprit;                /* rank; COLL_NOBODY */
};

/* False: there is no group of that number. Valid until something changes. */
bool coll_describe(struct coll *coll, uint32_t group, struct coll_description *ret_description);
