/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a request, sealed, into the tables: within its transaction. Floor 2; commit thread.
 * Results are codes of SQLite. */
#include <string.h>

#include "common/base/assert.h"
#include "daemon/catalog/catalog_private.h"

/* Binds the parameters of a kept statement from left to right, and their checksum last; the first
 * failure stays. */
struct row {
	struct catalog *catalog;
	enum catalog_statement statement;
	sqlite3_stmt *handle;
	int index;
	int code;
	struct catalog_seal seal;
};

static struct row row_begin(struct catalog *catalog, enum catalog_statement statement)
{
	return (struct row){
		.catalog = catalog,
		.statement = statement,
		.handle = catalog->statements[statement],
	};
}

static void row_int(struct row *row, uint64_t value)
{
	row->index++;
	catalog_seal_int(&row->seal, value);
	if (!row->code)
		row->code = sqlite3_bind_int64(row->handle, row->index, (sqlite3_int64)value);
}

/* Not sealed: where a row lies, rather than what it says. */
static void row_slot(struct row *row, uint32_t slot)
{
	assert(slot < CATALOG_SLOTS);
	row->index++;
	if (!row->code)
		row->code = sqlite3_bind_int64(row->handle, row->index, slot);
}

static void row_double(struct row *row, double value)
{
	row->index++;
	catalog_seal_double(&row->seal, value);
	if (!row->code)
		row->code = sqlite3_bind_double(row->handle, row->index, value);
}

static void row_text(struct row *row, const char *value)
{
	row->index++;
	catalog_seal_bytes(&row->seal, SQLITE_TEXT, value, strlen(value));
	if (!row->code)
		row->code = sqlite3_bind_text(row->handle, row->index, value, -1, SQLITE_STATIC);
}

static void row_blob(struct row *row, const void *value, uint64_t bytes)
{
	row->index++;
	catalog_seal_bytes(&row->seal, SQLITE_BLOB, value, bytes);
	/* NULL would be bound as SQL's NULL rather than as nothing. */
	if (!row->code)
		row->code = sqlite3_bind_blob64(row->handle, row->index, bytes ? value : "", bytes,
		                                SQLITE_STATIC);
}

/* Runs a statement that writes no row. Return: a code of SQLite, here and below. */
static int row_run(struct row *row)
{
	assert(row->code || row->index == sqlite3_bind_parameter_count(row->handle));
	if (!row->code)
		row->code = catalog_sql_step(row->catalog, row->statement);
	(void)sqlite3_clear_bindings(row->handle); /* Cannot fail. They point at the caller's. */
	return row->code;
}

/* Adds the checksum, and writes the row. */
static int row_end(struct row *row)
{
	row_int(row, catalog_seal_value(&row->seal));
	return row_run(row);
}

/* Without its layout. */
int catalog_write_job(struct catalog *catalog, const struct catalog_job *job)
{
	struct row row = row_begin(catalog, CATALOG_SQL_JOB_INSERT);

	assert(job->extra_bytes <= CATALOG_EXTRA_BYTES_MAX);
	row_text(&row, job->name);
	row_int(&row, job->uid);
	row_int(&row, job->config.param_dtype);
	row_int(&row, job->config.grad_dtype);
	row_int(&row, job->config.optimizer);
	row_int(&row, job->config.schedule);
	row_int(&row, job->config.offload_optimizer);
	row_int(&row, job->config.offload_param);
	row_int(&row, job->config.durability);
	row_text(&row, job->snapshot);
	row_int(&row, job->is_automatic);
	row_int(&row, job->created_s);
	row_blob(&row, job->extra, job->extra_bytes);
	row_int(&row, job->set_count);
	row_int(&row, job->unit_count);
	row_int(&row, job->param_count);
	return row_end(&row);
}

