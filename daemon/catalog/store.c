/* SPDX-License-Identifier: Apache-2.0 */
/* Which stores belong to this catalog. Floor 2, start-up: the control thread. */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog_private.h"

#define UUID_BYTES 16

/* What the catalog knows about a store. */
struct knowledge {
	bool is_known; /* by its name */
	bool is_same;  /* and with this uuid */
	uint8_t uuid[UUID_BYTES];
	int64_t extent_count; /* of the uuid it is known with */
};

static int look_up(struct catalog *catalog, const char *name, const uint8_t *uuid,
                   struct knowledge *ret_knowledge)
{
	static const char sql[] =
		"SELECT uuid, (SELECT count(*) FROM extent WHERE store_uuid = uuid)"
		" FROM store WHERE name = ?1";
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(catalog->db, sql, -1, &statement, NULL);

	if (!code)
		code = sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
	if (code)
		return code;
	code = sqlite3_step(statement);
	*ret_knowledge = (struct knowledge){ 0 };
	if (code == SQLITE_DONE)
		return SQLITE_OK;
	if (code != SQLITE_ROW)
		return code;
	assert(sqlite3_column_bytes(statement, 0) == UUID_BYTES); /* The table's CHECK. */
	ret_knowledge->is_known = true;
	memcpy(ret_knowledge->uuid, sqlite3_column_blob(statement, 0), UUID_BYTES);
	ret_knowledge->is_same = memcmp(sqlite3_column_blob(statement, 0), uuid, UUID_BYTES) == 0;
	ret_knowledge->extent_count = sqlite3_column_int64(statement, 1);
	return SQLITE_OK;
}

/* The name that the catalog has for @uuid; "" when it has none. */
static int look_up_name(struct catalog *catalog, const uint8_t *uuid, struct zi_text *ret_name)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(catalog->db, "SELECT name FROM store WHERE uuid = ?1", -1,
	                              &statement, NULL);

	if (!code)
		code = sqlite3_bind_blob(statement, 1, uuid, UUID_BYTES, SQLITE_STATIC);
	if (code)
		return code;
	code = sqlite3_step(statement);
	zi_text_set(ret_name, "%s",
	            code == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : "");
	return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

static int record(struct catalog *catalog, const char *name, const uint8_t *uuid)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *statement = NULL;
	struct catalog_seal seal = { .word_count = 0 };
	int code = sqlite3_prepare_v2(catalog->db,
	                              "REPLACE INTO store(name, uuid, checksum) VALUES(?1, ?2, ?3)",
	                              -1, &statement, NULL);

	if (!code)
		code = sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
	if (!code)
		code = sqlite3_bind_blob(statement, 2, uuid, UUID_BYTES, SQLITE_STATIC);
	catalog_seal_bytes(&seal, SQLITE_TEXT, name, strlen(name));
	catalog_seal_bytes(&seal, SQLITE_BLOB, uuid, UUID_BYTES);
	if (!code)
		code = sqlite3_bind_int64(statement, 3, (sqlite3_int64)catalog_seal_value(&seal));
	if (code)
		return code;
	code = sqlite3_step(statement);
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* Every row of the table: a damaged one may have been any store's. */
static int check_rows(struct catalog *catalog, struct zi_text *text)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *rows = NULL;
	int code = sqlite3_prepare_v2(catalog->db, "SELECT name, uuid, checksum FROM store", -1,
	                              &rows, NULL);

	while (!code && (code = sqlite3_step(rows)) == SQLITE_ROW) {
		if (!catalog_seal_is_whole(rows, 0))
			return err_origin(zi_text_error(
				text, -EUCLEAN,
				"%s is damaged (the checksum of a row of table store); nothing was "
				"changed: restore the file, or move it away to start over",
				catalog->path));
		code = SQLITE_OK;
	}
	if (code != SQLITE_DONE)
		return err_trace(catalog_sql_error(catalog, code, "reading its stores", text));
	return 0;
}

/* See catalog.h. Return: 0, -EUCLEAN, what SQLite says. */
int catalog_store_extents(struct catalog *catalog, const char *name, struct zi_text *text,
                          uint8_t ret_uuid[16], uint64_t *ret_count)
{
	static const uint8_t any[UUID_BYTES];
	struct knowledge knowledge;
	int code;
	int r;

	assert(!catalog->thread.is_started);
	r = check_rows(catalog, text);
	if (r)
		return err_trace(r);
	code = look_up(catalog, name, any, &knowledge);
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "looking up a store", text));
	memcpy(ret_uuid, knowledge.uuid, UUID_BYTES);
	*ret_count = (uint64_t)knowledge.extent_count;
	return 0;
}

/*
 * @name: of the tier in the configuration. @uuid: from the store's superblock. @is_created: this
 * daemon has just made the store, so nothing can be in it.
 * What is recorded is synced.
 * A new store may take the place of one that no extent names: its file was deleted while it was
 * empty.
 * Return: 0; -EUCLEAN when store and catalog do not belong together; what SQLite says.
 */
int catalog_adopt_store(struct catalog *catalog, const char *name, const uint8_t uuid[16],
                        bool is_created, struct zi_text *text)
{
	struct knowledge knowledge;
	struct zi_text known_name;
	int code;
	int r;

	assert(!catalog->thread.is_started);
	r = check_rows(catalog, text);
	if (r)
		return err_trace(r);
	code = look_up(catalog, name, uuid, &knowledge);
	if (!code)
		code = look_up_name(catalog, uuid, &known_name);
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "looking up a store", text));
	if (knowledge.is_same)
		return 0;
	if (*known_name.chars && !is_created)
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"Store '%s' is the one that %s knows as '%s': give its path to that "
			"name's section again ([nvme %s]); nothing was changed",
			name, catalog->path, known_name.chars, known_name.chars));
	if (knowledge.is_known && (!is_created || knowledge.extent_count))
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"Store '%s' is not the one that %s knows by this name, in which %lld "
			"extents lie: put the old store back, or move the catalog away to "
			"begin anew",
			name, catalog->path, (long long)knowledge.extent_count));
	if (!is_created)
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"Store '%s' holds data that %s does not know: put its catalog back, or "
			"delete the store to start over",
			name, catalog->path));
	code = catalog_set_synced(catalog, true);
	if (!code)
		code = record(catalog, name, uuid);
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "recording a store", text));
	return 0;
}
