/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, types and members for people. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

struct zi_node_words {
	char chars[96];
};

/* "all_reduce of 17 × f32 (sum)"; what this libzinf does not know is told by its number. */
struct zi_node_words zi_node_words_of(const struct zi_board_call *call);
/* "f32"; "dtype 9 (unknown here)". */
struct zi_node_words zi_node_dtype_words(uint32_t dtype);
/* "member 2 (rank 5)"; where ranks are not known "member 2". */
struct zi_node_words zi_node_name(const struct zi_node_group *group, uint32_t member);
/* What of @call is equal on all members. */
struct zi_board_call zi_node_board_call(const struct zi_node_call *call);
