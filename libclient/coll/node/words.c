/* SPDX-License-Identifier: Apache-2.0 */
/* Members for people, and calls for all members; see words.h. Floor 2. */
#include "libclient/coll/node/words.h"

#include <stdio.h>

#include "libclient/coll/node/members.h"

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
