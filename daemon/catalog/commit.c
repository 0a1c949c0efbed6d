/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transaction per request. Floor 2; the commit thread.
 *
 * Either all rows of a request are in force, or none is: what SQLite promises, but for one corner.
 * When the *sync* of a commit fails, the log already holds the whole transaction, and a daemon that
 * died now would find it there and take it for committed, although its submitter was told that it
 * failed and has given the extents away. So after such a failure a small transaction is written
 * over the place where the failed one begins (the checksums of the log's frames are chained, hence
 * what follows is void). When that fails too, nothing is certain any more: the catalog is broken,
 * and ends every request with the error until the daemon is started again. Its submitters are told
 * (is_uncertain): they must keep what either of the two commits would name.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog_private.h"

/* ---- what the kinds of requests do ---- */

/* A job in the catalog, and the stand that is in force: 0 and 0 where it has none. */
struct found {
	int64_t job_id;
	uint32_t slot;
	uint64_t number;
};

/* SQLITE_EMPTY: no such job. */
static int find_job(struct catalog *catalog, const struct catalog_job *job, struct found *ret_found)
{
	sqlite3_stmt *handle = catalog->statements[CATALOG_SQL_JOB_FIND];
	struct found found = { .job_id = 0 };
	bool is_found = false;
	int code = sqlite3_bind_text(handle, 1, job->name, -1, SQLITE_STATIC);

	if (!code)
		code = sqlite3_bind_text(handle, 2, job->snapshot, -1, SQLITE_STATIC);
	while (!code && (code = sqlite3_step(handle)) == SQLITE_ROW) {
		uint64_t number = (uint64_t)sqlite3_column_int64(handle, 2);

		if (!is_found || number > found.number)
			found = (struct found){
				.job_id = sqlite3_column_int64(handle, 0),
				.slot = (uint32_t)sqlite3_column_int64(handle, 1),
				.number = number,
			};
		is_found = true;
		code = SQLITE_OK;
	}
	(void)sqlite3_reset(handle); /* Repeats the code of the step. */
	(void)sqlite3_clear_bindings(handle);
	if (code != SQLITE_DONE)
		return code;
	if (!is_found)
		return SQLITE_EMPTY;
	*ret_found = found;
	return SQLITE_OK;
}

static int do_create(struct catalog *catalog, const struct found *found,
                     const struct catalog_request *request)
{
	const struct catalog_job *job = request->job;
	struct catalog_slot slot = { .index = 0 };
	int code = catalog_write_job(catalog, job);

	(void)found; /* There was none. */
	if (code)
		return code;
	slot.job_id = sqlite3_last_insert_rowid(catalog->db);
	code = catalog_write_layout(catalog, slot.job_id, job);
	/* Without a step there is nothing that they could belong to. */
	if (!code && job->step >= 0)
		code = catalog_write_extents(catalog, slot, job);
	if (!code && job->step >= 0)
		code = catalog_write_blobs(catalog, slot, job);
	if (!code)
		code = catalog_write_stand(catalog, slot, job,
		                           job->step >= 0 ? job->blob_count : 0);
	if (!code)
		code = catalog_write_start(catalog, slot.job_id, job);
	if (!code)
		code = catalog_write_incarnations(catalog, slot.job_id, job);
	return code;
}

static int do_delete(struct catalog *catalog, const struct found *found,
                     const struct catalog_request *request)
{
	static const enum catalog_statement statements[] = {
		CATALOG_SQL_BLOB_DELETE,  CATALOG_SQL_EXTENT_DELETE,      CATALOG_SQL_PARAM_DELETE,
		CATALOG_SQL_UNIT_DELETE,  CATALOG_SQL_SET_DELETE,         CATALOG_SQL_START_DELETE,
		CATALOG_SQL_STAND_DELETE, CATALOG_SQL_INCARNATION_DELETE, CATALOG_SQL_JOB_DELETE,
	};
	int code = SQLITE_OK;

	for (size_t i = 0; i < ZI_COUNT_OF(statements) && !code; i++)
		code = catalog_run_for_job(catalog, statements[i], found->job_id);
	if (!code && !request->job->snapshot[0])
		code = catalog_traffic_forget(catalog, request->job->name);
	return code;
}

