/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_case.h. */
#include "tests/kernels/cuda_case.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "tests/kernels/cuda_case_private.h"

#define CASE_GAP_BYTES   64u
#define CASE_TABLE_BYTES 2048u /* of the memory's start: its addresses are not compared */
#define CASE_JOIN_FACTOR 5u    /* elements of other kernels for each node of a tree */

bool case_is_optim(const struct cuda_case *c)
{
	return c->kernel >= KERN_CUDA_adamw_f32;
}

enum zi_optimizer case_optimizer(const struct cuda_case *c)
{
	return (enum zi_optimizer)(ZI_OPTIMIZER_ADAMW + (c->kernel - KERN_CUDA_adamw_f32) / 3);
}

enum zi_dtype case_param_dtype(const struct cuda_case *c)
{
	return (enum zi_dtype)(ZI_DTYPE_F32 + (c->kernel - KERN_CUDA_adamw_f32) % 3);
}

/* What a case is, for the message of an assert. */
static const char *case_text(const struct cuda_case *c)
{
	static char text[256];

	(void)snprintf(text, sizeof(text),
	               "%s, dtype %d, gradients %d of %u ranks, reduced %d, in place %d, first %d, "
	               "nesterov %d, stretches %d, kind %d, %llu elements, seed %llu",
	               kern_cuda_name(c->kernel), c->dtype, c->grad_dtype, c->rank_count,
	               c->is_reduced, c->is_in_place, c->is_first, c->is_nesterov, c->has_stretches,
	               c->kind, (unsigned long long)c->element_count, (unsigned long long)c->seed);
	return text;
}

/* A case of @kernel whose other fields are drawn. */
struct cuda_case case_draw(enum kern_cuda_kernel kernel, uint64_t seed)
{
	static const uint32_t ranks[] = { 1, 1, 2, 3, 4, 5, 8, 9 };
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 99u, bits;
	struct cuda_case c = { .kernel = kernel, .seed = seed };

	(void)data_random(&state); /* Small seeds are alike at first. */
	bits = data_random(&state) >> 16;
	c.kind = (enum data_kind)(bits % _DATA_COUNT);
	c.dtype = bits >> 4 & 1 ? ZI_DTYPE_F16 : ZI_DTYPE_BF16;
	if (kernel == KERN_CUDA_finish && (bits >> 5) % 3 == 0)
		c.dtype = ZI_DTYPE_F32;
	c.grad_dtype = (enum zi_dtype)(ZI_DTYPE_F32 + (bits >> 8) % 3);
	c.rank_count = ranks[bits >> 12 & 7];
	c.is_in_place = bits >> 16 & 1;
	c.is_first = bits >> 17 & 1;
	c.is_nesterov = bits >> 18 & 1;
	c.has_copy = bits >> 19 & 1;
	c.has_stretches = bits >> 20 & 1;
	c.is_reduced = (kernel == KERN_CUDA_norm_blocks || case_is_optim(&c)) && bits >> 21 & 1;
	if (c.is_reduced)
		c.rank_count = 1;
	c.element_count = 1 + data_random(&state) % 20000;
	if (kernel == KERN_CUDA_norm_join)
		c.element_count = c.element_count / CASE_JOIN_FACTOR + 1;
	if (case_is_optim(&c)) {
		/* Pairs that a job can have. */
		if (case_param_dtype(&c) == ZI_DTYPE_F16 && c.grad_dtype == ZI_DTYPE_BF16)
			c.grad_dtype = ZI_DTYPE_F16;
		if (case_param_dtype(&c) != ZI_DTYPE_F16 && c.grad_dtype == ZI_DTYPE_F16)
			c.grad_dtype = ZI_DTYPE_BF16;
	}
	return c;
}

/* ---- memory ---- */

char *case_memory_new(void)
{
	char *memory = aligned_alloc(64, CASE_BYTES);

	cr_assert(memory);
	return memory;
}

