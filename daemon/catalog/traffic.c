/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes read and written, of stores, uids and jobs: rows that ride in the transactions of commits.
 * Floor 2; the commit thread, and at start the control thread. They are figures, not state: one
 * that is damaged is told of and begins anew, and refuses nobody.
 */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog_private.h"

/* In the transaction of a commit. Return: a code of SQLite. */
int catalog_traffic_write(struct catalog *catalog, const struct catalog_traffic *traffic,
                          uint32_t count)
{
	sqlite3_stmt *handle = catalog->statements[CATALOG_SQL_TRAFFIC_REPLACE];
	int code = SQLITE_OK;

	for (uint32_t i = 0; i < count && !code; i++) {
		const struct catalog_traffic *row = &traffic[i];
		const uint64_t words[] = { row->read_bytes, row->write_bytes, row->day,
			                   row->day_write_bytes };
		struct catalog_seal seal = { .word_count = 0 };
		int index = 1;

		catalog_seal_bytes(&seal, SQLITE_TEXT, row->subject, strlen(row->subject));
		code = sqlite3_bind_text(handle, index++, row->subject, -1, SQLITE_STATIC);
		for (size_t word = 0; word < ZI_COUNT_OF(words); word++) {
			catalog_seal_int(&seal, words[word]);
			if (!code)
				code = sqlite3_bind_int64(handle, index++,
				                          (sqlite3_int64)words[word]);
		}
		if (!code)
			code = sqlite3_bind_int64(handle, index,
			                          (sqlite3_int64)catalog_seal_value(&seal));
		if (!code)
			code = catalog_sql_step(catalog, CATALOG_SQL_TRAFFIC_REPLACE);
		(void)sqlite3_clear_bindings(handle); /* Cannot fail. They point at the caller's. */
	}
	return code;
}

/* What is counted of a job goes with it. Return: a code of SQLite. */
int catalog_traffic_forget(struct catalog *catalog, const char *job)
{
	sqlite3_stmt *handle = catalog->statements[CATALOG_SQL_TRAFFIC_DELETE];
	int code = sqlite3_bind_text(handle, 1, job, -1, SQLITE_STATIC);

	if (!code)
		code = catalog_sql_step(catalog, CATALOG_SQL_TRAFFIC_DELETE);
	(void)sqlite3_clear_bindings(handle); /* As above. */
	return code;
}

/* See catalog.h. Return: 0; what SQLite says. Context: start-up. */
int catalog_load_traffic(struct catalog *catalog, catalog_traffic_fn each, void *arg,
                         struct zi_text *text)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *rows = NULL;
	int code = sqlite3_prepare_v2(catalog->db,
	                              "SELECT subject, read_bytes, write_bytes, day,"
	                              " day_write_bytes, checksum FROM traffic",
	                              -1, &rows, NULL);

	assert(!catalog->thread.is_started);
	while (!code && (code = sqlite3_step(rows)) == SQLITE_ROW) {
		const char *subject = (const char *)sqlite3_column_text(rows, 0);
		struct catalog_traffic traffic = {
			.read_bytes = (uint64_t)sqlite3_column_int64(rows, 1),
			.write_bytes = (uint64_t)sqlite3_column_int64(rows, 2),
			.day = (uint64_t)sqlite3_column_int64(rows, 3),
			.day_write_bytes = (uint64_t)sqlite3_column_int64(rows, 4),
		};

		code = SQLITE_OK;
		/* Too long a name is not one of ours either. */
		if (!subject || !catalog_seal_is_whole(rows, 0) ||
		    zi_copy_name(traffic.subject, sizeof(traffic.subject), subject))
			each(arg, NULL);
		else
			each(arg, &traffic);
	}
	if (code != SQLITE_DONE)
		return err_trace(catalog_sql_error(catalog, code, "reading its traffic", text));
	return 0;
}
