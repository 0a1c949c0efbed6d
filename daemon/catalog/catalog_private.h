/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the catalog. Floor 2.
 *
 *   catalog.c  open, check, close, stores
 *   schema.c   tables, and the statements that are kept prepared
 *   shape.c    whether a file has those tables
 *   sql.c      the border to SQLite: its results become an errno and a sentence
 *   seal.c     the checksum of a row
 *   store.c    which stores belong to the catalog
 *   load.c     jobs, out of the tables
 *   load_stand.c  where they stand: what lies in their slots
 *   job.c      jobs that own what they point to
 *   rows.c     the rows of a request, into the tables
 *   commit.c   one transaction per request
 *   thread.c   the commit thread and its queue
 *   mark.c     the witness of the newest commit
 */
#pragma once

#include <pthread.h>
#include <sqlite3.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/thread.h"
#include "daemon/catalog/catalog.h"
#include "daemon/catalog/mark.h"

#define CATALOG_FILE           "catalog.db"
#define CATALOG_APPLICATION_ID 0x5a494e46 /* "ZINF" */

enum catalog_statement {
	CATALOG_SQL_BEGIN,
	CATALOG_SQL_COMMIT,
	CATALOG_SQL_ROLLBACK,
	CATALOG_SQL_FENCE,
	CATALOG_SQL_JOB_INSERT,
	CATALOG_SQL_JOB_FIND,
	CATALOG_SQL_JOB_DELETE,
	CATALOG_SQL_STAND_REPLACE,
	CATALOG_SQL_STAND_STAMP,
	CATALOG_SQL_STAND_FIND,
	CATALOG_SQL_STAND_DELETE,
	CATALOG_SQL_STAND_CLEAR,
	CATALOG_SQL_START_REPLACE,
	CATALOG_SQL_START_DELETE,
	CATALOG_SQL_SET_INSERT,
	CATALOG_SQL_SET_DELETE,
	CATALOG_SQL_UNIT_INSERT,
	CATALOG_SQL_UNIT_DELETE,
	CATALOG_SQL_PARAM_INSERT,
	CATALOG_SQL_PARAM_DELETE,
	CATALOG_SQL_EXTENT_REPLACE,
	CATALOG_SQL_EXTENT_INHERIT,
	CATALOG_SQL_EXTENT_DELETE,
	CATALOG_SQL_EXTENT_CLEAR,
	CATALOG_SQL_ROWS,
	CATALOG_SQL_BLOB_INSERT,
	CATALOG_SQL_BLOB_DELETE,
	CATALOG_SQL_BLOB_CLEAR,
	CATALOG_SQL_INCARNATION_REPLACE,
	CATALOG_SQL_INCARNATION_FORGET,
	CATALOG_SQL_INCARNATION_DELETE,
	CATALOG_SQL_TRAFFIC_REPLACE,
	CATALOG_SQL_TRAFFIC_DELETE,
	_CATALOG_SQL_COUNT,
};

struct catalog {
	/* The caller's until catalog_start(), then the commit thread's. */
	sqlite3 *db;
	sqlite3_stmt *statements[_CATALOG_SQL_COUNT];
	bool is_synced; /* synchronous=FULL: see catalog_set_synced() */
	uint64_t stamp; /* of the newest stand that the transaction under way has written; 0 none */
	int mark_fd;
	struct catalog_mark mark;
	char boot[CATALOG_BOOT_BYTES];
	int broken; /* not 0: an errno that every request ends with, see commit.c */

	/* The mutex `lock` guards the queue and is_stopping, for a few instructions and with
	 * nothing called under it: a leaf in rank. Control path: one request per step. */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct catalog_request *queue;
	struct catalog_request **queue_end;
	bool is_stopping;

	struct zi_thread thread;
	char path[]; /* of the file */
};

/* ---- job.c ---- */

/* What catalog_job_free() must find again. */
struct loaded_job {
	struct catalog_job job;
	uint64_t *hashes;
	uint8_t *blob_bytes;
	void *extra;
	uint64_t hash_capacity;
	uint64_t blob_capacity;
};

/* ---- sql.c ---- */

