/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the table of kernels is chosen as CPU, operating system and ZINF_ISA say, and kernels run
 * in their own floating-point environment and leave the caller's untouched.
 * Method: the decision is a pure function of CPUID and XGETBV, fed with invented machines; for the
 * environment every kernel runs once in a hostile MXCSR and once in the default one.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "kernels/hash.h"
#include "kernels/norm.h"
#include "kernels/table.h"
#include "tests/kernels/data.h"

/* Bits of a CPU with everything: FMA OSXSAVE AVX F16C; AVX2 AVX512F DQ BW VL; all state saved. */
static const struct kern_cpu everything = {
	.leaf1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29,
	.leaf7_ebx = 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31,
	.xcr0 = 0xe6u,
};

Test(isa, everything_gives_avx512_and_nothing_gives_the_reference)
{
	const struct kern_cpu nothing = { 0 };

	cr_assert_eq(kern_isa_of(&everything), KERN_ISA_AVX512);
	cr_assert_eq(kern_isa_of(&nothing), KERN_ISA_REF);
}

Test(isa, each_missing_feature_lowers_the_choice)
{
	for (unsigned bit = 0; bit < 32; bit++) {
		struct kern_cpu cpu = everything;
		enum kern_isa expected = KERN_ISA_AVX512;

		cpu.leaf1_ecx &= ~(1u << bit);
		if (cpu.leaf1_ecx != everything.leaf1_ecx)
			expected = KERN_ISA_REF;
		cr_assert_eq(kern_isa_of(&cpu), expected, "leaf 1 without bit %u", bit);
		cpu = everything;
		expected = KERN_ISA_AVX512;
		cpu.leaf7_ebx &= ~(1u << bit);
		if (bit == 5)
			expected = KERN_ISA_REF;
		else if (cpu.leaf7_ebx != everything.leaf7_ebx)
			expected = KERN_ISA_AVX2;
		cr_assert_eq(kern_isa_of(&cpu), expected, "leaf 7 without bit %u", bit);
	}
}

Test(isa, registers_that_the_system_does_not_save_are_not_used)
{
	struct kern_cpu cpu = everything;

	cpu.xcr0 = 0x06u;
	cr_assert_eq(kern_isa_of(&cpu), KERN_ISA_AVX2);
	cpu.xcr0 = 0x66u;
	cr_assert_eq(kern_isa_of(&cpu), KERN_ISA_AVX2);
	cpu.xcr0 = 0x02u;
	cr_assert_eq(kern_isa_of(&cpu), KERN_ISA_REF);
}

Test(isa, a_wish_lowers_and_never_raises)
{
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX512, "ref"), KERN_ISA_REF);
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX512, "avx2"), KERN_ISA_AVX2);
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX512, "avx512"), KERN_ISA_AVX512);
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX2, "avx512"), KERN_ISA_AVX2);
	cr_assert_eq(kern_isa_choose(KERN_ISA_REF, "avx2"), KERN_ISA_REF);
}

Test(isa, an_unknown_wish_is_none)
{
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX512, NULL), KERN_ISA_AVX512);
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX512, ""), KERN_ISA_AVX512);
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX512, "REF"), KERN_ISA_AVX512);
	cr_assert_eq(kern_isa_choose(KERN_ISA_AVX2, "sve"), KERN_ISA_AVX2);
}

Test(isa, the_environment_variable_decides_the_first_call)
{
	cr_assert_eq(setenv("ZINF_ISA", "ref", 1), 0);
	cr_assert_eq(kern_isa_best(), KERN_ISA_REF);
	cr_assert_eq(kern_table()->isa, KERN_ISA_REF);
	cr_assert_eq(unsetenv("ZINF_ISA"), 0);
	cr_assert_eq(kern_table()->isa, KERN_ISA_REF, "chosen once");
}

Test(isa, force_changes_the_table_and_may_exceed_the_wish)
{
	enum kern_isa best = kern_isa_best();

	for (enum kern_isa isa = KERN_ISA_REF; isa <= best; isa++) {
		cr_assert_eq(kern_isa_force(isa), 0);
		cr_assert_eq(kern_table()->isa, isa);
	}
	cr_assert_eq(setenv("ZINF_ISA", "ref", 1), 0);
	cr_assert_eq(kern_isa_force(best), 0);
	cr_assert_eq(kern_table()->isa, best);
}

Test(isa, force_refuses_what_the_cpu_lacks_and_changes_nothing)
{
	cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
	cr_assert_eq(kern_isa_force_on(KERN_ISA_AVX512, KERN_ISA_AVX2), -ENOTSUP);
	cr_assert_eq(kern_isa_force_on(KERN_ISA_AVX2, KERN_ISA_REF), -ENOTSUP);
	cr_assert_eq(kern_table()->isa, KERN_ISA_REF);
}

Test(isa, names_are_the_words_of_the_wish)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		cr_assert_eq(kern_isa_choose(KERN_ISA_AVX512, kern_isa_name(isa)), isa);
}

static void *table_get(void *arg)
{
	(void)arg;
	return (void *)(uintptr_t)kern_table();
}

Test(isa, threads_that_call_first_together_get_one_table)
{
	pthread_t threads[8];
	void *tables[8];

	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, table_get, NULL), 0);
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(pthread_join(threads[i], &tables[i]), 0);
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(tables[i], (void *)(uintptr_t)kern_table());
}

