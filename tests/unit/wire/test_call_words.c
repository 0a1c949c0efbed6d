/* SPDX-License-Identifier: Apache-2.0 */
/* What a call is in words: each operation has what it needs to be told from another one, and what
 * no zinf posts is told by its numbers. */
#include <criterion/criterion.h>

#include "common/base/types.h"
#include "common/wire/call_words.h"

Test(call_words, of_an_operation_are_what_tells_it_from_another)
{
	static const struct {
		struct zi_board_call call;
		const char *words;
	} cases[] = {
		{ { .operation = ZI_COLL_BARRIER, .element_count = 7 }, "barrier" },
		{ { .operation = ZI_COLL_ALL_REDUCE,
		    .dtype = ZI_DTYPE_F32,
		    .reduce_op = ZI_REDUCE_SUM,
		    .element_count = 17 },
		  "all_reduce of 17 × f32 (sum)" },
		{ { .operation = ZI_COLL_REDUCE,
		    .dtype = ZI_DTYPE_I64,
		    .reduce_op = ZI_REDUCE_MAX,
		    .root = 3,
		    .element_count = UINT64_MAX },
		  "reduce of 18446744073709551615 × i64 (max), root 3" },
		{ { .operation = ZI_COLL_SCATTER,
		    .dtype = ZI_DTYPE_U8,
		    .reduce_op = ZI_REDUCE_MAX,
		    .root = 1 },
		  "scatter of 0 × u8, root 1" },
		{ { .operation = ZI_COLL_ALL_TO_ALLV, .dtype = ZI_DTYPE_BF16 },
		  "all_to_allv of bf16" },
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_str_eq(zi_call_words_of(&cases[i].call).chars, cases[i].words);
}

/* The longest that a board's bytes can ask for must fit as well. */
Test(call_words, of_what_is_not_known_here_are_its_numbers)
{
	static const struct zi_board_call reduction = { .operation = ZI_COLL_REDUCE_SCATTER,
		                                        .dtype = 255,
		                                        .reduce_op = 255,
		                                        .element_count = UINT64_MAX };
	static const struct zi_board_call longest = { .operation = ZI_COLL_REDUCE,
		                                      .dtype = 255,
		                                      .reduce_op = 255,
		                                      .root = UINT32_MAX,
		                                      .element_count = UINT64_MAX };
	static const struct zi_board_call send = { .operation = ZI_COLL_SEND };

	cr_expect_str_eq(zi_call_words_of(&reduction).chars,
	                 "reduce_scatter of 18446744073709551615 × dtype 255 (unknown here) "
	                 "(reduction 255, unknown here)");
	cr_expect_str_eq(zi_call_words_of(&longest).chars,
	                 "reduce of 18446744073709551615 × dtype 255 (unknown here) "
	                 "(reduction 255, unknown here), root 4294967295");
	cr_expect_str_eq(zi_call_words_of(&send).chars, "operation 11, unknown here");
	cr_expect_str_eq(zi_dtype_words_of(ZI_DTYPE_F16).chars, "f16");
	cr_expect_str_eq(zi_dtype_words_of(0).chars, "dtype 0 (unknown here)");
}