static int do_incarnation(struct catalog *catalog, const struct found *found,
                          const struct catalog_request *request)
{
	int code = catalog_write_start(catalog, found->job_id, request->job);

	if (!code)
		code = catalog_write_incarnations(catalog, found->job_id, request->job);
	return code;
}

/*
 * Into the slot in force, whose rows it replaces; or into the other one: what was kept there goes,
 * and extents that this commit leaves as they were are copied, unless it names all that it has. The
 * slot that was in force is not written then, and yields by its smaller number.
 */
static int commit_job(struct catalog *catalog, const struct found *found,
                      const struct catalog_job *job, bool keeps_former, bool is_whole)
{
	struct catalog_slot slot = { .job_id = found->job_id, .index = found->slot };
	int code = SQLITE_OK;

	assert(job->step >= 0);
	/* Else the other slot would be the one in force. */
	assert(keeps_former ? job->number > found->number : job->number >= found->number);
	if (keeps_former) {
		slot.index = 1 - found->slot;
		code = catalog_clear_slot(catalog, slot);
	}
	if (!code)
		code = catalog_write_extents(catalog, slot, job);
	if (!code && keeps_former && !is_whole)
		code = catalog_inherit_extents(catalog, slot);
	if (!code)
		code = catalog_write_blobs(catalog, slot, job);
	if (!code)
		code = catalog_write_stand(catalog, slot, job, job->blob_count);
	return code;
}

static int do_commit(struct catalog *catalog, const struct found *found,
                     const struct catalog_request *request)
{
	assert(!request->keeps_former || !request->other_count);
	assert(request->keeps_former || !request->is_whole);
	return commit_job(catalog, found, request->job, request->keeps_former, request->is_whole);
}

/* SQLITE_NOTFOUND: neither slot has it. */
static int do_step_back(struct catalog *catalog, const struct found *found,
                        const struct catalog_request *request)
{
	sqlite3_stmt *handle = catalog->statements[CATALOG_SQL_STAND_FIND];
	struct catalog_slot slot = { .job_id = found->job_id };
	int code = sqlite3_bind_int64(handle, 1, found->job_id);

	if (!code)
		code = sqlite3_bind_int64(handle, 2, (sqlite3_int64)request->job->number);
	if (!code)
		code = sqlite3_bind_int64(handle, 3, (sqlite3_int64)request->job->line);
	if (!code)
		code = sqlite3_step(handle);
	if (code == SQLITE_ROW)
		slot.index = 1 - (uint32_t)sqlite3_column_int64(handle, 0);
	(void)sqlite3_reset(handle); /* Repeats the code of the step. */
	if (code == SQLITE_ROW)
		return catalog_clear_slot(catalog, slot);
	return code == SQLITE_DONE ? SQLITE_NOTFOUND : code;
}

static const struct {
	const char *doing; /* the beginning of a sentence, "… job 'x'" */
	int (*run)(struct catalog *catalog, const struct found *found,
	           const struct catalog_request *request);
} kinds[] = {
	[CATALOG_JOB_CREATE] = { "creating", do_create },
	[CATALOG_JOB_DELETE] = { "deleting", do_delete },
	[CATALOG_JOB_INCARNATION] = { "recording the incarnation of", do_incarnation },
	[CATALOG_COMMIT] = { "committing a step of", do_commit },
	[CATALOG_STEP_BACK] = { "dropping a commit of", do_step_back },
};

/* ---- the transaction around them ---- */

/* See the head of this file. */
static void fence(struct catalog *catalog)
{
	int code = catalog_sql_step(catalog, CATALOG_SQL_FENCE);

	if (code)
		catalog->broken = catalog_sql_errno(catalog->db, code);
}

/* Some failures have rolled back already. */
static void roll_back(struct catalog *catalog)
{
	if (!sqlite3_get_autocommit(catalog->db))
		(void)catalog_sql_step(catalog, CATALOG_SQL_ROLLBACK); /* Fails only by misuse. */
	assert(sqlite3_get_autocommit(catalog->db));
}

/* Of a transaction that writes no stand, and may have removed the newest one. On failure it is
 * undone. */
static int prepare_mark(struct catalog *catalog, struct catalog_request *request, const char *doing)
{
	uint64_t newest = 0;
	int code = catalog_newest_stamp(catalog, &newest);
	int r;

	if (code) {
		roll_back(catalog);
		return err_trace(catalog_sql_error(catalog, code, doing, &request->text));
	}
	r = catalog_mark_prepare(catalog, newest, &request->text);
	if (r)
		roll_back(catalog);
	return err_trace(r);
}

