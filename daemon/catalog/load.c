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
#include "daemon/catalog/catalog_private.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "hashes and shapes are stored as they lie");

struct loader {
	struct catalog *catalog;
	struct zi_text *text;
	int64_t job_id;
	uint32_t unit_count, param_count, blob_count; /* as the job's own rows say */
	uint32_t stand_count, start_count;            /* rows that were there */
	uint64_t wanted_sum, sum;                     /* of the checksums of extents and blobs */
	struct loaded_job *loaded;
};

/* How the rows of one table become an array. */
struct load_table {
	const char *name;
	const char *count_sql; /* rows, bytes of their blobs */
	const char *rows_sql;
	int (*allocate)(struct loader *loader, uint32_t row_count, uint64_t blob_bytes);
	/* False: the row is damaged. */
	bool (*take)(struct loader *loader, sqlite3_stmt *row, uint32_t index);
};

/* Notes the first damage of the job. */
static void note_damage(struct loader *loader, const char *what, const char *table)
{
	struct zi_text *damage = &loader->loaded->job.damage;

	if (!damage->chars[0])
		zi_text_set(damage, "%s in table %s of %s", what, table, loader->catalog->path);
}

/* An integer in [0, maximum]. Rows are STRICT, so that it is one. */
static bool take_u32(sqlite3_stmt *row, int column, uint32_t maximum, uint32_t *ret_value)
{
	int64_t value = sqlite3_column_int64(row, column);

	if (value < 0 || value > maximum)
		return false;
	*ret_value = (uint32_t)value;
	return true;
}

static uint64_t take_u64(sqlite3_stmt *row, int column)
{
	return (uint64_t)sqlite3_column_int64(row, column);
}

static bool take_name(sqlite3_stmt *row, int column, char *target, size_t capacity)
{
	const char *name = (const char *)sqlite3_column_text(row, column);

	return name && zi_copy_name(target, capacity, name) == 0;
}

/* ---- the tables of a job ---- */

static void *allocate_array(uint64_t count, size_t element_bytes)
{
	return calloc(count ? count : 1, element_bytes);
}

static int allocate_units(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct catalog_job *job = &loader->loaded->job;

	(void)blob_bytes; /* None. */
	job->units = allocate_array(row_count, sizeof(*job->units));
	job->unit_count = row_count;
	return job->units ? 0 : -ENOMEM;
}

static bool take_unit(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_unit *unit = &loader->loaded->job.units[index];

	return take_u64(row, 1) == index && take_name(row, 2, unit->name, sizeof(unit->name));
}

static int allocate_params(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct catalog_job *job = &loader->loaded->job;

	(void)blob_bytes; /* Shapes lie in the struct. */
	job->params = allocate_array(row_count, sizeof(*job->params));
	job->param_count = row_count;
	return job->params ? 0 : -ENOMEM;
}

static bool take_param(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;
	struct catalog_param *param = &job->params[index];
	uint32_t shape_bytes = (uint32_t)sqlite3_column_bytes(row, 4);

	if (take_u64(row, 1) != index || !take_name(row, 2, param->name, sizeof(param->name)))
		return false;
	if (!take_u32(row, 3, UINT32_MAX, &param->unit) || param->unit >= job->unit_count)
		return false;
	if (shape_bytes % sizeof(param->shape[0]) || shape_bytes > sizeof(param->shape))
		return false;
	param->dim_count = shape_bytes / (uint32_t)sizeof(param->shape[0]);
	if (shape_bytes)
		memcpy(param->shape, sqlite3_column_blob(row, 4), shape_bytes);
	return true;
}

static int allocate_extents(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct loaded_job *loaded = loader->loaded;

	loaded->job.extents = allocate_array(row_count, sizeof(*loaded->job.extents));
	loaded->job.extent_count = row_count;
	loaded->hash_capacity = blob_bytes / sizeof(*loaded->hashes);
	loaded->hashes = allocate_array(loaded->hash_capacity, sizeof(*loaded->hashes));
	return loaded->job.extents && loaded->hashes ? 0 : -ENOMEM;
}

