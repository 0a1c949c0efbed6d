/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, types and members for people; see words.h. Floor 2. */
#include "libclient/coll/node/words.h"

#include <inttypes.h>
#include <stdio.h>

#include "libclient/coll/node/members.h"

struct zi_node_words zi_node_dtype_words(uint32_t dtype)
{
	struct zi_node_words words;

	if (dtype >= ZI_DTYPE_F32 && dtype < _ZI_DTYPE_COUNT)
		(void)snprintf(words.chars, sizeof(words), "%s",
		               zi_dtype_name((enum zi_dtype)dtype)); /* Fits, as does the next. */
	else
		(void)snprintf(words.chars, sizeof(words), "dtype %u (unknown here)", dtype);
	return words;
}

struct zi_node_words zi_node_name(const struct zi_node_group *group, uint32_t member)
{
	struct zi_node_words words;

	if (group->ranks && member < zi_node_members(group))
		(void)snprintf(words.chars, sizeof(words), "member %u (rank %u)", member,
		               group->ranks[member]); /* Fits, as does the next. */
	else
		(void)snprintf(words.chars, sizeof(words), "member %u", member);
	return words;
}

struct zi_node_words zi_node_words_of(const struct zi_board_call *call)
{
	const char *name = zi_coll_operation_name(call->operation);
	struct zi_node_words words, dtype = zi_node_dtype_words(call->dtype);
	int bytes;

	/* 96 bytes hold the longest of each. What a peer has posted may be anything. */
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

struct zi_board_call zi_node_board_call(const struct zi_node_call *call)
{
	struct zi_board_call said = { .operation = (uint8_t)call->operation,
		                      .source = ZI_BOARD_NOWHERE,
		                      .target = ZI_BOARD_NOWHERE };

	if (!zi_coll_has_data(call->operation))
		return said;
	said.dtype = (uint8_t)call->dtype;
	if (!zi_coll_is_counted(call->operation))
		said.element_count = call->element_count;
	if (zi_coll_is_join(call->operation))
		said.reduce_op = (uint8_t)call->reduce_op;
	if (zi_coll_is_rooted(call->operation))
		said.root = call->root;
	return said;
}
