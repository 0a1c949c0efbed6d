/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the fake device reorders starts and ends, the same way for the same seed, and hands each
 * task back once. Method: the order of events as a string, compared between runs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "daemon/device/device.h"

#define TASKS 8u

struct story {
	struct zi_loop *loop;
	struct dev *dev;
	char events[256]; /* "r3 " task 3 ran, "d3 " it was handed back */
	uint32_t done_count;
	bool is_freeing; /* the first `done` frees the device */
};

struct chapter {
	struct dev_task task;
	struct story *story;
	uint32_t index;
};

static void note(struct chapter *chapter, char kind)
{
	struct story *story = chapter->story;
	size_t used_bytes = strlen(story->events);

	(void)snprintf(story->events + used_bytes, sizeof(story->events) - used_bytes, "%c%u ",
	               kind, chapter->index);
}

static void chapter_run(struct dev_task *task)
{
	note(container_of(task, struct chapter, task), 'r');
}

static void chapter_done(struct dev_task *task)
{
	struct chapter *chapter = container_of(task, struct chapter, task);
	struct story *story = chapter->story;

	note(chapter, 'd');
	if (story->is_freeing)
		story->dev = dev_free(story->dev);
	story->is_freeing = false;
	if (++story->done_count == TASKS)
		zi_loop_stop(story->loop);
}

static void tell(uint64_t seed, bool is_freeing, bool is_freed_at_once, struct story *ret_story)
{
	struct chapter chapters[TASKS];

	*ret_story = (struct story){ .is_freeing = is_freeing };
	cr_assert_eq(zi_loop_new(&ret_story->loop), 0);
	cr_assert_eq(dev_fake_new(seed, &ret_story->dev), 0);
	cr_assert_gt(dev_width(ret_story->dev), 1);
	for (uint32_t i = 0; i < TASKS; i++) {
		chapters[i] = (struct chapter){
			.task = { .run = chapter_run,
			          .done = chapter_done,
			          .loop = ret_story->loop },
			.story = ret_story,
			.index = i,
		};
		dev_submit(ret_story->dev, &chapters[i].task);
	}
	cr_assert_str_eq(ret_story->events, "", "nothing runs inside submit");
	if (is_freed_at_once)
		ret_story->dev = dev_free(ret_story->dev);
	cr_assert_eq(zi_loop_run(ret_story->loop), 0);
	ret_story->dev = dev_free(ret_story->dev);
	ret_story->loop = zi_loop_free(ret_story->loop);
	for (uint32_t i = 0; i < TASKS; i++) {
		char ran[8];
		char done[8];
		const char *place;

		(void)snprintf(ran, sizeof(ran), "r%u ", i);
		(void)snprintf(done, sizeof(done), "d%u ", i);
		place = strstr(ret_story->events, ran);
		cr_assert_not_null(place);
		cr_assert_null(strstr(place + 1, ran), "once");
		place = strstr(place, done);
		cr_assert_not_null(place, "after it ran");
		cr_assert_null(strstr(place + 1, done), "once");
	}
}

Test(fake, the_same_seed_tells_the_same_story)
{
	struct story a;
	struct story b;

	for (uint64_t seed = 0; seed < 20; seed++) {
		tell(seed, false, false, &a);
		tell(seed, false, false, &b);
		cr_assert_str_eq(a.events, b.events);
	}
}

Test(fake, other_seeds_tell_other_stories_out_of_order)
{
	struct story first;
	uint32_t different_count = 0;

	tell(1, false, false, &first);
	for (uint64_t seed = 2; seed < 12; seed++) {
		struct story other;

		tell(seed, false, false, &other);
		different_count += strcmp(first.events, other.events) != 0;
		cr_assert_str_neq(other.events, "r0 d0 r1 d1 r2 d2 r3 d3 r4 d4 r5 d5 r6 d6 r7 d7 ");
	}
	cr_assert_geq(different_count, 9);
}

Test(fake, free_drains_at_once_or_from_a_done)
{
	struct story story;

	for (uint64_t seed = 0; seed < 20; seed++) {
		tell(seed, false, true, &story);
		tell(seed, true, false, &story);
	}
}

Test(fake, free_of_an_unused_device_needs_no_turn)
{
	struct dev *dev = NULL;

	cr_assert_eq(dev_fake_new(7, &dev), 0);
	cr_assert_null(dev_free(dev));
}