/* A damaged row keeps its place, and its hashes theirs. */
static bool take_extent(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct loaded_job *loaded = loader->loaded;
	struct catalog_extent *extent = &loaded->job.extents[index];
	uint32_t hash_bytes = (uint32_t)sqlite3_column_bytes(row, 8);
	uint64_t *hashes = loaded->hashes;
	uint32_t plane;

	/* Where the former extent's hashes end. */
	if (index)
		hashes = (uint64_t *)extent[-1].hashes + extent[-1].hash_count;
	extent->hashes = hashes;
	extent->extent.offset_bytes = take_u64(row, 5);
	extent->extent.bytes = take_u64(row, 6);
	extent->step = take_u64(row, 7);
	loader->sum += take_u64(row, 9);
	if (sqlite3_column_bytes(row, 4) == sizeof(extent->store_uuid))
		memcpy(extent->store_uuid, sqlite3_column_blob(row, 4), sizeof(extent->store_uuid));
	if (!take_u32(row, 1, ZI_PLANE_STATE, &plane) ||
	    !take_u32(row, 2, UINT32_MAX, &extent->unit) ||
	    !take_u32(row, 3, UINT32_MAX, &extent->subgroup) ||
	    sqlite3_column_bytes(row, 4) != sizeof(extent->store_uuid) ||
	    hash_bytes % sizeof(*hashes))
		return false;
	extent->plane = (enum zi_plane)plane;
	extent->hash_count = hash_bytes / (uint32_t)sizeof(*hashes);
	/* The sum was taken in the same state of the file: nobody else has it. */
	assert((uint64_t)(hashes - loaded->hashes) + extent->hash_count <= loaded->hash_capacity);
	if (hash_bytes)
		memcpy(hashes, sqlite3_column_blob(row, 8), hash_bytes);
	/* Nothing of a step that was never committed. */
	return extent->unit < loaded->job.unit_count && extent->step <= INT64_MAX &&
	       (int64_t)extent->step <= loaded->job.step;
}

static int allocate_blobs(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct loaded_job *loaded = loader->loaded;

	loaded->job.blobs = allocate_array(row_count, sizeof(*loaded->job.blobs));
	loaded->job.blob_count = row_count;
	loaded->blob_bytes = allocate_array(blob_bytes, 1);
	loaded->blob_capacity = blob_bytes;
	return loaded->job.blobs && loaded->blob_bytes ? 0 : -ENOMEM;
}

static bool take_blob(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct loaded_job *loaded = loader->loaded;
	struct catalog_blob *blob = &loaded->job.blobs[index];
	uint8_t *bytes = loaded->blob_bytes;

	if (index)
		bytes = (uint8_t *)blob[-1].bytes + blob[-1].byte_count;
	blob->byte_count = (uint64_t)sqlite3_column_bytes(row, 2);
	loader->sum += take_u64(row, 3);
	blob->bytes = bytes;
	assert((uint64_t)(bytes - loaded->blob_bytes) + blob->byte_count <= loaded->blob_capacity);
	if (blob->byte_count)
		memcpy(bytes, sqlite3_column_blob(row, 2), blob->byte_count);
	return take_u32(row, 1, UINT32_MAX, &blob->rank) && blob->rank < loaded->job.world_size;
}

static int allocate_incarnations(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct catalog_job *job = &loader->loaded->job;

	(void)blob_bytes; /* None. */
	job->incarnations = allocate_array(row_count, sizeof(*job->incarnations));
	job->incarnation_count = row_count;
	return job->incarnations ? 0 : -ENOMEM;
}

static bool take_incarnation(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;
	struct catalog_incarnation *incarnation = &job->incarnations[index];

	incarnation->number = take_u64(row, 1);
	return index < CATALOG_INCARNATIONS_MAX && incarnation->number <= job->incarnation_number &&
	       take_name(row, 2, incarnation->name, sizeof(incarnation->name)) &&
	       incarnation->name[0];
}