/* The sum of the checksums of all extents and blobs in the slot, modulo 2^64. */
static int sum_rows(struct catalog *catalog, struct catalog_slot slot, uint64_t *ret_sum)
{
	sqlite3_stmt *handle = catalog->statements[CATALOG_SQL_ROWS];
	uint64_t sum = 0;
	int code = sqlite3_bind_int64(handle, 1, slot.job_id);

	if (!code)
		code = sqlite3_bind_int64(handle, 2, slot.index);
	while (!code && (code = sqlite3_step(handle)) == SQLITE_ROW) {
		sum += (uint64_t)sqlite3_column_int64(handle, 0);
		code = SQLITE_OK;
	}
	(void)sqlite3_reset(handle); /* Repeats the code of the step. */
	*ret_sum = sum;
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* See catalog_private.h. */
int catalog_newest_stamp(struct catalog *catalog, uint64_t *ret_stamp)
{
	sqlite3_stmt *handle = catalog->statements[CATALOG_SQL_STAND_STAMP];
	int code = sqlite3_step(handle);

	*ret_stamp = code == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(handle, 0) : 0;
	(void)sqlite3_reset(handle); /* Repeats the code of the step. */
	return code == SQLITE_ROW ? SQLITE_OK : code;
}

/* Larger than that of any stand there is; a catalog that has come to the end of them orders the
 * newest no more. */
static int next_stamp(struct catalog *catalog, uint64_t *ret_stamp)
{
	uint64_t newest = 0;
	int code = catalog_newest_stamp(catalog, &newest);

	*ret_stamp = newest + (newest < INT64_MAX);
	return code;
}

/*
 * The blobs are those of the ranks of this world. Last of all rows of a commit: each of the others
 * is whole by its own checksum, and their sum says that they belong to *this* commit. A disk that
 * loses a write leaves a page with good rows of a former one.
 */
int catalog_write_stand(struct catalog *catalog, struct catalog_slot slot,
                        const struct catalog_job *job, uint32_t blob_count)
{
	struct row row = row_begin(catalog, CATALOG_SQL_STAND_REPLACE);
	const struct catalog_placement *placement = &job->placement;
	bool has_nodes = placement->node_count > 1;
	uint8_t nodes[ZI_WORLD_MAX + 1]; /* this one last */
	uint64_t sum = 0, stamp = 0;
	int code = sum_rows(catalog, slot, &sum);

	if (!code)
		code = next_stamp(catalog, &stamp);
	assert(job->world_size > 0);
	assert(job->world_size <= ZI_WORLD_MAX);
	assert(job->number <= INT64_MAX);
	assert(job->scaler_bytes <= CATALOG_SCALER_BYTES);
	if (code)
		return code;
	row_int(&row, (uint64_t)slot.job_id);
	row_slot(&row, slot.index);
	row_int(&row, (uint64_t)job->step);
	row_int(&row, job->world_size);
	row_int(&row, job->update_count);
	row_double(&row, job->beta1_power);
	row_double(&row, job->beta2_power);
	row_int(&row, job->number);
	row_int(&row, job->line);
	row_int(&row, stamp);
	row_int(&row, placement->strategy);
	row_int(&row, placement->shard_size);
	row_int(&row, placement->node_count);
	memcpy(nodes, placement->nodes, job->world_size);
	nodes[job->world_size] = placement->node;
	row_blob(&row, nodes, has_nodes ? job->world_size + 1ul : 0);
	row_blob(&row, job->scaler, job->scaler_bytes);
	row_int(&row, blob_count);
	row_int(&row, sum);
	catalog->stamp = stamp;
	return row_end(&row);
}

int catalog_write_start(struct catalog *catalog, int64_t job_id, const struct catalog_job *job)
{
	struct row row = row_begin(catalog, CATALOG_SQL_START_REPLACE);

	row_int(&row, (uint64_t)job_id);
	row_int(&row, job->incarnation_number);
	row_text(&row, job->incarnation);
	row_blob(&row, job->training, sizeof(job->training));
	return row_end(&row);
}

int catalog_write_layout(struct catalog *catalog, int64_t job_id, const struct catalog_job *job)
{
	int code = SQLITE_OK;

	for (uint32_t i = 0; i < job->set_count && !code; i++) {
		struct row row = row_begin(catalog, CATALOG_SQL_SET_INSERT);

		row_int(&row, (uint64_t)job_id);
		row_int(&row, i);
		row_text(&row, job->sets[i].name);
		row_int(&row, job->sets[i].members);
		code = row_end(&row);
	}
	for (uint32_t i = 0; i < job->unit_count && !code; i++) {
		struct row row = row_begin(catalog, CATALOG_SQL_UNIT_INSERT);

		assert(job->units[i].member_set < ZI_MAX(job->set_count, 1u));
		row_int(&row, (uint64_t)job_id);
		row_int(&row, i);
		row_text(&row, job->units[i].name);
		row_int(&row, job->units[i].member_set);
		code = row_end(&row);
	}
	for (uint32_t i = 0; i < job->param_count && !code; i++) {
		const struct catalog_param *param = &job->params[i];
		struct row row = row_begin(catalog, CATALOG_SQL_PARAM_INSERT);

		assert(param->unit < job->unit_count);
		assert(param->dim_count <= ZI_PARAM_DIMS_MAX);
		row_int(&row, (uint64_t)job_id);
		row_int(&row, i);
		row_text(&row, param->name);
		row_int(&row, param->unit);
		row_blob(&row, param->shape, param->dim_count * sizeof(param->shape[0]));
		code = row_end(&row);
	}
	return code;
}

int catalog_write_extents(struct catalog *catalog, struct catalog_slot slot,
                          const struct catalog_job *job)
{
	int code = SQLITE_OK;

	for (uint32_t i = 0; i < job->extent_count && !code; i++) {
		const struct catalog_extent *extent = &job->extents[i];
		struct row row = row_begin(catalog, CATALOG_SQL_EXTENT_REPLACE);

		assert(extent->plane == ZI_PLANE_PARAM || extent->plane == ZI_PLANE_STATE);
		assert(extent->step <= (uint64_t)job->step);
		row_int(&row, (uint64_t)slot.job_id);
		row_slot(&row, slot.index);
		row_int(&row, extent->plane);
		row_int(&row, extent->unit);
		row_int(&row, extent->subgroup);
		row_blob(&row, extent->store_uuid, sizeof(extent->store_uuid));
		row_int(&row, extent->extent.offset_bytes);
		row_int(&row, extent->extent.bytes);
		row_int(&row, extent->step);
		row_blob(&row, extent->hashes, extent->hash_count * sizeof(extent->hashes[0]));
		code = row_end(&row);
	}
	return code;
}

/* Runs a statement whose only parameter is the job. */
int catalog_run_for_job(struct catalog *catalog, enum catalog_statement statement, int64_t job_id)
{
	struct row row = row_begin(catalog, statement);

	row_int(&row, (uint64_t)job_id);
	return row_run(&row);
}

/* Runs a statement whose only parameters are a job and its slot. */
static int run_for_slot(struct catalog *catalog, enum catalog_statement statement,
                        struct catalog_slot slot)
{
	struct row row = row_begin(catalog, statement);

	row_int(&row, (uint64_t)slot.job_id);
	row_slot(&row, slot.index);
	return row_run(&row);
}

/* Rows are copied with their checksums: what was damaged stays damaged. */
int catalog_inherit_extents(struct catalog *catalog, struct catalog_slot slot)
{
	return run_for_slot(catalog, CATALOG_SQL_EXTENT_INHERIT, slot);
}

int catalog_clear_slot(struct catalog *catalog, struct catalog_slot slot)
{
	int code = run_for_slot(catalog, CATALOG_SQL_EXTENT_CLEAR, slot);

	if (!code)
		code = run_for_slot(catalog, CATALOG_SQL_BLOB_CLEAR, slot);
	if (!code)
		code = run_for_slot(catalog, CATALOG_SQL_STAND_CLEAR, slot);
	return code;
}

/* The blobs of the former step are of no use beside the state of this one: all go. */
int catalog_write_blobs(struct catalog *catalog, struct catalog_slot slot,
                        const struct catalog_job *job)
{
	int code = run_for_slot(catalog, CATALOG_SQL_BLOB_CLEAR, slot);

	for (uint32_t i = 0; i < job->blob_count && !code; i++) {
		struct row row = row_begin(catalog, CATALOG_SQL_BLOB_INSERT);

		row_int(&row, (uint64_t)slot.job_id);
		row_slot(&row, slot.index);
		row_int(&row, job->blobs[i].rank);
		row_blob(&row, job->blobs[i].bytes, job->blobs[i].byte_count);
		code = row_end(&row);
	}
	return code;
}

/* Those that the caller names; and the oldest give way. */
int catalog_write_incarnations(struct catalog *catalog, int64_t job_id,
                               const struct catalog_job *job)
{
	uint64_t newest = job->incarnation_number;
	struct row row;

	for (uint32_t i = 0; i < job->incarnation_count; i++) {
		const struct catalog_incarnation *incarnation = &job->incarnations[i];
		int code;

		assert(incarnation->name[0]);
		assert(incarnation->number <= newest);
		row = row_begin(catalog, CATALOG_SQL_INCARNATION_REPLACE);
		row_int(&row, (uint64_t)job_id);
		row_int(&row, incarnation->number);
		row_text(&row, incarnation->name);
		code = row_end(&row);
		if (code)
			return code;
	}
	if (newest <= CATALOG_INCARNATIONS_MAX)
		return SQLITE_OK;
	row = row_begin(catalog, CATALOG_SQL_INCARNATION_FORGET);
	row_int(&row, (uint64_t)job_id);
	row_int(&row, newest - CATALOG_INCARNATIONS_MAX);
	return row_run(&row);
}
