/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks posted, and why they refuse; see board.h. Floor 1, any thread. */
#include "common/wire/board.h"

#include <string.h>

#include "common/base/utf8.h"

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

static uint64_t message_word(uint32_t sequence, uint32_t line, bool is_send, uint32_t number)
{
	return (uint64_t)sequence << 32 | line << 24 | (is_send ? 1u << 16 : 0) | (uint16_t)number;
}

void zi_board_refuse_message(struct zi_board_member *self, uint32_t count, uint32_t sequence,
                             uint32_t line, bool is_send, uint32_t number)
{
	/* Pairs with zi_board_refused_for(): its reason is there. */
	__atomic_store_n(&self->refused[count % ZI_BOARD_REFUSED_MESSAGES],
	                 message_word(sequence, line, is_send, number), __ATOMIC_RELEASE);
}

uint32_t zi_board_refused_for(const struct zi_board_member *member, uint32_t sequence,
                              uint32_t line, bool is_send)
{
	uint64_t word = message_word(sequence, line, is_send, 0);

	for (uint32_t i = 0; i < ZI_BOARD_REFUSED_MESSAGES; i++) {
		uint64_t found = __atomic_load_n(&member->refused[i], __ATOMIC_ACQUIRE);
		uint16_t low = (uint16_t)found;
		uint32_t number;

		if (found - low != word)
			continue;
		if (!low)
			return 0;
		number = __atomic_load_n(&member->refusals[low % ZI_BOARD_REFUSALS].number,
		                         __ATOMIC_RELAXED);
		return (uint16_t)number == low ? number : ZI_BOARD_REFUSAL_LOST;
	}
	return ZI_BOARD_REFUSAL_LOST;
}

void zi_board_refuse(struct zi_board_refusal *refusals, uint32_t number, uint32_t error,
                     const char *reason)
{
	struct zi_board_refusal *place = &refusals[number % ZI_BOARD_REFUSALS];
	size_t bytes;

	__atomic_store_n(&place->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* pairs with zi_board_refusal_of() */
	place->error = error;
	bytes = strnlen(reason, sizeof(place->reason));
	if (bytes == sizeof(place->reason))
		bytes = zi_utf8_whole(reason, bytes - 1);
	memcpy(place->reason, reason, bytes);
	place->reason[bytes] = '\0';
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
	zi_utf8_clean(ret_refusal->reason);
	return number && ret_refusal->number == number &&
	       __atomic_load_n(&place->number, __ATOMIC_RELAXED) == number;
}
