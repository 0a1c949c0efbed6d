/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: widths and names of the plain types are those of docs/ARITHMETIC.md. Method: every value,
 * and one beyond each end. */
#include <criterion/criterion.h>
#include <signal.h>

#include "common/base/types.h"

Test(types, dtype_widths_are_the_formats)
{
	cr_assert_eq(zi_dtype_bytes(ZI_DTYPE_F32), 4);
	cr_assert_eq(zi_dtype_bytes(ZI_DTYPE_F16), 2);
	cr_assert_eq(zi_dtype_bytes(ZI_DTYPE_BF16), 2);
}

Test(types, state_bytes_are_master_rest_and_moments)
{
	const struct {
		enum zi_optimizer optimizer;
		enum zi_dtype dtype;
		uint32_t bytes;
	} cases[] = {
		{ ZI_OPTIMIZER_ADAMW, ZI_DTYPE_BF16, 10 },
		{ ZI_OPTIMIZER_ADAMW, ZI_DTYPE_F32, 8 },
		{ ZI_OPTIMIZER_ADAMW, ZI_DTYPE_F16, 12 },
		{ ZI_OPTIMIZER_ADAM, ZI_DTYPE_BF16, 10 },
		{ ZI_OPTIMIZER_SGD, ZI_DTYPE_BF16, 6 },
		{ ZI_OPTIMIZER_SGD, ZI_DTYPE_F32, 4 },
		{ ZI_OPTIMIZER_SGD, ZI_DTYPE_F16, 8 },
		{ ZI_OPTIMIZER_ADAGRAD, ZI_DTYPE_BF16, 6 },
		{ ZI_OPTIMIZER_ADAGRAD, ZI_DTYPE_F32, 4 },
		{ ZI_OPTIMIZER_LION, ZI_DTYPE_BF16, 6 },
		{ ZI_OPTIMIZER_LION, ZI_DTYPE_F32, 4 },
		{ ZI_OPTIMIZER_LION, ZI_DTYPE_F16, 8 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_eq(zi_state_element_bytes(cases[i].optimizer, cases[i].dtype),
		             cases[i].bytes, "case %zu", i);
}

Test(types, only_adam_has_two_moments)
{
	cr_assert_eq(zi_optimizer_moments(ZI_OPTIMIZER_ADAMW), 2);
	cr_assert_eq(zi_optimizer_moments(ZI_OPTIMIZER_ADAM), 2);
	for (unsigned i = ZI_OPTIMIZER_SGD; i < _ZI_OPTIMIZER_COUNT; i++)
		cr_expect_eq(zi_optimizer_moments(i), 1, "optimizer %u", i);
}

Test(types, every_value_has_a_name_and_others_a_question_mark)
{
	cr_assert_str_eq(zi_dtype_name(ZI_DTYPE_BF16), "bf16");
	cr_assert_str_eq(zi_optimizer_name(ZI_OPTIMIZER_ADAMW), "adamw");
	cr_assert_str_eq(zi_optimizer_name(ZI_OPTIMIZER_ADAGRAD), "adagrad");
	cr_assert_str_eq(zi_optimizer_name(ZI_OPTIMIZER_LION), "lion");
	cr_assert_str_eq(zi_schedule_name(ZI_SCHEDULE_SHARDED), "per_micro_batch");
	cr_assert_str_eq(zi_offload_name(ZI_OFFLOAD_NONE), "none");
	cr_assert_str_eq(zi_plane_name(ZI_PLANE_ACCUM), "reduced_grad");
	for (unsigned i = 1; i < _ZI_DTYPE_COUNT; i++)
		cr_expect_str_neq(zi_dtype_name(i), "?");
	for (unsigned i = 1; i < _ZI_OPTIMIZER_COUNT; i++)
		cr_expect_str_neq(zi_optimizer_name(i), "?");
	for (unsigned i = 1; i < _ZI_SCHEDULE_COUNT; i++)
		cr_expect_str_neq(zi_schedule_name(i), "?");
	for (unsigned i = 0; i < _ZI_OFFLOAD_COUNT; i++)
		cr_expect_str_neq(zi_offload_name(i), "?");
	for (unsigned i = 0; i < _ZI_PLANE_COUNT; i++)
		cr_expect_str_neq(zi_plane_name(i), "?");
	cr_assert_str_eq(zi_dtype_name(0), "?");
	cr_assert_str_eq(zi_dtype_name(_ZI_DTYPE_COUNT), "?");
	cr_assert_str_eq(zi_optimizer_name(0), "?");
	cr_assert_str_eq(zi_schedule_name(0), "?");
	cr_assert_str_eq(zi_offload_name(99), "?");
	cr_assert_str_eq(zi_plane_name((enum zi_plane) - 1), "?");
}

#ifndef NDEBUG
Test(types, width_of_an_unknown_dtype_asserts, .signal = SIGABRT)
{
	(void)zi_dtype_bytes(_ZI_DTYPE_COUNT);
}
#endif

/* What a rank or another node says may be no operation at all. */
Test(types, no_operation_of_reductions_is_for_no_type)
{
	for (enum zi_dtype dtype = ZI_DTYPE_F32; dtype < _ZI_DTYPE_COUNT; dtype++) {
		cr_expect_not(zi_reduce_op_is_for(0, dtype), "%s", zi_dtype_name(dtype));
		cr_expect_not(zi_reduce_op_is_for(_ZI_REDUCE_COUNT, dtype), "%s",
		              zi_dtype_name(dtype));
	}
}
