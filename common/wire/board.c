/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what ranks call together, and looking at what they posted; see board.h. Floor 1, any
 * thread. */
#include "common/wire/board.h"

#include <stddef.h>
#include <string.h>

static const char *const names[_ZI_COLL_COUNT] = {
	[ZI_COLL_BARRIER] = "barrier",
	[ZI_COLL_ALL_REDUCE] = "all_reduce",
	[ZI_COLL_REDUCE] = "reduce",
	[ZI_COLL_REDUCE_SCATTER] = "reduce_scatter",
	[ZI_COLL_ALL_GATHER] = "all_gather",
	[ZI_COLL_BROADCAST] = "broadcast",
	[ZI_COLL_GATHER] = "gather",
	[ZI_COLL_SCATTER] = "scatter",
	[ZI_COLL_ALL_TO_ALL] = "all_to_all",
	[ZI_COLL_ALL_TO_ALLV] = "all_to_allv",
	[ZI_COLL_SEND] = "send",
	[ZI_COLL_RECV] = "recv",
};

/* See board.h. */
const char *zi_coll_operation_name(uint32_t operation)
{
	return operation < _ZI_COLL_COUNT && names[operation] ? names[operation] : "?";
}

/* Looks at a post that changes under the eyes before it is taken as it is. */
#define BOARD_LOOKS 4u

/* See board.h. */
void zi_board_look(const struct zi_board_post *post, struct zi_board_post *ret_post)
{
	for (uint32_t i = 0; i < BOARD_LOOKS; i++) {
		uint32_t before = __atomic_load_n(&post->sequence, __ATOMIC_ACQUIRE);

		memcpy(ret_post, post, sizeof(*ret_post));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		ret_post->sequence = __atomic_load_n(&post->sequence, __ATOMIC_RELAXED);
		if (ret_post->sequence == before)
			return;
	}
}