void *case_take(struct case_place *place, uint64_t bytes, uint64_t *ret_address)
{
	void *taken = place->memory + place->used_bytes;

	*ret_address = place->base + place->used_bytes;
	place->used_bytes += (bytes + 2 * CASE_GAP_BYTES - 1) / CASE_GAP_BYTES * CASE_GAP_BYTES;
	cr_assert_leq(place->used_bytes, CASE_BYTES);
	return taken;
}

void *case_take_table(struct case_place *place, uint64_t bytes, uint64_t *ret_address)
{
	void *taken = place->memory + place->table_bytes;

	*ret_address = place->base + place->table_bytes;
	place->table_bytes += (bytes + CASE_GAP_BYTES - 1) / CASE_GAP_BYTES * CASE_GAP_BYTES;
	cr_assert_leq(place->table_bytes, CASE_TABLE_BYTES);
	return taken;
}

void *case_take_array(struct case_place *place, uint64_t count, enum zi_dtype dtype,
                      enum data_kind kind, uint64_t *ret_address)
{
	void *taken = case_take(place, count * zi_dtype_bytes(dtype), ret_address);

	data_fill(taken, count, dtype, kind, ++place->seed);
	return taken;
}

uint64_t *case_take_gradient(const struct cuda_case *c, uint64_t count, struct case_place *place,
                             struct kern_cuda_gradient *ret_gradient)
{
	struct kern_cuda_gradient gradient = {
		.source_count = c->rank_count,
		.dtype = c->grad_dtype,
		.is_reduced = c->is_reduced,
		.average = (float)(1.0 / c->rank_count),
	};
	uint64_t *sources =
		case_take_table(place, c->rank_count * sizeof(*sources), &gradient.sources);

	for (uint32_t rank = 0; rank < c->rank_count; rank++)
		(void)case_take_array(place, count, c->grad_dtype, c->kind, &sources[rank]);
	*ret_gradient = gradient;
	return sources;
}

static void case_expect_join(const struct kern_cuda_norm_join_args *args)
{
	const double *nodes = (double *)(uintptr_t)args->nodes;
	double *joined = (double *)(uintptr_t)args->joined, group[KERN_CUDA_JOIN_NODES];

	for (uint64_t i = 0; i < args->element_count; i += KERN_CUDA_JOIN_NODES) {
		uint64_t count = args->element_count - i;

		count = count < KERN_CUDA_JOIN_NODES ? count : KERN_CUDA_JOIN_NODES;
		memcpy(group, nodes + i, count * sizeof(*group));
		*joined++ = kern_norm_join(group, count);
	}
}

/* ---- the case ---- */

void case_fill(const struct cuda_case *c, char *memory, uint64_t base, union cuda_args *args)
{
	struct case_place place = { memory, base, 0, CASE_TABLE_BYTES, c->seed * 1000 };
	const uint64_t count = c->element_count;
	const uint64_t *sources;

	memset(memory, DATA_GUARD, CASE_BYTES);
	memset(args, 0, sizeof(*args));
	args->widen.element_count = count; /* Or tile_count: all begin with it. */
	switch (c->kernel) {
	case KERN_CUDA_widen:
		args->widen.dtype = c->dtype;
		(void)case_take_array(&place, count, c->dtype, c->kind, &args->widen.source);
		(void)case_take(&place, count * 4, &args->widen.target);
		return;
	case KERN_CUDA_narrow:
		args->narrow.dtype = c->dtype;
		(void)case_take_array(&place, count, ZI_DTYPE_F32, c->kind, &args->narrow.source);
		(void)case_take(&place, count * 2, &args->narrow.target);
		return;
	case KERN_CUDA_reduce:
		sources = case_take_gradient(c, count, &place, &args->reduce.gradient);
		(void)case_take(&place, count * 4, &args->reduce.target);
		if (c->is_in_place)
			args->reduce.target = sources[c->seed % c->rank_count];
		return;
	case KERN_CUDA_accumulate:
		args->accumulate.is_first = c->is_first;
		(void)case_take_gradient(c, count, &place, &args->accumulate.gradient);
		(void)case_take_array(&place, count, ZI_DTYPE_F32, c->kind,
		                      &args->accumulate.accum);
		return;
	case KERN_CUDA_finish:
		args->finish.dtype = c->dtype;
		args->finish.average = 0.3f;
		(void)case_take_array(&place, count, ZI_DTYPE_F32, c->kind, &args->finish.accum);
		(void)case_take(&place, count * 4, &args->finish.target);
		if (c->is_in_place && c->dtype == ZI_DTYPE_F32)
			args->finish.target = args->finish.accum;
		return;
	case KERN_CUDA_norm_blocks:
		case_fill_norm(c, &place, &args->norm_blocks);
		return;
	case KERN_CUDA_norm_join:
		(void)case_take_array(&place, count, ZI_DTYPE_F64, c->kind, &args->norm_join.nodes);
		(void)case_take(&place, (count / KERN_CUDA_JOIN_NODES + 1) * 8,
		                &args->norm_join.joined);
		return;
	default:
		case_fill_optim(c, &place, &args->optim);
	}
}

