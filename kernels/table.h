/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: the table of one instruction set's functions, what all of them share, and
 * the floating-point environment they run in. Floor 1.
 *
 * A public function (reduce.c, norm.c, …) checks its arguments, enters the environment, calls
 * through the table and leaves. The indirect call is what makes this safe: no compiler models
 * MXCSR, but none moves arithmetic across a call that it cannot see into.
 */
#pragma once

#include <math.h>

#include "common/base/types.h"
#include "kernels/cast.h"
#include "kernels/combine.h"
#include "kernels/element/norm.h"
#include "kernels/hash.h"
#include "kernels/kernels.h"
#include "kernels/optim_hashed.h"
#include "kernels/reduce.h"

#ifdef __FAST_MATH__
#error "docs/ARITHMETIC.md defines every bit: no -ffast-math"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "docs/ARITHMETIC.md rounds every operation: no excess precision"
#endif

struct kern_table {
	enum kern_isa isa;
	void (*widen)(float *target, const void *source, uint64_t element_count,
	              enum zi_dtype dtype);
	void (*narrow)(void *target, const float *source, uint64_t element_count,
	               enum zi_dtype dtype);
	void (*reduce)(void *target, const void *const *sources, uint32_t rank_count,
	               uint64_t element_count, const struct kern_reduce_options *options);
	void (*accumulate)(float *accum, const void *const *sources, uint32_t rank_count,
	                   uint64_t element_count, bool is_first, enum zi_dtype dtype);
	void (*finish)(void *target, const float *accum, uint64_t element_count,
	               const struct kern_reduce_options *options);
	void (*combine)(const struct kern_combine_run *run);
	void (*copy)(void *const *targets, uint32_t target_count, const void *source,
	             uint64_t bytes, bool is_streaming);
	void (*norm_blocks)(double *block_sums, const void *source, uint64_t element_count,
	                    float unscale, enum zi_dtype dtype);
	void (*optim_step)(const struct kern_optim_run *run,
	                   const struct kern_optim_scalars *scalars);
	void (*optim_step_hashed)(const struct kern_optim_run *run,
	                          const struct kern_optim_scalars *scalars,
	                          struct kern_optim_hashes *ret_hashes);
	uint64_t (*hash)(const void *data, uint64_t bytes);
};

/* The table in use; chosen at the first call. Any thread. */
const struct kern_table *kern_table(void);
/* The instruction set to use on hardware that offers @hardware, when the user wishes @wish
 * ("ref", "avx2", "avx512"; NULL or anything else: no wish). Pure. */
enum kern_isa kern_isa_choose(enum kern_isa hardware, const char *wish);

/* What CPUID and XGETBV say; all zero where there are none. */
struct kern_cpu {
	uint32_t leaf1_ecx;
	uint32_t leaf7_ebx;
	uint32_t xcr0;
};

enum kern_isa kern_isa_of(const struct kern_cpu *cpu);
int kern_isa_force_on(enum kern_isa isa, enum kern_isa hardware);

/* Each instruction set defines the functions of its table under these names. */
#define KERN_DECLARE(isa)                                                                          \
	void kern_widen_##isa(float *target, const void *source, uint64_t element_count,           \
	                      enum zi_dtype dtype);                                                \
	void kern_narrow_##isa(void *target, const float *source, uint64_t element_count,          \
	                       enum zi_dtype dtype);                                               \
	void kern_reduce_##isa(void *target, const void *const *sources, uint32_t rank_count,      \
	                       uint64_t element_count, const struct kern_reduce_options *options); \
	void kern_accumulate_##isa(float *accum, const void *const *sources, uint32_t rank_count,  \
	                           uint64_t element_count, bool is_first, enum zi_dtype dtype);    \
	void kern_finish_##isa(void *target, const float *accum, uint64_t element_count,           \
	                       const struct kern_reduce_options *options);                         \
	void kern_combine_##isa(const struct kern_combine_run *run);                               \
	void kern_copy_##isa(void *const *targets, uint32_t target_count, const void *source,      \
	                     uint64_t bytes, bool is_streaming);                                   \
	void kern_norm_blocks_##isa(double *block_sums, const void *source,                        \
	                            uint64_t element_count, float unscale, enum zi_dtype dtype);   \
	void kern_optim_step_##isa(const struct kern_optim_run *run,                               \
	                           const struct kern_optim_scalars *scalars);                      \
	void kern_optim_step_hashed_##isa(const struct kern_optim_run *run,                        \
	                                  const struct kern_optim_scalars *scalars,                \
	                                  struct kern_optim_hashes *ret_hashes);                   \
	uint64_t kern_hash_##isa(const void *data, uint64_t bytes)

KERN_DECLARE(ref);
KERN_DECLARE(avx2);
KERN_DECLARE(avx512);

/* The arithmetic of kern_optim_prepare(), to be called inside the environment (optim_ref.c). */
void kern_optim_prepare_ref(struct kern_optim_scalars *ret_scalars, const struct kern_hyper *hyper);

/*
 * Rounds to nearest even, no flush to zero, no denormals-are-zero, no traps; restored exactly, so
 * that not even a sticky flag tells the caller that a kernel ran.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#define KERN_MXCSR 0x1f80u /* all exceptions masked, everything else zero: the power-on value */

typedef uint32_t kern_env;

static inline void kern_env_enter(kern_env *ret_saved)
{
	*ret_saved = _mm_getcsr();
	_mm_setcsr(KERN_MXCSR);
}

static inline void kern_env_leave(const kern_env *saved)
{
	_mm_setcsr(*saved);
}
#else
#include <fenv.h>

typedef fenv_t kern_env;

static inline void kern_env_enter(kern_env *ret_saved)
{
	(void)fegetenv(ret_saved); /* fails only where there is no environment to change */
	(void)fesetenv(FE_DFL_ENV);
}

static inline void kern_env_leave(const kern_env *saved)
{
	(void)fesetenv(saved);
}
#endif
