/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the table of kernels once: the best that CPU and operating system offer, lowered by
 * ZINF_ISA. Floor 1, any thread.
 *
 * The one idea: the choice is idempotent and every table gives the same bits, so a plain atomic
 * pointer to constant data suffices. Relaxed order is enough because the tables are initialised at
 * compile time: nothing but the pointer is published.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

#define TABLE(name, value)                                                                    \
	{                                                                                     \
		.isa = value, .widen = kern_widen_##name, .narrow = kern_narrow_##name,       \
		.reduce = kern_reduce_##name, .accumulate = kern_accumulate_##name,           \
		.finish = kern_finish_##name, .combine = kern_combine_##name,                 \
		.copy = kern_copy_##name, .norm_blocks = kern_norm_blocks_##name,             \
		.optim_step = kern_optim_step_##name,                                         \
		.optim_step_hashed = kern_optim_step_hashed_##name, .hash = kern_hash_##name, \
	}

static const struct kern_table tables[_KERN_ISA_COUNT] = {
	[KERN_ISA_REF] = TABLE(ref, KERN_ISA_REF),
#if defined(__x86_64__)
	[KERN_ISA_AVX2] = TABLE(avx2, KERN_ISA_AVX2),
	[KERN_ISA_AVX512] = TABLE(avx512, KERN_ISA_AVX512),
#endif
};

static const char *const names[_KERN_ISA_COUNT] = {
	[KERN_ISA_REF] = "ref",
	[KERN_ISA_AVX2] = "avx2",
	[KERN_ISA_AVX512] = "avx512",
};

/* NULL until the first call of a kernel. */
static _Atomic(const struct kern_table *) table_in_use;

#define LEAF1_FMA      (1u << 12)
#define LEAF1_OSXSAVE  (1u << 27)
#define LEAF1_AVX      (1u << 28)
#define LEAF1_F16C     (1u << 29)
#define LEAF7_AVX2     (1u << 5)
#define LEAF7_AVX512F  (1u << 16)
#define LEAF7_AVX512DQ (1u << 17)
#define LEAF7_AVX512BW (1u << 30)
#define LEAF7_AVX512VL (1u << 31)
#define XCR0_YMM       0x06u /* the operating system saves SSE and the upper halves of ymm … */
#define XCR0_ZMM       0xe6u /* … and mask registers and all of zmm too */

#if defined(__x86_64__)
#include <cpuid.h>

static struct kern_cpu cpu_read(void)
{
	struct kern_cpu cpu = { 0 };
	uint32_t a, b, c, d;

	if (__get_cpuid(1, &a, &b, &c, &d))
		cpu.leaf1_ecx = c;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
		cpu.leaf7_ebx = b;
	if (cpu.leaf1_ecx & LEAF1_OSXSAVE) { /* else XGETBV is an illegal instruction */
		__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
		cpu.xcr0 = a; /* no state above bit 31 concerns us */
	}
	return cpu;
}
#else
static struct kern_cpu cpu_read(void)
{
	return (struct kern_cpu){ 0 };
}
#endif

/**
 * kern_isa_of() - the best instruction set that CPU and operating system offer together
 * @cpu: what CPUID and XGETBV say
 *
 * An instruction set whose registers are not saved at a context switch is worse than none.
 */
enum kern_isa kern_isa_of(const struct kern_cpu *cpu)
{
	const uint32_t need1 = LEAF1_FMA | LEAF1_OSXSAVE | LEAF1_AVX | LEAF1_F16C;
	const uint32_t need512 = LEAF7_AVX512F | LEAF7_AVX512DQ | LEAF7_AVX512BW | LEAF7_AVX512VL;

	if ((cpu->leaf1_ecx & need1) != need1 || (cpu->xcr0 & XCR0_YMM) != XCR0_YMM)
		return KERN_ISA_REF;
	if (!(cpu->leaf7_ebx & LEAF7_AVX2))
		return KERN_ISA_REF;
	if ((cpu->leaf7_ebx & need512) != need512 || (cpu->xcr0 & XCR0_ZMM) != XCR0_ZMM)
		return KERN_ISA_AVX2;
	return KERN_ISA_AVX512;
}

static enum kern_isa isa_hardware(void)
{
	const struct kern_cpu cpu = cpu_read();

	return kern_isa_of(&cpu);
}

/**
 * kern_isa_choose() - lower what the hardware offers to what the user wishes
 * @hardware: the best instruction set that can run
 * @wish: its name as in ZINF_ISA; NULL or an unknown word is no wish (kernels do not log)
 *
 * Return: @wish, or @hardware when that is less or nothing is wished.
 */
enum kern_isa kern_isa_choose(enum kern_isa hardware, const char *wish)
{
	assert(hardware < _KERN_ISA_COUNT);

	for (enum kern_isa isa = KERN_ISA_REF; wish && isa < hardware; isa++)
		if (strcmp(wish, names[isa]) == 0)
			return isa;
	return hardware;
}

/**
 * kern_isa_best() - the instruction set that kernels use unless a test forces another
 *
 * Return: the best of CPU and operating system, lowered by ZINF_ISA.
 * Context: any thread; not a hot path (cpuid traps in a virtual machine).
 */
enum kern_isa kern_isa_best(void)
{
	return kern_isa_choose(isa_hardware(), getenv("ZINF_ISA"));
}

/**
 * kern_isa_name() - the word for an instruction set, as ZINF_ISA takes it
 * @isa: any of enum kern_isa
 */
const char *kern_isa_name(enum kern_isa isa)
{
	assert(isa < _KERN_ISA_COUNT);
	return names[isa];
}

/**
 * kern_isa_force_on() - kern_isa_force() on stated hardware, so that a test can take its refusal
 * @isa: any of enum kern_isa
 * @hardware: the best that can run
 *
 * Return: 0; -ENOTSUP when @isa is above @hardware (the choice is unchanged).
 */
int kern_isa_force_on(enum kern_isa isa, enum kern_isa hardware)
{
	assert(isa < _KERN_ISA_COUNT);

	if (isa > hardware)
		return err_origin(-ENOTSUP);
	atomic_store_explicit(&table_in_use, &tables[isa], memory_order_relaxed);
	return 0;
}

/**
 * kern_isa_force() - run on @isa from now on, in the whole process (tests and benches)
 * @isa: any of enum kern_isa; may be above ZINF_ISA, never above the hardware
 *
 * Return: 0; -ENOTSUP when CPU or operating system lack it (the choice is unchanged).
 */
int kern_isa_force(enum kern_isa isa)
{
	return err_trace(kern_isa_force_on(isa, isa_hardware()));
}

/**
 * kern_table() - the table in use
 *
 * Return: constant; never NULL, and every entry is set.
 * Context: any thread.
 */
const struct kern_table *kern_table(void)
{
	const struct kern_table *table = atomic_load_explicit(&table_in_use, memory_order_relaxed);

	if (!table) {
		const struct kern_table *best = &tables[kern_isa_best()];

		/* On failure another thread chose first, or forced: its choice stands. */
		if (atomic_compare_exchange_strong_explicit(&table_in_use, &table, best,
		                                            memory_order_relaxed,
		                                            memory_order_relaxed))
			table = best;
	}
	assert(table->optim_step);
	return table;
}
