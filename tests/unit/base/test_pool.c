/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a fixed pool hands out each object once, zeroed and aligned, and knows what is out. Method:
 * take all, write to all, give back in another order; misuse must abort. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "common/base/pool.h"

Test(pool, every_object_is_distinct_zeroed_and_aligned)
{
	struct zi_pool pool;
	unsigned char *objects[5];

	cr_assert_eq(zi_pool_init(&pool, 40, 5), 0);
	for (int i = 0; i < 5; i++) {
		objects[i] = zi_pool_take(&pool);
		cr_assert_eq((uintptr_t)objects[i] % 16, 0);
		for (int b = 0; b < 40; b++)
			cr_assert_eq(objects[i][b], 0);
		memset(objects[i], i + 1, 40);
	}
	for (int i = 0; i < 5; i++)
		for (int b = 0; b < 40; b++)
			cr_assert_eq(objects[i][b], i + 1, "objects overlap");
	for (int i = 0; i < 5; i++)
		zi_pool_give(&pool, objects[i]);
	zi_pool_deinit(&pool);
}

Test(pool, exhausted_pool_answers_null_until_one_comes_back)
{
	struct zi_pool pool;
	void *a, *b;

	cr_assert_eq(zi_pool_init(&pool, 8, 2), 0);
	a = zi_pool_take(&pool);
	b = zi_pool_take(&pool);
	cr_assert_null(zi_pool_take(&pool));
	cr_assert_eq(zi_pool_used_count(&pool), 2);
	zi_pool_give(&pool, a);
	cr_assert_eq(zi_pool_used_count(&pool), 1);
	cr_assert_eq(zi_pool_take(&pool), a);
	zi_pool_give(&pool, a);
	zi_pool_give(&pool, b);
	zi_pool_deinit(&pool);
}

Test(pool, object_is_zeroed_again_when_it_is_taken_again)
{
	struct zi_pool pool;
	uint64_t *object;

	cr_assert_eq(zi_pool_init(&pool, sizeof(*object), 1), 0);
	object = zi_pool_take(&pool);
	*object = 42;
	zi_pool_give(&pool, object);
	object = zi_pool_take(&pool);
	cr_assert_eq(*object, 0);
	zi_pool_give(&pool, object);
	zi_pool_deinit(&pool);
}

Test(pool, cache_line_objects_stay_on_cache_lines)
{
	struct zi_pool pool;
	void *objects[3];

	cr_assert_eq(zi_pool_init(&pool, 192, 3), 0);
	for (int i = 0; i < 3; i++) {
		objects[i] = zi_pool_take(&pool);
		cr_assert_eq((uintptr_t)objects[i] % 64, 0);
	}
	for (int i = 0; i < 3; i++)
		zi_pool_give(&pool, objects[i]);
	zi_pool_deinit(&pool);
}

Test(pool, more_memory_than_an_address_space_is_enomem)
{
	struct zi_pool pool = { .capacity_count = 77 };

	cr_assert_eq(zi_pool_init(&pool, UINT32_MAX - 15, UINT32_MAX), -ENOMEM);
	cr_assert_eq(zi_pool_init(&pool, UINT32_MAX, 1), -ENOMEM, "the stride is 32 bits");
	cr_assert_eq(pool.capacity_count, 77, "untouched on failure");
}

Test(pool, zeroed_pool_may_be_deinitialised)
{
	struct zi_pool pool = { 0 };

	zi_pool_deinit(&pool);
	cr_assert_null(pool.base);
}

#ifndef NDEBUG
Test(pool, leaving_with_an_object_out_asserts, .signal = SIGABRT)
{
	struct zi_pool pool;

	cr_assert_eq(zi_pool_init(&pool, 8, 2), 0);
	(void)zi_pool_take(&pool);
	zi_pool_deinit(&pool);
}

Test(pool, giving_a_foreign_pointer_asserts, .signal = SIGABRT)
{
	struct zi_pool pool;
	char *object;

	cr_assert_eq(zi_pool_init(&pool, 32, 2), 0);
	object = zi_pool_take(&pool);
	zi_pool_give(&pool, object + 8);
}

Test(pool, giving_more_than_was_taken_asserts, .signal = SIGABRT)
{
	struct zi_pool pool;
	void *object;

	cr_assert_eq(zi_pool_init(&pool, 32, 1), 0);
	object = zi_pool_take(&pool);
	zi_pool_give(&pool, object);
	zi_pool_give(&pool, object);
}
#endif

#ifdef ZI_DEBUG
Test(pool, giving_twice_asserts_in_debug_builds, .signal = SIGABRT)
{
	struct zi_pool pool;
	void *object;

	cr_assert_eq(zi_pool_init(&pool, 32, 3), 0);
	object = zi_pool_take(&pool);
	(void)zi_pool_take(&pool);
	zi_pool_give(&pool, object);
	zi_pool_give(&pool, object);
}
#endif
