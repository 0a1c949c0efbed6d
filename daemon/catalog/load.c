/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs out of the tables, as they stand at their last commit. Floor 2, start-up: the control
 * thread.
 *
 * quick_check has said that the file is well-formed; what it says is checked here before anyone
 * computes with it: a row that is not what its checksum says, a value outside its range, rows that
 * are missing are damage, named by table. It is the one job's: that is handed over with what can be
 * read of it, and with the damage in words; the others are none the worse.
 *
 * A job is a handful of arrays, each counted first and then filled, with all hashes in one block
 * and all blobs in another, so that 10^5 extents are not 10^5 allocations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/load.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "hashes and shapes are stored as they lie");

void load_note_damage(struct loader *loader, struct loaded_job *job, const char *what,
                      const char *table)
{
	struct zi_text *damage = &job->job.damage;

	if (!damage->chars[0])
		zi_text_set(damage, "%s in table %s of %s", what, table, loader->catalog->path);
}

/* Of the job. */
static void note_damage(struct loader *loader, const char *what, const char *table)
{
	load_note_damage(loader, loader->loaded, what, table);
}

bool load_take_u32(sqlite3_stmt *row, int column, uint32_t maximum, uint32_t *ret_value)
{
	int64_t value = sqlite3_column_int64(row, column);

	if (value < 0 || value > maximum)
		return false;
	*ret_value = (uint32_t)value;
	return true;
}

uint64_t load_take_u64(sqlite3_stmt *row, int column)
{
	return (uint64_t)sqlite3_column_int64(row, column);
}

static bool take_name(sqlite3_stmt *row, int column, char *target, size_t capacity)
{
	const char *name = (const char *)sqlite3_column_text(row, column);

	return name && zi_copy_name(target, capacity, name) == 0;
}

/* ---- the tables of a job ---- */

void *load_allocate(uint64_t count, size_t element_bytes)
{
	return calloc(count ? count : 1, element_bytes);
}

int load_allocate_nothing(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	(void)loader;
	(void)row_count;
	(void)blob_bytes;
	return 0;
}

static int allocate_sets(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct catalog_job *job = &loader->loaded->job;

	(void)blob_bytes; /* None. */
	job->sets = load_allocate(row_count, sizeof(*job->sets));
	job->set_count = row_count;
	return job->sets ? 0 : -ENOMEM;
}

static bool take_set(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_set *set = &loader->loaded->job.sets[index];

	set->members = load_take_u64(row, 3);
	return load_take_u64(row, 1) == index && set->members &&
	       take_name(row, 2, set->name, sizeof(set->name));
}

static int allocate_units(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct catalog_job *job = &loader->loaded->job;

	(void)blob_bytes; /* None. */
	job->units = load_allocate(row_count, sizeof(*job->units));
	job->unit_count = row_count;
	return job->units ? 0 : -ENOMEM;
}

static bool take_unit(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;
	struct catalog_unit *unit = &job->units[index];

	return load_take_u64(row, 1) == index &&
	       take_name(row, 2, unit->name, sizeof(unit->name)) &&
	       load_take_u32(row, 3, ZI_MAX(job->set_count, 1u) - 1, &unit->member_set);
}

static int allocate_params(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct catalog_job *job = &loader->loaded->job;

	(void)blob_bytes; /* Shapes lie in the struct. */
	job->params = load_allocate(row_count, sizeof(*job->params));
	job->param_count = row_count;
	return job->params ? 0 : -ENOMEM;
}

static bool take_param(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;
	struct catalog_param *param = &job->params[index];
	uint32_t shape_bytes = (uint32_t)sqlite3_column_bytes(row, 4);

	if (load_take_u64(row, 1) != index || !take_name(row, 2, param->name, sizeof(param->name)))
		return false;
	if (!load_take_u32(row, 3, UINT32_MAX, &param->unit) || param->unit >= job->unit_count)
		return false;
	if (shape_bytes % sizeof(param->shape[0]) || shape_bytes > sizeof(param->shape))
		return false;
	param->dim_count = shape_bytes / (uint32_t)sizeof(param->shape[0]);
	if (shape_bytes)
		memcpy(param->shape, sqlite3_column_blob(row, 4), shape_bytes);
	return true;
}

