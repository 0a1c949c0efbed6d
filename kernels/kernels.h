/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which instruction set the kernels run on. Every operation is one function in its header
 * (reduce.h, norm.h, optim.h, cast.h, hash.h) that calls through a table chosen once; all tables
 * give the same bits (docs/ARITHMETIC.md), so the choice is speed only. Floor 1. No allocation, no
 * logging, no I/O, no waiting; any thread.
 *
 * Common conventions: outputs, then inputs, then counts, then options. Counts are elements. Arrays
 * of whole blocks (ZI_BLOCK_ELEMENTS) unless a function's comment says otherwise; pointers aligned
 * to 64 bytes for speed, to the element for correctness.
 */
#pragma once

enum kern_isa {
	KERN_ISA_REF = 0,    /* plain C, the definition */
	KERN_ISA_AVX2 = 1,   /* AVX2 + FMA + F16C */
	KERN_ISA_AVX512 = 2, /* F, BW, DQ, VL */
	_KERN_ISA_COUNT,
};

/* The best of CPU and operating system; ZINF_ISA=ref|avx2|avx512 lowers it, never raises. */
enum kern_isa kern_isa_best(void);
const char *kern_isa_name(enum kern_isa isa);
/* Tests and benches: run on @isa from now on (process-wide). -ENOTSUP when the CPU lacks it. */
int kern_isa_force(enum kern_isa isa);
