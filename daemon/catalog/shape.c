/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a catalog has the tables that its version says: one that lacks a table, or has another
 * one's columns or constraints, would be believed where the code relies on them. Floor 2, start-up:
 * the control thread.
 *
 * The model is an empty database in memory with our own tables: what SQLite keeps of each statement
 * is compared word for word. Nothing is written.
 */
#include <string.h>

#include "common/base/err.h"
#include "daemon/catalog/catalog_private.h"

/* But for SQLite's own (indices of keys; statistics, if somebody asked for them). */
static const char objects_sql[] = "SELECT name, sql FROM sqlite_schema"
				  " WHERE name NOT LIKE 'sqlite@_%' ESCAPE '@' ORDER BY name";

static sqlite3 *model_close(sqlite3 *model)
{
	(void)sqlite3_close(model); /* Fails only with a statement that was forgotten. */
	return NULL;
}
ZI_DEFINE_CLEANUP(sqlite3 *, model_close)

/* One walk over the objects of a database, in order of their names. */
struct walk {
	sqlite3_stmt *rows;
	int code; /* SQLITE_ROW: there is one */
	const char *name, *sql;
};

static void walk_next(struct walk *walk)
{
	walk->code = sqlite3_step(walk->rows);
	if (walk->code != SQLITE_ROW)
		return;
	walk->name = (const char *)sqlite3_column_text(walk->rows, 0);
	walk->sql = (const char *)sqlite3_column_text(walk->rows, 1);
	if (!walk->name || !walk->sql)
		walk->code = SQLITE_NOMEM;
}

static bool has_failed(const struct walk *walk)
{
	return walk->code != SQLITE_ROW && walk->code != SQLITE_DONE;
}

static int walk_begin(struct walk *walk, sqlite3 *db)
{
	int code = sqlite3_prepare_v2(db, objects_sql, -1, &walk->rows, NULL);

	if (code)
		return code;
	walk_next(walk);
	return SQLITE_OK;
}

static int refuse(struct catalog *catalog, const char *name, const char *what, struct zi_text *text)
{
	return err_origin(zi_text_error(
		text, -EUCLEAN,
		"%s is damaged: '%.40s' in it is %s; nothing was changed: restore the file, or "
		"move it away to start over",
		catalog->path, name, what));
}

/* Both walks stand at their first object. */
static int compare(struct catalog *catalog, struct walk *ours, struct walk *theirs,
                   struct zi_text *text)
{
	while (ours->code == SQLITE_ROW || theirs->code == SQLITE_ROW) {
		int order = 0;

		if (ours->code == SQLITE_ROW && theirs->code == SQLITE_ROW)
			order = strcmp(theirs->name, ours->name);
		else if (ours->code == SQLITE_DONE || theirs->code == SQLITE_DONE)
			order = ours->code == SQLITE_ROW ? 1 : -1;
		else
			break;
		if (order > 0)
			return err_trace(refuse(catalog, ours->name, "missing", text));
		if (order < 0)
			return err_trace(refuse(catalog, theirs->name, "unknown", text));
		if (strcmp(theirs->sql, ours->sql) != 0)
			return err_trace(
				refuse(catalog, ours->name, "not as its version has it", text));
		walk_next(ours);
		walk_next(theirs);
	}
	if (!has_failed(ours) && !has_failed(theirs))
		return 0; /* Both are at their end. */
	return err_trace(catalog_sql_error(catalog, has_failed(ours) ? ours->code : theirs->code,
	                                   "comparing its tables", text));
}

/* @catalog: open, of this version. Return: 0; -EUCLEAN with the name of the first table that
 * differs; -ENOMEM, -EIO. */
int catalog_shape_check(struct catalog *catalog, struct zi_text *text)
{
	_cleanup_(model_closep) sqlite3 *model = NULL;
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *our_rows = NULL;
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *their_rows = NULL;
	struct walk ours = { .rows = NULL };
	struct walk theirs = { .rows = NULL };
	int code = sqlite3_open_v2(":memory:", &model, SQLITE_OPEN_READWRITE, NULL);

	if (!code)
		code = sqlite3_exec(model, catalog_schema_sql, NULL, NULL, NULL);
	if (!code)
		code = walk_begin(&ours, model);
	our_rows = ours.rows;
	if (!code)
		code = walk_begin(&theirs, catalog->db);
	their_rows = theirs.rows;
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "comparing its tables", text));
	return err_trace(compare(catalog, &ours, &theirs, text));
}
