/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the intrusive list keeps its order and survives removal at any time. Method: numbered
 * nodes, read back after each operation. */
#include <criterion/criterion.h>

#include "common/base/list.h"

struct item {
	int number;
	struct zi_list link;
};

/* The list as decimal digits, from the front. */
static int digits(const struct zi_list *head)
{
	int value = 0;

	zi_list_for_each(node, head)
		value = value * 10 + container_of(node, struct item, link)->number;
	return value;
}

static void fill(struct zi_list *head, struct item *items, int count)
{
	zi_list_init(head);
	for (int i = 0; i < count; i++) {
		items[i].number = i + 1;
		zi_list_push_back(head, &items[i].link);
	}
}

Test(list, push_back_and_front_keep_order)
{
	struct item items[3], first = { .number = 9 };
	struct zi_list head;

	fill(&head, items, 3);
	zi_list_push_front(&head, &first.link);
	cr_assert_eq(digits(&head), 9123);
}

Test(list, new_head_is_empty_and_pops_null)
{
	struct zi_list head;

	zi_list_init(&head);
	cr_assert(zi_list_is_empty(&head));
	cr_assert_null(zi_list_pop_front(&head));
}

Test(list, removed_node_may_be_removed_again)
{
	struct item items[3];
	struct zi_list head;

	fill(&head, items, 3);
	zi_list_remove(&items[1].link);
	cr_assert_not(zi_list_is_linked(&items[1].link));
	zi_list_remove(&items[1].link);
	cr_assert_eq(digits(&head), 13);
}

Test(list, pop_front_takes_the_oldest_until_empty)
{
	struct item items[3];
	struct zi_list head;

	fill(&head, items, 3);
	for (int i = 0; i < 3; i++) {
		struct zi_list *node = zi_list_pop_front(&head);

		cr_assert_eq(container_of(node, struct item, link)->number, i + 1);
		cr_assert_not(zi_list_is_linked(node));
	}
	cr_assert(zi_list_is_empty(&head));
}

Test(list, safe_walk_allows_removing_the_node)
{
	struct item items[4];
	struct zi_list head;

	fill(&head, items, 4);
	zi_list_for_each_safe(node, &head)
		if (container_of(node, struct item, link)->number % 2)
			zi_list_remove(node);
	cr_assert_eq(digits(&head), 24);
}