static int allocate_incarnations(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct catalog_job *job = &loader->loaded->job;

	(void)blob_bytes; /* None. */
	job->incarnations = load_allocate(row_count, sizeof(*job->incarnations));
	job->incarnation_count = row_count;
	return job->incarnations ? 0 : -ENOMEM;
}

static bool take_incarnation(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;
	struct catalog_incarnation *incarnation = &job->incarnations[index];

	incarnation->number = load_take_u64(row, 1);
	return index < CATALOG_INCARNATIONS_MAX && incarnation->number <= job->incarnation_number &&
	       take_name(row, 2, incarnation->name, sizeof(incarnation->name)) &&
	       incarnation->name[0];
}

static bool take_start(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;

	loader->start_count++;
	job->incarnation_number = load_take_u64(row, 1);
	if (sqlite3_column_bytes(row, 3) != sizeof(job->training))
		return false;
	memcpy(job->training, sqlite3_column_blob(row, 3), sizeof(job->training));
	return index == 0 && take_name(row, 2, job->incarnation, sizeof(job->incarnation));
}

static const struct load_table load_tables[] = {
	{ "start", "SELECT count(*), 0 FROM start WHERE job_id = ?1",
	  "SELECT job_id, number, name, training, checksum FROM start WHERE job_id = ?1",
	  load_allocate_nothing, take_start },
	{ "member_set", "SELECT count(*), 0 FROM member_set WHERE job_id = ?1",
	  "SELECT job_id, number, name, members, checksum FROM member_set"
	  " WHERE job_id = ?1 ORDER BY number",
	  allocate_sets, take_set },
	{ "unit", "SELECT count(*), 0 FROM unit WHERE job_id = ?1",
	  "SELECT job_id, unit, name, member_set, checksum FROM unit"
	  " WHERE job_id = ?1 ORDER BY unit",
	  allocate_units, take_unit },
	{ "param", "SELECT count(*), 0 FROM param WHERE job_id = ?1",
	  "SELECT job_id, param, name, unit, shape, checksum FROM param"
	  " WHERE job_id = ?1 ORDER BY param",
	  allocate_params, take_param },
	{ "incarnation", "SELECT count(*), 0 FROM incarnation WHERE job_id = ?1",
	  "SELECT job_id, number, name, checksum FROM incarnation"
	  " WHERE job_id = ?1 ORDER BY number",
	  allocate_incarnations, take_incarnation },
};

int load_prepare(struct loader *loader, const char *sql, sqlite3_stmt **ret_statement)
{
	int code = sqlite3_prepare_v2(loader->catalog->db, sql, -1, ret_statement, NULL);

	if (!code)
		code = sqlite3_bind_int64(*ret_statement, 1, loader->job_id);
	if (!code && sqlite3_bind_parameter_count(*ret_statement) > 1)
		code = sqlite3_bind_int64(*ret_statement, 2, loader->slot);
	return code;
}

