/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing the catalog, and which stores belong to it. Floor 2, start-up: the control
 * thread, before catalog_start() and after the commit thread has gone.
 *
 * Nothing is written before everything is checked: whose file it is, its version, that it is whole,
 * and that nobody else has it. The exclusive lock is taken first and kept until catalog_close();
 * the kernel drops it with the process. (It is a POSIX lock: a process that has the catalog open
 * must not open and close the file by other means.)
 */
#include "daemon/catalog/catalog.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/catalog/catalog_private.h"

/*
 * locking_mode before the first access, so that no shared-memory index (-shm) is ever made. The
 * page cache: 16 MiB hold what a commit of 10^5 extents touches; the log is folded into the file,
 * which syncs both, when it has 4096 pages (16 MiB); it grows to the largest transaction, and is
 * cut back to 64 MiB when it begins anew.
 */
static const char settings_sql[] = "PRAGMA locking_mode = EXCLUSIVE;"
				   "PRAGMA trusted_schema = OFF;"
				   "PRAGMA cell_size_check = ON;"
				   "PRAGMA temp_store = MEMORY;"
				   "PRAGMA cache_size = -16384;"
				   "PRAGMA wal_autocheckpoint = 4096;"
				   "PRAGMA journal_size_limit = 67108864;";

/* A clear word for what SQLite would only call "unable to open database file". */
static int check_directory(const char *directory, struct zi_text *text)
{
	_cleanup_(zi_closep) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	switch (errno) {
	case ENOENT:
		return err_origin(zi_text_error(text, -ENOENT,
		                                "Catalog directory %s does not exist: make it, or "
		                                "name another",
		                                directory));
	case ENOTDIR:
		return err_origin(zi_text_error(
			text, -ENOTDIR, "Catalog directory %s is not a directory", directory));
	default:
		return err_origin(zi_text_error(text, -errno,
		                                "Catalog directory %s cannot be opened: %s",
		                                directory, strerror(errno)));
	}
}

/* Makes an empty file that only its owner may read, unless there is one: SQLite's log gets the same
 * mode. An existing one is not opened here (the lock, see above). */
static int create_file(struct catalog *catalog, struct zi_text *text, bool *ret_is_new)
{
	_cleanup_(zi_closep) int fd =
		open(catalog->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 && errno != EEXIST)
		return err_origin(zi_text_error(text, -errno, "%s cannot be made: %s",
		                                catalog->path, strerror(errno)));
	*ret_is_new = fd >= 0;
	return 0;
}

static bool has_log(const struct catalog *catalog)
{
	char path[PATH_MAX];

	/* A path that does not fit cannot be opened either. */
	if (snprintf(path, sizeof(path), "%s-wal", catalog->path) >= (int)sizeof(path))
		return false;
	return access(path, F_OK) == 0;
}

/* Opens the connection and takes the lock. Reads, writes nothing. */
static int connect_file(struct catalog *catalog, struct zi_text *text)
{
	int code = sqlite3_open_v2(catalog->path, &catalog->db,
	                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

	if (code)
		return err_trace(catalog_sql_error(catalog, code, "opening", text));
	(void)sqlite3_extended_result_codes(catalog->db, 1);
	/* Until the file is accepted, closing it leaves its log alone; without a log, SQLite makes
	 * an empty one, and shall remove it. Fails only by misuse. */
	(void)sqlite3_db_config(catalog->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log(catalog),
	                        NULL);
	(void)sqlite3_db_config(catalog->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	if (sqlite3_db_readonly(catalog->db, "main") == 1)
		return err_trace(catalog_sql_error(catalog, SQLITE_READONLY, "opening", text));
	code = catalog_sql_run(catalog, settings_sql);
	if (!code)
		/* The lock stays (locking_mode). Taken back: SQLite mends a header's size when a
		 * transaction begins, and would write that into a file that is refused next. */
		code = catalog_sql_run(catalog, "BEGIN EXCLUSIVE; ROLLBACK;");
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "opening", text));
	return 0;
}

/* Whose file, and of which version. */
static int check_meta(struct catalog *catalog, struct zi_text *text)
{
	int64_t id = 0;
	int64_t version = 0;
	int code = catalog_sql_get_int64(catalog, "SELECT application_id FROM meta", &id);

	if (!code)
		code = catalog_sql_get_int64(catalog, "SELECT version FROM meta", &version);
	/* SQLITE_ERROR: the statement does not compile, as there is no such table or column. */
	if ((code & 0xff) == SQLITE_ERROR || (!code && id != CATALOG_APPLICATION_ID))
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"%s is a database, but no catalog of zinf: move it away, or name another "
			"directory",
			catalog->path));
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "reading its version", text));
	if (version != CATALOG_VERSION)
		return err_origin(zi_text_error(
			text, -EPROTONOSUPPORT,
			"%s has version %lld, this zinfd needs version %u: use the zinfd that "
			"made it (there `zctl export`, here `zctl load`), or move it away",
			catalog->path, (long long)version, CATALOG_VERSION));
	return 0;
}