/* Of the job itself: nothing to allocate. */
static int allocate_nothing(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	(void)loader;
	(void)row_count;
	(void)blob_bytes;
	return 0;
}

static bool take_stand(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;

	loader->stand_count++;
	job->step = sqlite3_column_int64(row, 1);
	job->update_count = take_u64(row, 3);
	job->beta1_power = sqlite3_column_double(row, 4);
	job->beta2_power = sqlite3_column_double(row, 5);
	loader->wanted_sum = take_u64(row, 7);
	return index == 0 && job->step >= -1 && take_u32(row, 2, ZI_WORLD_MAX, &job->world_size) &&
	       job->world_size > 0 && take_u32(row, 6, ZI_WORLD_MAX, &loader->blob_count);
}

static bool take_start(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->loaded->job;

	loader->start_count++;
	job->incarnation_number = take_u64(row, 1);
	return index == 0 && take_name(row, 2, job->incarnation, sizeof(job->incarnation));
}

static const struct load_table load_tables[] = {
	{ "stand", "SELECT count(*), 0 FROM stand WHERE job_id = ?1",
	  "SELECT job_id, step, world_size, update_count, beta1_power, beta2_power, blob_count,"
	  " rows_sum, checksum FROM stand WHERE job_id = ?1",
	  allocate_nothing, take_stand },
	{ "start", "SELECT count(*), 0 FROM start WHERE job_id = ?1",
	  "SELECT job_id, number, name, checksum FROM start WHERE job_id = ?1", allocate_nothing,
	  take_start },
	{ "unit", "SELECT count(*), 0 FROM unit WHERE job_id = ?1",
	  "SELECT job_id, unit, name, checksum FROM unit WHERE job_id = ?1 ORDER BY unit",
	  allocate_units, take_unit },
	{ "param", "SELECT count(*), 0 FROM param WHERE job_id = ?1",
	  "SELECT job_id, param, name, unit, shape, checksum FROM param"
	  " WHERE job_id = ?1 ORDER BY param",
	  allocate_params, take_param },
	{ "extent", "SELECT count(*), total(length(hashes)) FROM extent WHERE job_id = ?1",
	  "SELECT job_id, plane, unit, subgroup, store_uuid, offset, bytes, step, hashes,"
	  " checksum FROM extent"
	  " WHERE job_id = ?1 ORDER BY plane, unit, subgroup",
	  allocate_extents, take_extent },
	{ "incarnation", "SELECT count(*), 0 FROM incarnation WHERE job_id = ?1",
	  "SELECT job_id, number, name, checksum FROM incarnation"
	  " WHERE job_id = ?1 ORDER BY number",
	  allocate_incarnations, take_incarnation },
	{ "blob", "SELECT count(*), total(length(bytes)) FROM blob WHERE job_id = ?1",
	  "SELECT job_id, rank, bytes, checksum FROM blob WHERE job_id = ?1 ORDER BY rank",
	  allocate_blobs, take_blob },
};

/* Prepares a statement for the loader's job. */
static int load_prepare(struct loader *loader, const char *sql, sqlite3_stmt **ret_statement)
{
	int code = sqlite3_prepare_v2(loader->catalog->db, sql, -1, ret_statement, NULL);

	if (!code)
		code = sqlite3_bind_int64(*ret_statement, 1, loader->job_id);
	return code;
}

