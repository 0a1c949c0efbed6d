/* SPDX-License-Identifier: Apache-2.0 */
/* The border to SQLite. Floor 2; the thread that owns the connection. */
#include <errno.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog_private.h"

static int errno_of_io(int code)
{
	if (code == SQLITE_IOERR_NOMEM)
		return -ENOMEM;
	/* Writes report ENOSPC and EDQUOT by SQLITE_FULL, the rest of a file's growth by these. */
	return -EIO;
}

/* SQLite keeps the errno of the system call that failed last; it means something only here. */
static int errno_of_open(sqlite3 *db)
{
	int error = db ? sqlite3_system_errno(db) : 0;

	switch (error) {
	case ENOENT:
	case ENOSPC:
	case EROFS:
	case EMFILE:
	case ENFILE:
		return -error;
	default:
		return -EACCES;
	}
}

/* @db may be NULL. @code: a result code, extended or not, that is neither OK, ROW nor DONE. */
int catalog_sql_errno(sqlite3 *db, int code)
{
	assert(code != SQLITE_OK);
	switch (code & 0xff) {
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_FORMAT:
	case SQLITE_EMPTY:
		return -EUCLEAN;
	case SQLITE_IOERR:
		return errno_of_io(code);
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_CANTOPEN:
		return errno_of_open(db);
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return -EACCES;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_TOOBIG:
		return -E2BIG;
	case SQLITE_CONSTRAINT:
		return -EEXIST; /* Only names are unique without being checked before. */
	case SQLITE_NOLFS:
		return -EFBIG;
	default:
		return -EIO;
	}
}

/* What an administrator can do about it. */
static const char *advice(int error)
{
	switch (error) {
	case -ENOSPC:
		return "; free space on its file system";
	case -EUCLEAN:
		return "; nothing was changed: restore the file, or move it away to start over";
	case -EROFS:
		return "; the file, its directory or its file system is read-only";
	case -EBUSY:
		return "; another zinfd (or sqlite3) has it open: end that one, or name another "
		       "directory";
	default:
		return "";
	}
}

/* Return: the errno, traced. */
int catalog_sql_error(struct catalog *catalog, int code, const char *doing, struct zi_text *text)
{
	int r = catalog_sql_errno(catalog->db, code);

	zi_text_set(text, "%s: %s: %s%s", catalog->path, doing, sqlite3_errstr(code), advice(r));
	return err_origin(r);
}

int catalog_sql_run(struct catalog *catalog, const char *sql)
{
	return sqlite3_exec(catalog->db, sql, NULL, NULL, NULL);
}

int catalog_sql_get_int64(struct catalog *catalog, const char *sql, int64_t *ret_value)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(catalog->db, sql, -1, &statement, NULL);

	if (code)
		return code;
	code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return SQLITE_EMPTY;
	if (code != SQLITE_ROW)
		return code;
	*ret_value = sqlite3_column_int64(statement, 0);
	return SQLITE_OK;
}

/* The statement's bindings stay, and are cleared by whoever binds pointers. */
int catalog_sql_step(struct catalog *catalog, enum catalog_statement statement)
{
	int code = sqlite3_step(catalog->statements[statement]);

	(void)sqlite3_reset(catalog->statements[statement]); /* Repeats the code of the step. */
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

sqlite3_stmt *catalog_sql_finalize(sqlite3_stmt *statement)
{
	(void)sqlite3_finalize(statement); /* Repeats the code of the last step. */
	return NULL;
}
