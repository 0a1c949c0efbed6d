/* SPDX-License-Identifier: Apache-2.0 */
/* Members for people (calls: common/wire/call_words.h). Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

struct zi_node_words {
	char chars[96];
};

/* "member 2 (rank 5)"; where ranks are not known "member 2". */
struct zi_node_words zi_node_name(const struct zi_node_group *group, uint32_t member);
/* What of @call is equal on all members. */
struct zi_board_call zi_node_board_call(const struct zi_node_call *call);