int load_table(struct loader *loader, const struct load_table *table)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *count = NULL;
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *rows = NULL;
	uint32_t row_count;
	int code;
	int r;

	assert(loader->target);
	code = load_prepare(loader, table->count_sql, &count);
	if (!code)
		code = load_prepare(loader, table->rows_sql, &rows);
	if (!code)
		code = sqlite3_step(count);
	if (code != SQLITE_ROW)
		return err_trace(
			catalog_sql_error(loader->catalog, code, "counting rows", loader->text));
	row_count = (uint32_t)sqlite3_column_int64(count, 0); /* Never more than 2^32 rows. */
	r = table->allocate(loader, row_count, load_take_u64(count, 1));
	if (r)
		return err_origin(zi_text_error(loader->text, r,
		                                "No memory for job '%s': %u rows of table %s",
		                                loader->loaded->job.name, row_count, table->name));
	for (uint32_t i = 0; i < row_count; i++) {
		code = sqlite3_step(rows);
		if (code != SQLITE_ROW)
			return err_trace(catalog_sql_error(loader->catalog, code, "reading rows",
			                                   loader->text));
		if (!table->take(loader, rows, i))
			load_note_damage(loader, loader->target, "a value out of its range",
			                 table->name);
		if (!catalog_seal_is_whole(rows, 0))
			load_note_damage(loader, loader->target, "the checksum of a row",
			                 table->name);
	}
	return 0;
}

/* The id is given by the insert, after the checksum: what hangs on it is counted. */
static const char load_jobs_sql[] =
	"SELECT id, name, uid, param_dtype, grad_dtype, optimizer, schedule, offload_optimizer,"
	" offload_param, durability, snapshot, is_automatic, created_s, extra, set_count,"
	" unit_count, param_count, checksum FROM job ORDER BY id";

static bool take_job(struct loader *loader, sqlite3_stmt *row)
{
	struct catalog_job *job = &loader->loaded->job;
	struct catalog_job_config *config = &job->config;

	job->is_automatic = load_take_u64(row, 11) != 0;
	job->created_s = load_take_u64(row, 12);
	return load_take_u32(row, 2, UINT32_MAX, &job->uid) &&
	       load_take_u32(row, 3, _ZI_DTYPE_FLOAT_COUNT - 1, &config->param_dtype) &&
	       load_take_u32(row, 4, _ZI_DTYPE_FLOAT_COUNT - 1, &config->grad_dtype) &&
	       load_take_u32(row, 5, _ZI_OPTIMIZER_COUNT - 1, &config->optimizer) &&
	       load_take_u32(row, 6, _ZI_SCHEDULE_COUNT - 1, &config->schedule) &&
	       load_take_u32(row, 7, _ZI_OFFLOAD_COUNT - 1, &config->offload_optimizer) &&
	       load_take_u32(row, 8, _ZI_OFFLOAD_COUNT - 1, &config->offload_param) &&
	       load_take_u32(row, 9, _ZI_DURABILITY_COUNT - 1, &config->durability) &&
	       take_name(row, 10, job->snapshot, sizeof(job->snapshot)) &&
	       load_take_u32(row, 14, UINT32_MAX, &loader->set_count) &&
	       load_take_u32(row, 15, UINT32_MAX, &loader->unit_count) &&
	       load_take_u32(row, 16, UINT32_MAX, &loader->param_count);
}

/* What is carried of a job and not looked at. */
static int take_extra(struct loader *loader, sqlite3_stmt *row)
{
	struct loaded_job *loaded = loader->loaded;
	struct catalog_job *job = &loaded->job;
	uint32_t extra_bytes = (uint32_t)sqlite3_column_bytes(row, 13);

	if (extra_bytes > CATALOG_EXTRA_BYTES_MAX) {
		note_damage(loader, "a value out of its range", "job");
		extra_bytes = 0;
	}
	loaded->extra = load_allocate(extra_bytes, 1);
	if (!loaded->extra)
		return err_origin(
			zi_text_error(loader->text, -ENOMEM, "No memory for job '%s'", job->name));
	if (extra_bytes)
		memcpy(loaded->extra, sqlite3_column_blob(row, 13), extra_bytes);
	job->extra = loaded->extra;
	job->extra_bytes = extra_bytes;
	return 0;
}

/* A damaged job is still called something that can be printed, and that no other is called. */
static void name_job(struct loader *loader, sqlite3_stmt *row, bool is_whole)
{
	char *name = loader->loaded->job.name;

	if (is_whole && take_name(row, 1, name, ZI_NAME_BYTES) && name[0])
		return;
	note_damage(loader, "the checksum of a row", "job");
	(void)snprintf(name, ZI_NAME_BYTES, "damaged-%lld", (long long)loader->job_id); /* Fits. */
}

