/* SPDX-License-Identifier: Apache-2.0 */
/* Changing a catalog behind its back: by SQL, with the rows' checksums made right again, so that
 * what comes after the checksums can be tested; or without. */
#pragma once

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/catalog/catalog_private.h"

/* Also where there is no Criterion. */
static inline void reseal_must(int is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "reseal: %s\n", what);
	abort();
}

/* seal(values…): the checksum of a row with these. */
static inline void reseal_function(sqlite3_context *context, int count, sqlite3_value **values)
{
	struct catalog_seal seal = { .word_count = 0 };

	for (int i = 0; i < count; i++) {
		int type = sqlite3_value_type(values[i]);

		if (type == SQLITE_INTEGER) {
			catalog_seal_int(&seal, (uint64_t)sqlite3_value_int64(values[i]));
		} else if (type == SQLITE_FLOAT) {
			catalog_seal_double(&seal, sqlite3_value_double(values[i]));
		} else {
			const void *bytes = sqlite3_value_blob(values[i]);

			catalog_seal_bytes(&seal, type, bytes,
			                   (uint64_t)sqlite3_value_bytes(values[i]));
		}
	}
	sqlite3_result_int64(context, (sqlite3_int64)catalog_seal_value(&seal));
}

/* sum_rows(checksum): modulo 2^64. */
static inline void reseal_add(sqlite3_context *context, int count, sqlite3_value **values)
{
	uint64_t *sum = sqlite3_aggregate_context(context, sizeof(*sum));

	(void)count;
	*sum += (uint64_t)sqlite3_value_int64(values[0]);
}

static inline void reseal_sum(sqlite3_context *context)
{
	const uint64_t *sum = sqlite3_aggregate_context(context, sizeof(*sum));

	sqlite3_result_int64(context, (sqlite3_int64)*sum);
}

static inline void reseal_run(sqlite3 *db, const char *sql)
{
	reseal_must(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(db));
}

static inline void reseal(sqlite3 *db)
{
	static const char columns_sql[] =
		"SELECT m.name, group_concat(p.name) FROM sqlite_schema m,"
		" pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name <> 'meta'"
		" AND p.name NOT IN ('checksum', 'id', 'slot') GROUP BY m.name"
		" ORDER BY m.name <> 'stand'";
	char sql[16][512];
	sqlite3_stmt *rows = NULL;
	uint32_t count = 0;

	reseal_must(sqlite3_create_function(db, "seal", -1, SQLITE_UTF8, NULL, reseal_function,
	                                    NULL, NULL) == SQLITE_OK,
	            "seal()");
	reseal_must(sqlite3_prepare_v2(db, columns_sql, -1, &rows, NULL) == SQLITE_OK, columns_sql);
	while (sqlite3_step(rows) == SQLITE_ROW) {
		reseal_must(count < 16, "tables");
		(void)snprintf(sql[count++], sizeof(sql[0]), "UPDATE %s SET checksum = seal(%s)",
		               (const char *)sqlite3_column_text(rows, 0),
		               (const char *)sqlite3_column_text(rows, 1));
	}
	reseal_must(sqlite3_finalize(rows) == SQLITE_OK, columns_sql);
	reseal_must(sqlite3_create_function(db, "sum_rows", 1, SQLITE_UTF8, NULL, NULL, reseal_add,
	                                    reseal_sum) == SQLITE_OK,
	            "sum_rows()");
	for (uint32_t i = 0; i < count; i++)
		reseal_run(db, sql[i]);
	reseal_run(db, "UPDATE stand SET rows_sum = (SELECT sum_rows(checksum) FROM (SELECT job_id,"
	               " slot, checksum FROM extent UNION ALL SELECT job_id, slot, checksum FROM"
	               " blob) rows WHERE rows.job_id = stand.job_id AND rows.slot = stand.slot)");
	reseal_run(db, sql[0]); /* The stands', once more. */
}

/* What is changed by hand has no newest commit to miss. */
static inline void change_file(const char *path, const char *sql, bool is_sealed)
{
	sqlite3 *db = NULL;
	char mark[600];

	reseal_must(snprintf(mark, sizeof(mark), "%s-mark", path) < (int)sizeof(mark), path);
	(void)unlink(mark); /* If there is one. */
	reseal_must(sqlite3_open(path, &db) == SQLITE_OK, path);
	reseal_run(db, sql);
	if (is_sealed)
		reseal(db);
	reseal_must(sqlite3_close(db) == SQLITE_OK, path);
}
