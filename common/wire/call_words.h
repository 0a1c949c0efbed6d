/* SPDX-License-Identifier: Apache-2.0 */
/* What a call is, in the words that all members have, wherever they are. What a peer has posted may
 * be anything: what this zinf does not know is told by its number. Floor 1, any thread. */
#pragma once

#include "common/wire/board.h"

struct zi_call_words {
	char chars[128];
};

/* "all_reduce of 17 × f32 (sum)". */
struct zi_call_words zi_call_words_of(const struct zi_board_call *call);
/* "f32"; "dtype 9 (unknown here)". */
struct zi_call_words zi_dtype_words_of(uint32_t dtype);