/* What is missing altogether has no checksum that could tell. */
static void count_rows(struct loader *loader)
{
	const struct catalog_job *job = &loader->loaded->job;

	if (job->set_count != loader->set_count)
		note_damage(loader, "the number of rows", "member_set");
	if (job->unit_count != loader->unit_count)
		note_damage(loader, "the number of rows", "unit");
	if (job->param_count != loader->param_count)
		note_damage(loader, "the number of rows", "param");
	if (loader->start_count != 1)
		note_damage(loader, "the number of rows", "start");
	/* Of a step, or there was nothing to keep. */
	if (job->snapshot[0] && job->step < 0)
		note_damage(loader, "a value out of its range", "stand");
}

static int load_job(struct catalog *catalog, sqlite3_stmt *row, struct zi_text *text,
                    struct catalog_job **ret_job)
{
	_cleanup_(catalog_job_freep) struct catalog_job *job = NULL;
	struct loader loader = { .catalog = catalog, .text = text };
	int r;

	loader.loaded = calloc(1, sizeof(*loader.loaded));
	if (!loader.loaded)
		return err_origin(zi_text_error(text, -ENOMEM, "No memory for a job"));
	job = &loader.loaded->job;
	loader.target = loader.loaded;
	loader.job_id = sqlite3_column_int64(row, 0);
	name_job(&loader, row, catalog_seal_is_whole(row, 1));
	if (!take_job(&loader, row))
		note_damage(&loader, "a value out of its range", "job");
	r = take_extra(&loader, row);
	if (r)
		return err_trace(r);
	for (size_t i = 0; i < ZI_COUNT_OF(load_tables); i++) {
		r = load_table(&loader, &load_tables[i]);
		if (r)
			return err_trace(r);
	}
	r = load_stands(&loader);
	if (r)
		return err_trace(r);
	count_rows(&loader);
	*ret_job = zi_steal(job);
	return 0;
}

/* A job whose own row is gone leaves the others of it. */
static int check_orphans(struct catalog *catalog, struct zi_text *text)
{
	int64_t count = 0;
	int code = catalog_sql_get_int64(catalog,
	                                 "SELECT count(DISTINCT job_id) FROM stand"
	                                 " WHERE job_id NOT IN (SELECT id FROM job)",
	                                 &count);

	if (code)
		return err_trace(catalog_sql_error(catalog, code, "counting jobs", text));
	if (count)
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"%s is damaged: table job lacks %lld rows that table stand names; nothing "
			"was changed: restore the file, or move it away to start over",
			catalog->path, (long long)count));
	return 0;
}

/*
 * Calls @each once for every job and snapshot, in the order in which they were made; what it
 * returns, if not 0, ends the walk and is returned. @each owns the job, and does not call the
 * catalog. A job with `damage` may have any of its values wrong, and is to be refused.
 * Return: 0, -EUCLEAN damage that is no job's alone, -EIO, -ENOMEM, or @each's.
 */
int catalog_load_jobs(struct catalog *catalog, catalog_job_fn each, void *arg, struct zi_text *text)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *rows = NULL;
	int code;
	int r;

	assert(!catalog->thread.is_started);
	r = check_orphans(catalog, text);
	if (r)
		return err_trace(r);
	code = sqlite3_prepare_v2(catalog->db, load_jobs_sql, -1, &rows, NULL);
	while (!code && (code = sqlite3_step(rows)) == SQLITE_ROW) {
		struct catalog_job *job = NULL;

		r = load_job(catalog, rows, text, &job);
		if (!r)
			r = each(arg, job);
		if (r)
			return err_fold(r);
		code = SQLITE_OK;
	}
	if (code != SQLITE_DONE)
		return err_trace(catalog_sql_error(catalog, code, "reading jobs", text));
	return 0;
}