/* quick_check lists a page that cannot be read among the damages, with the code in its sentence:
 * "unable to get the page. error code=266". A disk that fails is another matter than a file that is
 * damaged. Return: the code, or SQLITE_CORRUPT. */
static int finding_code(const char *finding)
{
	static const char mark[] = "error code=";
	const char *place = strstr(finding, mark);
	int code = place ? (int)strtol(place + sizeof(mark) - 1, NULL, 10) : 0;

	return (code & 0xff) == SQLITE_IOERR ? code : SQLITE_CORRUPT;
}

/* Reads every page. The sentence has SQLite's first finding. */
static int check_whole(struct catalog *catalog, struct zi_text *text)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(catalog->db, "PRAGMA quick_check(1)", -1, &statement, NULL);
	const char *finding;

	if (!code)
		code = sqlite3_step(statement);
	if (code != SQLITE_ROW)
		return err_trace(catalog_sql_error(catalog, code, "checking", text));
	finding = (const char *)sqlite3_column_text(statement, 0);
	if (!finding)
		return err_trace(catalog_sql_error(catalog, SQLITE_NOMEM, "checking", text));
	if (strcmp(finding, "ok") == 0)
		return 0;
	code = finding_code(finding);
	if (code != SQLITE_CORRUPT)
		return err_trace(catalog_sql_error(catalog, code, "checking", text));
	/* "*** in database main ***\n" precedes it. */
	if (strchr(finding, '\n'))
		finding = strchr(finding, '\n') + 1;
	return err_origin(zi_text_error(
		text, -EUCLEAN,
		"%s is damaged (%s); nothing was changed: restore the file, or move it away to "
		"start without jobs",
		catalog->path, finding));
}

/* Whether the newest commit is there. */
static int check_newest(struct catalog *catalog, struct zi_text *text)
{
	int64_t newest = 0;
	int code = catalog_sql_get_int64(catalog, "SELECT coalesce(max(stamp), 0) FROM stand",
	                                 &newest);

	if (code)
		return err_trace(catalog_sql_error(catalog, code, "reading its commits", text));
	return err_trace(catalog_mark_check(catalog, (uint64_t)newest, text));
}

/* Write-ahead log: a commit appends, and never overwrites what an older one needs. */
static int use_log(struct catalog *catalog, struct zi_text *text)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *statement = NULL;
	int code =
		sqlite3_prepare_v2(catalog->db, "PRAGMA journal_mode = WAL", -1, &statement, NULL);
	const char *mode;

	if (!code)
		code = sqlite3_step(statement);
	if (code != SQLITE_ROW)
		return err_trace(catalog_sql_error(catalog, code, "choosing WAL", text));
	mode = (const char *)sqlite3_column_text(statement, 0);
	if (mode && strcmp(mode, "wal") == 0)
		return 0;
	return err_origin(zi_text_error(text, -ENOTSUP,
	                                "%s: its file system does not carry a write-ahead log",
	                                catalog->path));
}

/* The tables of a new catalog, synced whatever comes later. */
static int create_schema(struct catalog *catalog, const char *directory, struct zi_text *text)
{
	_cleanup_(zi_closep) int directory_fd = -1;
	char meta_sql[96];
	int code;

	(void)snprintf(meta_sql, sizeof(meta_sql), "INSERT INTO meta VALUES(%d, %u, 0); COMMIT;",
	               CATALOG_APPLICATION_ID, CATALOG_VERSION); /* Fits. */
	code = catalog_sql_run(catalog, "PRAGMA synchronous = FULL; BEGIN IMMEDIATE;");
	if (!code)
		code = catalog_sql_run(catalog, catalog_schema_sql);
	if (!code)
		code = catalog_sql_run(catalog, meta_sql);
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "making its tables", text));
	/* SQLite syncs the directory for its log, not for the file itself. */
	directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory_fd < 0 || fsync(directory_fd))
		return err_origin(
			zi_text_error(text, -errno, "Syncing %s: %s", directory, strerror(errno)));
	return 0;
}

/* Accepts the file: from here on it is written. */
static int prepare(struct catalog *catalog, struct zi_text *text)
{
	int code;

	(void)sqlite3_db_config(catalog->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
	code = catalog_schema_prepare(catalog);
	if (!code)
		code = catalog_sql_run(catalog, "PRAGMA synchronous = NORMAL");
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "preparing", text));
	return 0;
}

