/* SPDX-License-Identifier: Apache-2.0 */
/* The store's keys and values; see store_table.h. Floor 3. The server's thread. */
#include "daemon/worker/store_table.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/store.h"

void store_table_init(struct store_table *table)
{
	*table = (struct store_table){ .entry_count = 0 };
}

void store_table_deinit(struct store_table *table)
{
	for (uint32_t i = 0; i < STORE_BUCKETS; i++) {
		struct store_entry *entry;

		while ((entry = table->buckets[i])) {
			table->buckets[i] = entry->next;
			table->entry_count--;
			table->charged_bytes -= entry->key_bytes + entry->value_bytes;
			free(entry);
		}
	}
	assert(!table->entry_count);
	assert(!table->charged_bytes);
}

/* Where the pointer to @key's entry is, or would be. FNV-1a, 32 bits (Fowler, Noll, Vo). */
static struct store_entry **place_of(struct store_table *table, const char *key)
{
	struct store_entry **place;
	uint32_t hash = 2166136261u;

	for (const char *c = key; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	place = &table->buckets[hash & (STORE_BUCKETS - 1)];
	while (*place && strcmp((*place)->bytes, key))
		place = &(*place)->next;
	return place;
}

const void *store_table_get(const struct store_table *table, const char *key,
                            uint32_t *ret_value_bytes)
{
	/* The table is only looked at: place_of() serves those as well who change it. */
	struct store_entry *entry = *place_of((struct store_table *)table, key);

	if (!entry)
		return NULL;
	*ret_value_bytes = entry->value_bytes;
	return entry->bytes + entry->key_bytes;
}

static void entry_remove(struct store_table *table, struct store_entry **place)
{
	struct store_entry *entry = *place;

	*place = entry->next;
	table->entry_count--;
	table->charged_bytes -= entry->key_bytes + entry->value_bytes;
	free(entry);
}

int store_table_set(struct store_table *table, const char *key, const void *value,
                    uint32_t value_bytes, struct zi_text *text)
{
	struct store_entry **place = place_of(table, key), *entry;
	uint32_t key_bytes = (uint32_t)strlen(key) + 1;
	uint64_t former_bytes = *place ? (*place)->key_bytes + (*place)->value_bytes : 0;

	if (!*place && table->entry_count >= STORE_KEYS_MAX)
		return err_origin(zi_text_error(text, -ENOSPC,
		                                "the store has %u keys, its limit: '%s' is not set",
		                                STORE_KEYS_MAX, key));
	if (table->charged_bytes - former_bytes + key_bytes + value_bytes > STORE_TABLE_BYTES_MAX)
		return err_origin(zi_text_error(
			text, -ENOSPC,
			"the store holds %s of at most %s: '%s' (%u bytes) is not set",
			zi_format_bytes(table->charged_bytes).chars,
			zi_format_bytes(STORE_TABLE_BYTES_MAX).chars, key, value_bytes));
	entry = malloc(sizeof(*entry) + key_bytes + value_bytes);
	if (!entry)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for '%s'", key));
	*entry = (struct store_entry){ .key_bytes = key_bytes, .value_bytes = value_bytes };
	memcpy(entry->bytes, key, key_bytes);
	if (value_bytes)
		memcpy(entry->bytes + key_bytes, value, value_bytes);
	if (*place)
		entry_remove(table, place);
	entry->next = *place;
	*place = entry;
	table->entry_count++;
	table->charged_bytes += key_bytes + value_bytes;
	return 0;
}

bool store_table_delete(struct store_table *table, const char *key)
{
	struct store_entry **place = place_of(table, key);

	if (!*place)
		return false;
	entry_remove(table, place);
	return true;
}

void store_table_own(struct store_table *table, const char *key, const void *owner)
{
	struct store_entry *entry = *place_of(table, key);

	assert(entry);
	entry->owner = owner;
}

/* Removes the entries that @is_one says. */
static void sweep(struct store_table *table,
                  bool (*is_one)(const struct store_entry *entry, const void *arg), const void *arg)
{
	for (uint32_t i = 0; i < STORE_BUCKETS; i++)
		for (struct store_entry **place = &table->buckets[i]; *place;) {
			if (is_one(*place, arg))
				entry_remove(table, place);
			else
				place = &(*place)->next;
		}
}

static bool is_owned_by(const struct store_entry *entry, const void *owner)
{
	return entry->owner == owner;
}

void store_table_disown(struct store_table *table, const void *owner)
{
	assert(owner);
	sweep(table, is_owned_by, owner);
}

static bool begins_with(const struct store_entry *entry, const void *prefix)
{
	return !strncmp(entry->bytes, prefix, strlen(prefix));
}

void store_table_forget(struct store_table *table, const char *prefix)
{
	sweep(table, begins_with, prefix);
}
