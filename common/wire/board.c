/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at what ranks posted; see board.h. Floor 1, any thread. */
#include "common/wire/board.h"

#include <string.h>

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