/*
 * @directory: an existing one that this process may write. @text: the sentence that goes with a
 * failure; may be NULL. @ret_catalog: the caller's, catalog_close().
 * Return: 0; -ENOENT, -ENOTDIR, -EACCES, -EROFS, -ENOSPC for a directory or file that cannot be
 * used; -EBUSY, -EUCLEAN, -EPROTONOSUPPORT as in the header, with the file as it was; -EIO,
 * -ENOMEM.
 */
int catalog_open(const char *directory, struct zi_text *text, struct catalog **ret_catalog)
{
	_cleanup_(catalog_closep) struct catalog *catalog = NULL;
	size_t path_bytes = strlen(directory) + sizeof("/" CATALOG_FILE);
	int64_t table_count = 0;
	bool is_new = false;
	int code;
	int r;

	r = check_directory(directory, text);
	if (r)
		return err_trace(r);
	catalog = calloc(1, sizeof(*catalog) + path_bytes);
	if (!catalog)
		return err_origin(zi_text_error(text, -ENOMEM, "No memory for the catalog"));
	(void)snprintf(catalog->path, path_bytes, "%s/" CATALOG_FILE, directory); /* Fits. */
	catalog->queue_end = &catalog->queue;
	catalog->mark_fd = -1;
	(void)pthread_mutex_init(&catalog->lock, NULL); /* glibc's never fail like this. */
	(void)pthread_cond_init(&catalog->wake, NULL);

	r = create_file(catalog, text, &is_new);
	if (!r)
		r = connect_file(catalog, text);
	/* Under the lock: until then the mark may be another daemon's. */
	if (!r && is_new)
		r = catalog_mark_remove(catalog, text);
	if (!r)
		r = catalog_mark_open(catalog, text);
	if (r)
		return err_trace(r);
	/* Empty: just made, or its making was cut short. */
	code = catalog_sql_get_int64(catalog, "SELECT count(*) FROM sqlite_schema", &table_count);
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "reading", text));
	if (table_count) {
		r = check_meta(catalog, text);
		if (!r)
			r = check_whole(catalog, text);
		if (!r)
			r = catalog_shape_check(catalog, text);
		if (!r)
			r = check_newest(catalog, text);
	} else {
		r = catalog_mark_check(catalog, 0, text); /* All of it lay in the log. */
	}
	if (!r)
		r = catalog_mark_accept(catalog, text);
	if (!r)
		r = use_log(catalog, text);
	if (!r && !table_count)
		r = create_schema(catalog, directory, text);
	if (!r)
		r = prepare(catalog, text);
	if (r)
		return err_trace(r);
	*ret_catalog = zi_steal(catalog);
	return 0;
}

/*
 * NULL: nothing to do. Runs what was submitted, ends the thread, and folds the log into the file.
 * The last catalog_submit() must have returned. Each request's `done` is posted, and runs when its
 * loop turns; loops are freed after this. Return: NULL.
 */
struct catalog *catalog_close(struct catalog *catalog)
{
	int code;

	if (!catalog)
		return NULL;
	(void)pthread_mutex_lock(&catalog->lock);
	catalog->is_stopping = true;
	(void)pthread_cond_signal(&catalog->wake);
	(void)pthread_mutex_unlock(&catalog->lock);
	(void)zi_thread_join(&catalog->thread); /* Its entry returns 0. */
	assert(!catalog->queue);
	catalog_schema_finalize(catalog);
	code = sqlite3_close(catalog->db);
	assert(code == SQLITE_OK); /* SQLITE_BUSY: a statement was forgotten. */
	(void)code;
	catalog_mark_close(catalog);
	(void)pthread_cond_destroy(&catalog->wake);
	(void)pthread_mutex_destroy(&catalog->lock);
	free(catalog);
	return NULL;
}

/*
 * How a transaction becomes durable. The log is a chain of checksums: what of it has reached the
 * disk when the power fails is a number of whole transactions from the first one on, whatever the
 * order in which its pages were written. So a transaction that needs not survive that, as with
 * durability `process`, is not synced; one that must syncs the log, and with it all before it. In
 * both cases the log is synced before it is folded into the file, and the file before the log
 * begins anew (synchronous = NORMAL): the catalog itself is whole after a power failure, always.
 * Without that, one torn page of the file would take *all* jobs with it.
 */
int catalog_set_synced(struct catalog *catalog, bool is_synced)
{
	int code;

	if (catalog->is_synced == is_synced)
		return SQLITE_OK;
	assert(sqlite3_get_autocommit(catalog->db)); /* The PRAGMA is ignored in a transaction. */
	code = catalog_sql_run(catalog, is_synced ? "PRAGMA synchronous = FULL"
	                                          : "PRAGMA synchronous = NORMAL");
	if (!code)
		catalog->is_synced = is_synced;
	return code;
}
