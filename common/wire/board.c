/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks posted, and why they refuse; see board.h. Floor 1, any thread. */
#include "common/wire/board.h"

#include <stdio.h>
#include <string.h>

/* Looks at a post that changes under the eyes before it is taken as it is. */
#define BOARD_LOOKS 4u

/* Documented in the header, as are the next. */
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

void zi_board_refuse(struct zi_board_refusal *refusals, uint32_t number, uint32_t error,
                     const char *reason)
{
	struct zi_board_refusal *place = &refusals[number % ZI_BOARD_REFUSALS];

	__atomic_store_n(&place->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* pairs with zi_board_refusal_of() */
	place->error = error;
	(void)snprintf(place->reason, sizeof(place->reason), "%.247s", reason); /* Cut. */
	__atomic_store_n(&place->number, number, __ATOMIC_RELEASE);
}

bool zi_board_refusal_of(const struct zi_board_refusal *refusals, uint32_t number,
                         struct zi_board_refusal *ret_refusal)
{
	const struct zi_board_refusal *place = &refusals[number % ZI_BOARD_REFUSALS];

	ret_refusal->number = __atomic_load_n(&place->number, __ATOMIC_ACQUIRE);
	ret_refusal->error = place->error;
	memcpy(ret_refusal->reason, place->reason, sizeof(ret_refusal->reason));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	ret_refusal->reason[sizeof(ret_refusal->reason) - 1] = '\0';
	return number && ret_refusal->number == number &&
	       __atomic_load_n(&place->number, __ATOMIC_RELAXED) == number;
}
