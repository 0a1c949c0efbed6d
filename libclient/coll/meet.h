/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks of one node meet: each says that it has come, and waits until others have, until the
 * daemon declares the group broken, or until a deadline. Floor 2; belongs to the thread that makes
 * the group's calls.
 *
 * Who has come late enough to have let others fall asleep wakes them: a waiter raises `sleeping`
 * and then looks once more; a poster posts and then looks at `sleeping`. With a full fence between
 * the two steps on both sides one of them sees the other (tests/model/meet.pml). The daemon's
 * verdict is a word that every sleeper waits on as well.
 */
#pragma once

#include <stdint.h>

#include "common/wire/board.h"

struct zi_meet {
	struct zi_board_member *members; /* (member_count,) the board */
	const struct zi_line *verdict;   /* 0: the group stands; else it is broken, by -value */
	const struct zi_line *spin_us;   /* how long waiting may burn a CPU; 0: not at all */
	/* Whether there is still a daemon to give a verdict: asked before a sleep and every second
	 * of it; waiting ends with its error. NULL: nobody asks. */
	int (*look)(void *arg);
	void *look_arg;
	uint32_t member_count;
	uint32_t self;
};

/* Says that this member calls @call, number @sequence, with up to ZI_BOARD_INLINE_BYTES of data. */
void zi_meet_post(struct zi_meet *meet, uint32_t sequence, const struct zi_board_call *call,
                  const void *payload, uint32_t payload_bytes);
/* Until @member has posted @sequence. 0; -ETIMEDOUT; the verdict. */
int zi_meet_wait_post(struct zi_meet *meet, uint32_t member, uint32_t sequence,
                      uint64_t deadline_ns);
/* What @member posted as @sequence, which has been waited for, and its data. */
static inline const struct zi_board_post *zi_meet_post_of(const struct zi_meet *meet,
                                                          uint32_t member, uint32_t sequence)
{
	return &meet->members[member].posts[sequence % 2];
}
const void *zi_meet_payload_of(const struct zi_meet *meet, uint32_t member, uint32_t sequence);

/* Says that this member no longer touches anyone's data of call @sequence. */
void zi_meet_finish(struct zi_meet *meet, uint32_t sequence);
/* Until every member has. */
int zi_meet_wait_finished(struct zi_meet *meet, uint32_t sequence, uint64_t deadline_ns);