/* Of rank @rank: the addresses of arrays. */
static void case_sources(const struct cuda_case *c, const struct kern_cuda_gradient *gradient,
                         const void **ret_sources)
{
	const uint64_t *sources = (void *)(uintptr_t)gradient->sources;

	for (uint32_t rank = 0; rank < c->rank_count; rank++)
		ret_sources[rank] = (void *)(uintptr_t)sources[rank];
}

void case_expect(const struct cuda_case *c, const union cuda_args *args)
{
	const struct kern_reduce_options finish = { c->dtype, args->finish.average };
	const struct kern_reduce_options reduce = { c->grad_dtype, (float)(1.0 / c->rank_count) };
	const void *sources[CASE_RANKS_MAX] = { NULL };

	switch (c->kernel) {
	case KERN_CUDA_widen:
		kern_widen((float *)(uintptr_t)args->widen.target,
		           (void *)(uintptr_t)args->widen.source, c->element_count, c->dtype);
		return;
	case KERN_CUDA_narrow:
		kern_narrow((void *)(uintptr_t)args->narrow.target,
		            (float *)(uintptr_t)args->narrow.source, c->element_count, c->dtype);
		return;
	case KERN_CUDA_reduce:
		case_sources(c, &args->reduce.gradient, sources);
		kern_reduce((void *)(uintptr_t)args->reduce.target, sources, c->rank_count,
		            c->element_count, &reduce);
		return;
	case KERN_CUDA_accumulate:
		case_sources(c, &args->accumulate.gradient, sources);
		kern_reduce_accumulate((float *)(uintptr_t)args->accumulate.accum, sources,
		                       c->rank_count, c->element_count, c->is_first, c->grad_dtype);
		return;
	case KERN_CUDA_finish:
		kern_reduce_finish((void *)(uintptr_t)args->finish.target,
		                   (float *)(uintptr_t)args->finish.accum, c->element_count,
		                   &finish);
		return;
	case KERN_CUDA_norm_blocks:
		case_expect_norm(c, &args->norm_blocks);
		return;
	case KERN_CUDA_norm_join:
		case_expect_join(&args->norm_join);
		return;
	default:
		case_expect_optim(c, &args->optim);
	}
}

void case_compare(const struct cuda_case *c, const char *expected, const char *found)
{
	const uint64_t bytes = CASE_BYTES - CASE_TABLE_BYTES;

	expected += CASE_TABLE_BYTES;
	found += CASE_TABLE_BYTES;
	if (memcmp(expected, found, bytes) != 0)
		cr_assert_fail("%s: byte %lld differs", case_text(c),
		               (long long)data_difference(expected, found, bytes));
}
