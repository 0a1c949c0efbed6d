/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's keys and values: a bounded hash table of copies. Floor 3. It belongs to the server's
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

#define STORE_BUCKETS 1024u /* a power of two; eight keys to a chain at the limit */

struct store_entry {
	struct store_entry *next;
	const void *owner;               /* NULL: nobody's */
	uint32_t key_bytes, value_bytes; /* NUL included; as given */
	char bytes[];                    /* key, NUL, value */
};

struct store_table {
	struct store_entry *buckets[STORE_BUCKETS];
	uint32_t entry_count;
	uint64_t charged_bytes;
};

/* Embedded by its owner. What is left in it goes with it. */
void store_table_init(struct store_table *table);
void store_table_deinit(struct store_table *table);

/* Return: the value's bytes, which stay until the key is set or deleted; NULL: not there. */
const void *store_table_get(const struct store_table *table, const char *key,
                            uint32_t *ret_value_bytes);
/* Copies. Return: 0, -ENOSPC with @text (the table is full), -ENOMEM. */
int store_table_set(struct store_table *table, const char *key, const void *value,
                    uint32_t value_bytes, struct zi_text *text);
/* @key, which is there, goes with @owner; until it is set anew. */
void store_table_own(struct store_table *table, const char *key, const void *owner);
/* Deletes all that @owner owns. */
void store_table_disown(struct store_table *table, const void *owner);
/* Return: whether it was there. */
bool store_table_delete(struct store_table *table, const char *key);
/* Deletes every key that begins with @prefix. */
void store_table_forget(struct store_table *table, const char *prefix);