#if defined(__x86_64__)
#define COUNT         ZI_BLOCK_ELEMENTS
#define MXCSR_DEFAULT 0x1f80u
#define MXCSR_HOSTILE 0xffc0u /* masked; flush to zero, denormals are zero, round toward zero */
#define MXCSR_TRAPS   0x0000u /* every exception traps: one that is raised kills the test */

/* Everything that all kernels write, from fixed inputs. */
struct results {
	float widened[COUNT], accum[COUNT], param[COUNT], exp_avg[COUNT], exp_avg_sq[COUNT];
	uint16_t narrowed[COUNT], narrowed_f16[COUNT], reduced[COUNT], finished[COUNT];
	double block_sum, joined;
	struct kern_optim_scalars scalars;
};

static float grads[2][COUNT];
static uint16_t halves[2][COUNT];
static struct results plain, other;

static void run_casts_and_sums(struct results *results, enum data_kind kind)
{
	const void *const sources[] = { halves[0], halves[1] };
	const struct kern_reduce_options options = { ZI_DTYPE_BF16, 1.0f / 3.0f };
	double sums[5] = { 0x1p-1060, 1.0, 1e-16, 1e-16, 3.0 };

	data_fill(halves[0], COUNT, ZI_DTYPE_BF16, kind, 3);
	data_fill(halves[1], COUNT, ZI_DTYPE_BF16, kind, 4);
	kern_widen(results->widened, halves[0], COUNT, ZI_DTYPE_F16);
	kern_narrow(results->narrowed, grads[0], COUNT, ZI_DTYPE_BF16);
	kern_narrow(results->narrowed_f16, grads[0], COUNT, ZI_DTYPE_F16);
	kern_reduce(results->reduced, sources, 2, COUNT, &options);
	kern_reduce_accumulate(results->accum, sources, 2, COUNT, true, ZI_DTYPE_BF16);
	kern_reduce_accumulate(results->accum, sources, 2, COUNT, false, ZI_DTYPE_BF16);
	kern_reduce_finish(results->finished, results->accum, COUNT, &options);
	kern_norm_blocks(&results->block_sum, grads[0], COUNT, 0.3f, ZI_DTYPE_F32);
	results->joined = kern_norm_join(sums, 5);
}

static void run_optimizer(struct results *results, enum data_kind kind)
{
	const void *const sources[] = { grads[0], grads[1] };
	const struct kern_hyper hyper = {
		.optimizer = ZI_OPTIMIZER_ADAMW,
		.lr = 1.0 / 3.0,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.beta1_power = 0.81,
		.beta2_power = 0.998001,
		.average = 0.5f,
		.unscale = 1.0f / 3.0f,
		.clip = 0.7f,
	};
	struct kern_optim_run run = {
		.param = results->param,
		.exp_avg = results->exp_avg,
		.exp_avg_sq = results->exp_avg_sq,
		.grads = sources,
		.rank_count = 2,
		.element_count = COUNT,
		.param_dtype = ZI_DTYPE_F32,
		.grad_dtype = ZI_DTYPE_F32,
	};

	data_fill(results->param, COUNT, ZI_DTYPE_F32, kind, 5);
	data_fill(results->exp_avg, COUNT, ZI_DTYPE_F32, kind, 6);
	data_fill(results->exp_avg_sq, COUNT, ZI_DTYPE_F32, kind, 7);
	memset(&results->scalars, 0, sizeof results->scalars); /* padding is compared too */
	kern_optim_prepare(&results->scalars, &hyper);
	kern_optim_step(&run, &results->scalars);
}

static void run_in(struct results *results, enum data_kind kind, uint32_t mxcsr)
{
	uint32_t after;

	memset(results, 0, sizeof *results);
	data_fill(grads[0], COUNT, ZI_DTYPE_F32, kind, 1);
	data_fill(grads[1], COUNT, ZI_DTYPE_F32, kind, 2);
	_mm_setcsr(mxcsr);
	run_casts_and_sums(results, kind);
	run_optimizer(results, kind);
	after = _mm_getcsr();
	_mm_setcsr(MXCSR_DEFAULT);
	cr_assert_eq(after, mxcsr, "MXCSR is %#x afterwards, was %#x", after, mxcsr);
}

static void compare_environments(uint32_t mxcsr)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		for (enum data_kind kind = 0; kind < _DATA_COUNT; kind++) {
			run_in(&plain, kind, MXCSR_DEFAULT);
			run_in(&other, kind, mxcsr);
			cr_assert_eq(data_difference(&plain, &other, sizeof plain), -1,
			             "%s, kind %d: bytes from %lld differ", kern_isa_name(isa),
			             kind,
			             (long long)data_difference(&plain, &other, sizeof plain));
		}
	}
}

Test(isa, results_and_mxcsr_survive_flushing_and_another_rounding)
{
	compare_environments(MXCSR_HOSTILE);
}

Test(isa, results_and_mxcsr_survive_unmasked_exceptions)
{
	compare_environments(MXCSR_TRAPS);
}

Test(isa, the_hostile_environment_would_matter)
{
	volatile float denormal = 0x1p-140f;
	volatile float doubled;

	_mm_setcsr(MXCSR_HOSTILE);
	doubled = denormal + denormal;
	_mm_setcsr(MXCSR_DEFAULT);
	cr_assert_eq(doubled, 0.0f, "otherwise the test above proves nothing");
}
#endif
