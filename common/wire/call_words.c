/* SPDX-License-Identifier: Apache-2.0 */
/* What a call is, in words; see call_words.h. Floor 1, any thread. */
#include "common/wire/call_words.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/types.h"

/* See call_words.h, as is the other. */
struct zi_call_words zi_dtype_words_of(uint32_t dtype)
{
	struct zi_call_words words;

	if (dtype >= ZI_DTYPE_F32 && dtype < _ZI_DTYPE_COUNT)
		(void)snprintf(words.chars, sizeof(words), "%s",
		               zi_dtype_name((enum zi_dtype)dtype)); /* Fits, as does the next. */
	else
		(void)snprintf(words.chars, sizeof(words), "dtype %u (unknown here)", dtype);
	return words;
}

struct zi_call_words zi_call_words_of(const struct zi_board_call *call)
{
	const char *name = zi_coll_operation_name(call->operation);
	struct zi_call_words words, dtype = zi_dtype_words_of(call->dtype);
	int bytes;

	/* 128 bytes hold the longest of each. What a peer has posted may be anything. */
	if (!zi_coll_is_collective(call->operation)) {
		(void)snprintf(words.chars, sizeof(words), "operation %u, unknown here",
		               call->operation);
		return words;
	}
	if (call->operation == ZI_COLL_BARRIER)
		bytes = snprintf(words.chars, sizeof(words), "%s", name);
	else if (zi_coll_is_counted(call->operation))
		bytes = snprintf(words.chars, sizeof(words), "%s of %s", name, dtype.chars);
	else
		bytes = snprintf(words.chars, sizeof(words), "%s of %" PRIu64 " × %s", name,
		                 call->element_count, dtype.chars);
	if (zi_coll_is_join(call->operation) && call->reduce_op < _ZI_REDUCE_COUNT)
		bytes += snprintf(words.chars + bytes, sizeof(words) - (size_t)bytes, " (%s)",
		                  zi_reduce_op_name((enum zi_reduce_op)call->reduce_op));
	else if (zi_coll_is_join(call->operation))
		bytes += snprintf(words.chars + bytes, sizeof(words) - (size_t)bytes,
		                  " (reduction %u, unknown here)", call->reduce_op);
	if (zi_coll_is_rooted(call->operation))
		(void)snprintf(words.chars + bytes, sizeof(words) - (size_t)bytes, ", root %u",
		               call->root);
	return words;
}
