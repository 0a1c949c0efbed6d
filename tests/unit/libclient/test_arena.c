/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: places of an arena are whole pages, never overlap, never lie outside, and come back; what
 * does not fit is refused with figures. Method: by hand, and seeded random calls beside a plain map
 * of pages. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "libclient/coll/arena.h"

#define PAGE  4096u
#define PAGES 64u

Test(arena, a_place_is_the_first_gap_that_is_large_enough)
{
	struct zi_arena arena;
	uint64_t a, b, c, d;

	zi_arena_init(&arena, 2 * PAGE, 10 * PAGE);
	cr_assert_eq(zi_arena_alloc(&arena, 1, &a, NULL), 0);
	cr_assert_eq(zi_arena_alloc(&arena, 2 * PAGE, &b, NULL), 0);
	cr_assert_eq(zi_arena_alloc(&arena, PAGE + 1, &c, NULL), 0);
	cr_assert_eq(a, 2 * PAGE);
	cr_assert_eq(b, 3 * PAGE);
	cr_assert_eq(c, 5 * PAGE);
	cr_assert_eq(zi_arena_free(&arena, a), 0);
	cr_assert_eq(zi_arena_alloc(&arena, 2 * PAGE, &d, NULL), 0);
	cr_assert_eq(d, 7 * PAGE, "one page in front is too small");
	cr_assert_eq(zi_arena_free(&arena, b), 0);
	cr_assert_eq(zi_arena_alloc(&arena, 3 * PAGE, &d, NULL), 0);
	cr_assert_eq(d, 2 * PAGE, "two holes are one");
	zi_arena_deinit(&arena);
}

Test(arena, the_last_page_is_given_out_and_the_next_is_not)
{
	struct zi_text text;
	struct zi_arena arena;
	uint64_t a = 7, b = 7;

	zi_arena_init(&arena, PAGE, 4 * PAGE);
	cr_assert_eq(zi_arena_alloc(&arena, 3 * PAGE + 1, &a, &text), -ENOSPC);
	cr_assert_eq(a, 7, "untouched");
	cr_assert_eq(zi_arena_alloc(&arena, 3 * PAGE, &a, NULL), 0);
	cr_assert_eq(zi_arena_alloc(&arena, 1, &b, &text), -ENOSPC);
	cr_assert(strstr(text.chars, "4 KiB are asked for"), "%s", text.chars);
	cr_assert(strstr(text.chars, "arena of 12 KiB only 0 B are free"), "%s", text.chars);
	cr_assert_eq(zi_arena_free(&arena, a), 0);
	cr_assert_eq(zi_arena_free(&arena, a), -EINVAL, "once");
	cr_assert_eq(zi_arena_alloc(&arena, 0, &a, &text), -EINVAL);
	cr_assert_eq(zi_arena_alloc(&arena, UINT64_MAX, &a, &text), -ENOSPC);
	zi_arena_deinit(&arena);
}

Test(arena, holes_are_told)
{
	struct zi_text text;
	struct zi_arena arena;
	uint64_t a, b, c;

	zi_arena_init(&arena, 0, 5 * PAGE);
	cr_assert_eq(zi_arena_alloc(&arena, PAGE, &a, NULL), 0);
	cr_assert_eq(zi_arena_alloc(&arena, PAGE, &b, NULL), 0);
	cr_assert_eq(zi_arena_alloc(&arena, PAGE, &c, NULL), 0);
	cr_assert_eq(zi_arena_free(&arena, b), 0);
	cr_assert_eq(zi_arena_alloc(&arena, 3 * PAGE, &b, &text), -ENOSPC);
	cr_assert(strstr(text.chars, "only 12 KiB are free, in holes of at most 8 KiB"), "%s",
	          text.chars);
	zi_arena_deinit(&arena);
}

static uint64_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

Test(arena, random_calls_give_what_a_map_of_pages_says)
{
	bool is_taken[PAGES] = { false };
	uint64_t places[PAGES], bytes[PAGES], state = 11;
	struct zi_arena arena;
	uint32_t count = 0;

	zi_arena_init(&arena, 0, PAGES * PAGE);
	for (uint32_t round = 0; round < 20000; round++) {
		uint32_t pages = 1 + draw(&state) % 9, place = 0, run = 0;
		uint64_t offset;
		int r;

		if (count && draw(&state) % 2) {
			uint32_t index = draw(&state) % count;

			cr_assert_eq(zi_arena_free(&arena, places[index]), 0);
			memset(&is_taken[places[index] / PAGE], 0, bytes[index]);
			places[index] = places[--count];
			bytes[index] = bytes[count];
			continue;
		}
		for (place = 0; place < PAGES && run < pages; place++)
			run = is_taken[place] ? 0 : run + 1;
		r = zi_arena_alloc(&arena, pages * PAGE - draw(&state) % PAGE, &offset, NULL);
		cr_assert_eq(r, run < pages ? -ENOSPC : 0);
		if (r)
			continue;
		cr_assert_eq(offset / PAGE, place - pages);
		memset(&is_taken[offset / PAGE], 1, pages);
		places[count] = offset;
		bytes[count++] = pages;
	}
	zi_arena_deinit(&arena);
}