static int run_transaction(struct catalog *catalog, struct catalog_request *request)
{
	bool is_create = request->kind == CATALOG_JOB_CREATE;
	const char *snapshot = request->job->snapshot;
	char name[2 * ZI_NAME_BYTES];
	char doing[sizeof("recording the incarnation of job ''") + sizeof(name)];
	struct found found = { .job_id = 0 };
	int code, r;

	/* Both fit: the longest word and names. */
	(void)snprintf(name, sizeof(name), "%s%s%s", request->job->name, snapshot[0] ? "/" : "",
	               snapshot);
	(void)snprintf(doing, sizeof(doing), "%s job '%s'", kinds[request->kind].doing, name);
	catalog->stamp = 0;
	code = catalog_sql_step(catalog, CATALOG_SQL_BEGIN);
	if (code)
		return err_trace(catalog_sql_error(catalog, code, doing, &request->text));
	code = find_job(catalog, request->job, &found);
	if (is_create && !code) {
		roll_back(catalog);
		return err_origin(zi_text_error(&request->text, -EEXIST,
		                                "Job '%s' is in the catalog already", name));
	}
	if (!is_create && code == SQLITE_EMPTY) {
		roll_back(catalog);
		return err_origin(zi_text_error(&request->text, -ENOENT,
		                                "Job '%s' is not in the catalog", name));
	}
	if (code == SQLITE_EMPTY)
		code = SQLITE_OK;
	if (!code)
		code = kinds[request->kind].run(catalog, &found, request);
	if (code == SQLITE_NOTFOUND) {
		roll_back(catalog);
		return err_origin(
			zi_text_error(&request->text, -ENODATA,
		                      "Job '%s' has no commit %llu of line %016llx in the catalog",
		                      name, (unsigned long long)request->job->number,
		                      (unsigned long long)request->job->line));
	}
	for (uint32_t i = 0; i < request->other_count && !code; i++) {
		code = find_job(catalog, request->others[i], &found);
		if (code == SQLITE_EMPTY) {
			roll_back(catalog);
			return err_origin(zi_text_error(&request->text, -ENOENT,
			                                "Job '%s' is not in the catalog",
			                                request->others[i]->name));
		}
		if (!code)
			code = commit_job(catalog, &found, request->others[i], false, false);
	}
	if (!code)
		code = catalog_traffic_write(catalog, request->traffic, request->traffic_count);
	if (code) {
		roll_back(catalog);
		return err_trace(catalog_sql_error(catalog, code, doing, &request->text));
	}
	if (!catalog->stamp) {
		r = prepare_mark(catalog, request, doing);
		if (r)
			return err_trace(r);
	}
	code = catalog_sql_step(catalog, CATALOG_SQL_COMMIT);
	if (!code && catalog->stamp)
		catalog_mark_note(catalog, request, catalog->stamp);
	if (!code)
		return 0;
	roll_back(catalog);
	if ((code & 0xff) == SQLITE_IOERR)
		fence(catalog);
	return err_trace(catalog_sql_error(catalog, code, doing, &request->text));
}

/*
 * Carries @request out.
 * Return: 0; -EEXIST, -ENOENT for the job's name; -ENODATA no such commit to step back to; -ENOSPC,
 * -EIO and other errors of SQLite, with the former commit in force.
 */
int catalog_commit(struct catalog *catalog, struct catalog_request *request)
{
	const struct catalog_job *job = request->job;
	bool is_power_job = request->kind == CATALOG_JOB_CREATE &&
	                    job->config.durability == ZI_DURABILITY_POWER;
	int code;

	assert(request->kind >= CATALOG_JOB_CREATE);
	assert(request->kind <= CATALOG_STEP_BACK);
	if (catalog->broken)
		return err_origin(zi_text_error(
			&request->text, catalog->broken,
			"%s failed in a commit and could not be mended: nothing is committed until "
			"zinfd is started again on a sound disk",
			catalog->path));
	code = catalog_set_synced(catalog, request->is_durable || is_power_job);
	if (code)
		return err_trace(catalog_sql_error(catalog, code, "syncing", &request->text));
	return err_trace(run_transaction(catalog, request));
}