/* The errno of a result code of SQLite, negative. */
int catalog_sql_errno(sqlite3 *db, int code);
/* As above, with the sentence "@doing: …". */
int catalog_sql_error(struct catalog *catalog, int code, const char *doing, struct zi_text *text);
/* Runs statements that give no rows. Result: a code of SQLite. */
int catalog_sql_run(struct catalog *catalog, const char *sql);
/* Runs a statement that gives one integer. SQLITE_EMPTY when it gives no row. */
int catalog_sql_get_int64(struct catalog *catalog, const char *sql, int64_t *ret_value);
/* Steps a kept statement that gives no rows, and resets it. */
int catalog_sql_step(struct catalog *catalog, enum catalog_statement statement);
sqlite3_stmt *catalog_sql_finalize(sqlite3_stmt *statement);
ZI_DEFINE_CLEANUP(sqlite3_stmt *, catalog_sql_finalize)

/* ---- seal.c ---- */

/* Two words for each value of a row. */
#define CATALOG_SEAL_WORDS 64u

struct catalog_seal {
	uint64_t words[CATALOG_SEAL_WORDS];
	uint32_t word_count;
};

void catalog_seal_int(struct catalog_seal *seal, uint64_t value);
void catalog_seal_double(struct catalog_seal *seal, double value);
void catalog_seal_bytes(struct catalog_seal *seal, int type, const void *value, uint64_t bytes);
uint64_t catalog_seal_value(const struct catalog_seal *seal);
/* Whether the last column of @row is the checksum of the others from @first on. */
bool catalog_seal_is_whole(sqlite3_stmt *row, int first);

/* ---- schema.c ---- */

extern const char catalog_schema_sql[];
int catalog_schema_prepare(struct catalog *catalog);
void catalog_schema_finalize(struct catalog *catalog);

/* ---- shape.c ---- */

int catalog_shape_check(struct catalog *catalog, struct zi_text *text);

/* ---- catalog.c ---- */

/* Whether transactions from now on are synced, each with all before it. Code of SQLite. */
int catalog_set_synced(struct catalog *catalog, bool is_synced);

/* ---- traffic.c: in a transaction; codes of SQLite ---- */

int catalog_traffic_write(struct catalog *catalog, const struct catalog_traffic *traffic,
                          uint32_t count);
int catalog_traffic_forget(struct catalog *catalog, const char *job);

/* ---- rows.c: in a transaction; codes of SQLite ---- */

#define CATALOG_SLOTS 2u

/* A slot of a job. */
struct catalog_slot {
	int64_t job_id;
	uint32_t index;
};

/* The largest stamp of all stands; 0: there is none. */
int catalog_newest_stamp(struct catalog *catalog, uint64_t *ret_stamp);
/* Without its layout. */
int catalog_write_job(struct catalog *catalog, const struct catalog_job *job);
/* The last of all rows of a commit. @blob_count: of the ranks of this world. */
int catalog_write_stand(struct catalog *catalog, struct catalog_slot slot,
                        const struct catalog_job *job, uint32_t blob_count);
int catalog_write_start(struct catalog *catalog, int64_t job_id, const struct catalog_job *job);
int catalog_write_layout(struct catalog *catalog, int64_t job_id, const struct catalog_job *job);
int catalog_write_extents(struct catalog *catalog, struct catalog_slot slot,
                          const struct catalog_job *job);
/* Those of the job's other slot that are not in this one yet. */
int catalog_inherit_extents(struct catalog *catalog, struct catalog_slot slot);
int catalog_write_blobs(struct catalog *catalog, struct catalog_slot slot,
                        const struct catalog_job *job);
/* All rows in it. */
int catalog_clear_slot(struct catalog *catalog, struct catalog_slot slot);
int catalog_write_incarnations(struct catalog *catalog, int64_t job_id,
                               const struct catalog_job *job);
/* Runs a statement whose only parameter is the job. */
int catalog_run_for_job(struct catalog *catalog, enum catalog_statement statement, int64_t job_id);

/* ---- commit.c ---- */

/* One transaction. 0 or -errno with a sentence in the request. */
int catalog_commit(struct catalog *catalog, struct catalog_request *request);
