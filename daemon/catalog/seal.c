/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of rows: SQLite checks how a file is built, not what its values are, so a bit that
 * turned inside a value would pass for another value. Floor 2, any thread.
 *
 * The checksum is the XXH3 of all values of a row from left to right, key and types included, so
 * that neither a value nor a whole row can take another's place. Strings and blobs enter by their
 * length and their own hash.
 */
#include <string.h>

#include "common/base/assert.h"
#include "daemon/catalog/catalog_private.h"
#include "kernels/hash.h"

static void push(struct catalog_seal *seal, uint64_t type, uint64_t word)
{
	assert(seal->word_count + 2 <= CATALOG_SEAL_WORDS);
	seal->words[seal->word_count++] = type;
	seal->words[seal->word_count++] = word;
}

/* The next value is an integer. */
void catalog_seal_int(struct catalog_seal *seal, uint64_t value)
{
	push(seal, SQLITE_INTEGER, value);
}

/* The next value is a real number: bit by bit, but for the sign of zero, which SQLite drops. */
void catalog_seal_double(struct catalog_seal *seal, double value)
{
	uint64_t word;

	value += 0.0;
	memcpy(&word, &value, sizeof(word));
	push(seal, SQLITE_FLOAT, word);
}

/* @type: SQLITE_TEXT or SQLITE_BLOB. @bytes may be 0, and @value NULL then. */
void catalog_seal_bytes(struct catalog_seal *seal, int type, const void *value, uint64_t bytes)
{
	assert(type == SQLITE_TEXT || type == SQLITE_BLOB);
	push(seal, (uint64_t)type | bytes << 8, kern_hash(bytes ? value : "", bytes));
}

/* Of all values so far. */
uint64_t catalog_seal_value(const struct catalog_seal *seal)
{
	return kern_hash(seal->words, seal->word_count * sizeof(seal->words[0]));
}

static void push_column(struct catalog_seal *seal, sqlite3_stmt *row, int column)
{
	int type = sqlite3_column_type(row, column);

	switch (type) {
	case SQLITE_INTEGER:
		catalog_seal_int(seal, (uint64_t)sqlite3_column_int64(row, column));
		break;
	case SQLITE_FLOAT:
		catalog_seal_double(seal, sqlite3_column_double(row, column));
		break;
	case SQLITE_TEXT:
	case SQLITE_BLOB: {
		/* The pointer before the count, as SQLite asks. */
		const void *value = sqlite3_column_blob(row, column);

		catalog_seal_bytes(seal, type, value, (uint64_t)sqlite3_column_bytes(row, column));
		break;
	}
	default:
		push(seal, (uint64_t)type, 0); /* NULL: no row of ours has one. */
	}
}

/* @row: from column @first on, all of a table in the order in which they are written, the checksum
 * last. */
bool catalog_seal_is_whole(sqlite3_stmt *row, int first)
{
	struct catalog_seal seal = { .word_count = 0 };
	int last = sqlite3_column_count(row) - 1;

	for (int i = first; i < last; i++)
		push_column(&seal, row, i);
	return catalog_seal_value(&seal) == (uint64_t)sqlite3_column_int64(row, last);
}
