/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked list. A head is an empty list when it points at itself; a node that is in
 * no list points at itself too, so zi_list_remove() may be called twice. Floor 0; the list belongs
 * to whoever owns its head.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/base/cleanup.h"

struct zi_list {
	struct zi_list *next;
	struct zi_list *prev;
};

static inline void zi_list_init(struct zi_list *node)
{
	node->next = node;
	node->prev = node;
}

static inline bool zi_list_is_empty(const struct zi_list *head)
{
	return head->next == head;
}

static inline bool zi_list_is_linked(const struct zi_list *node)
{
	return node->next != node;
}

static inline void zi_list_push_back(struct zi_list *head, struct zi_list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void zi_list_push_front(struct zi_list *head, struct zi_list *node)
{
	zi_list_push_back(head->next, node);
}

static inline void zi_list_remove(struct zi_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	zi_list_init(node);
}

/* The first node, unlinked; NULL when the list is empty. */
static inline struct zi_list *zi_list_pop_front(struct zi_list *head)
{
	struct zi_list *node = head->next;

	if (node == head)
		return NULL;
	zi_list_remove(node);
	return node;
}

#define zi_list_for_each(node, head) \
	for (struct zi_list *node = (head)->next; node != (head); node = node->next)
/* As above; the body may remove (and free) the node it looks at. */
#define zi_list_for_each_safe(node, head)                                                    \
	for (struct zi_list *node = (head)->next, *node##_next = node->next; node != (head); \
	     node = node##_next, node##_next = node->next)
