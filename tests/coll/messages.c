/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and batches of check_coll as single messages. */
#include "tests/coll/messages.h"

#include "tests/coll/plain.h"

static uint32_t of_send(const struct script_call *call, uint32_t members, uint32_t self,
                        const struct rank_buffers *buffers, struct message *message)
{
	uint32_t taker = (call->root + 1) % members;
	bool is_send = self == call->root;

	if (taker == call->root || (!is_send && self != taker))
		return 0;
	*message = (struct message){
		.is_send = is_send,
		.peer = is_send ? taker : call->root,
		.element_count = call->element_count,
		.data = is_send ? buffers->source : buffers->target,
	};
	return 1;
}

bool messages_concern(const struct script_call *call, uint32_t members, uint32_t self)
{
	const struct rank_buffers none = { 0 };
	struct message messages[MESSAGES_MAX];

	return (call->operation != SCRIPT_SEND && call->operation != SCRIPT_BATCH) ||
	       messages_of(call, members, self, &none, messages) > 0;
}

uint32_t messages_of(const struct script_call *call, uint32_t members, uint32_t self,
                     const struct rank_buffers *buffers, struct message *messages)
{
	uint32_t width = zi_dtype_bytes(call->dtype), count = 0;
	char *source = buffers->source, *target = buffers->target;

	if (call->operation == SCRIPT_SEND)
		return of_send(call, members, self, buffers, messages);
	for (uint32_t i = 0; i < members; i++) {
		uint64_t sent = buffers->source_counts[i], taken = buffers->target_counts[i];

		if (plain_has_message(call, self, i))
			messages[count++] = (struct message){ true, i, sent, source };
		if (plain_has_message(call, i, self))
			messages[count++] = (struct message){ false, i, taken, target };
		if (source)
			source += sent * width;
		if (target)
			target += taken * width;
	}
	return count;
}