static int load_table(struct loader *loader, const struct load_table *table)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *count = NULL;
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *rows = NULL;
	uint32_t row_count;
	int code;
	int r;

	code = load_prepare(loader, table->count_sql, &count);
	if (!code)
		code = load_prepare(loader, table->rows_sql, &rows);
	if (!code)
		code = sqlite3_step(count);
	if (code != SQLITE_ROW)
		return err_trace(
			catalog_sql_error(loader->catalog, code, "counting rows", loader->text));
	row_count = (uint32_t)sqlite3_column_int64(count, 0); /* Never more than 2^32 rows. */
	r = table->allocate(loader, row_count, take_u64(count, 1));
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
			note_damage(loader, "a value out of its range", table->name);
		if (!catalog_seal_is_whole(rows, 0))
			note_damage(loader, "the checksum of a row", table->name);
	}
	return 0;
}

/* The id is given by the insert, after the checksum: what hangs on it is counted. */
static const char load_jobs_sql[] =
	"SELECT id, name, uid, param_dtype, grad_dtype, optimizer, schedule, offload_optimizer,"
	" offload_param, durability, snapshot, is_automatic, created_s, unit_count, param_count,"
	" checksum FROM job ORDER BY id";

static bool take_job(struct loader *loader, sqlite3_stmt *row)
{
	struct catalog_job *job = &loader->loaded->job;
	struct catalog_job_config *config = &job->config;

	job->is_automatic = take_u64(row, 11) != 0;
	job->created_s = take_u64(row, 12);
	return take_u32(row, 2, UINT32_MAX, &job->uid) &&
	       take_u32(row, 3, _ZI_DTYPE_FLOAT_COUNT - 1, &config->param_dtype) &&
	       take_u32(row, 4, _ZI_DTYPE_FLOAT_COUNT - 1, &config->grad_dtype) &&
	       take_u32(row, 5, _ZI_OPTIMIZER_COUNT - 1, &config->optimizer) &&
	       take_u32(row, 6, _ZI_SCHEDULE_COUNT - 1, &config->schedule) &&
	       take_u32(row, 7, _ZI_OFFLOAD_COUNT - 1, &config->offload_optimizer) &&
	       take_u32(row, 8, _ZI_OFFLOAD_COUNT - 1, &config->offload_param) &&
	       take_u32(row, 9, _ZI_DURABILITY_COUNT - 1, &config->durability) &&
	       take_name(row, 10, job->snapshot, sizeof(job->snapshot)) &&
	       take_u32(row, 13, UINT32_MAX, &loader->unit_count) &&
	       take_u32(row, 14, UINT32_MAX, &loader->param_count);
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

	if (job->unit_count != loader->unit_count)
		note_damage(loader, "the number of rows", "unit");
	if (job->param_count != loader->param_count)
		note_damage(loader, "the number of rows", "param");
	if (job->blob_count != loader->blob_count)
		note_damage(loader, "the number of rows", "blob");
	if (loader->stand_count != 1)
		note_damage(loader, "the number of rows", "stand");
	if (loader->start_count != 1)
		note_damage(loader, "the number of rows", "start");
	if (loader->sum != loader->wanted_sum)
		note_damage(loader, "rows of another commit", "extent or blob");
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
	loader.job_id = sqlite3_column_int64(row, 0);
	name_job(&loader, row, catalog_seal_is_whole(row, 1));
	if (!take_job(&loader, row))
		note_damage(&loader, "a value out of its range", "job");
	for (size_t i = 0; i < ZI_COUNT_OF(load_tables); i++) {
		r = load_table(&loader, &load_tables[i]);
		if (r)
			return err_trace(r);
	}
	count_rows(&loader);
	*ret_job = zi_steal(job);
	return 0;
}

/* A job whose own row is gone leaves the others of it. */
static int check_orphans(struct catalog *catalog, struct zi_text *text)
{
	int64_t count = 0;
	int code = catalog_sql_get_int64(
		catalog, "SELECT count(*) FROM stand WHERE job_id NOT IN (SELECT id FROM job)",
		&count);

	if (code)
		return err_trace(catalog_sql_error(catalog, code, "counting jobs", text));
	if (count)
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"%s is damaged: table job lacks %lld rows that table stand names; nothing "
			"was changed: restore the file, or move it away to begin anew",
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
