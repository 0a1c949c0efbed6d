/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of loading share (load.c, load_stand.c). Floor 2, start-up: the control
 * thread. */
#pragma once

#include "daemon/catalog/catalog_private.h"

struct loader {
	struct catalog *catalog;
	struct zi_text *text;
	int64_t job_id;
	uint32_t set_count, unit_count, param_count; /* as the job's own row says */
	uint32_t start_count;                        /* rows that were there */
	struct loaded_job *loaded;                   /* the job, whose layout it is */
	/* The slot that is read, and of whom it is: the job, or its former commit. */
	struct loaded_job *target;
	uint32_t slot;
	uint32_t stand_count;     /* rows that were there */
	uint32_t blob_count;      /* as its stand says */
	uint64_t wanted_sum, sum; /* of the checksums of extents and blobs */
};

/* How the rows of one table become an array. */
struct load_table {
	const char *name;
	const char *count_sql; /* rows, bytes of their blobs; ?1: the job, ?2: the slot */
	const char *rows_sql;
	int (*allocate)(struct loader *loader, uint32_t row_count, uint64_t blob_bytes);
	/* False: the row is damaged. */
	bool (*take)(struct loader *loader, sqlite3_stmt *row, uint32_t index);
};

/* ---- load.c ---- */

/* Notes the first damage of @job. */
void load_note_damage(struct loader *loader, struct loaded_job *job, const char *what,
                      const char *table);
/* An integer in [0, @maximum]. Rows are STRICT, so that it is one. */
bool load_take_u32(sqlite3_stmt *row, int column, uint32_t maximum, uint32_t *ret_value);
uint64_t load_take_u64(sqlite3_stmt *row, int column);
void *load_allocate(uint64_t count, size_t element_bytes);
/* Of the job itself: nothing to allocate. */
int load_allocate_nothing(struct loader *loader, uint32_t row_count, uint64_t blob_bytes);
/* Binds what of job and slot the statement asks for. A code of SQLite. */
int load_prepare(struct loader *loader, const char *sql, sqlite3_stmt **ret_statement);
/* Rows into loader->target. 0, -EIO, -ENOMEM. */
int load_table(struct loader *loader, const struct load_table *table);

/* ---- load_stand.c ---- */

/* Both slots: the job's stand, and the former one. 0, -EIO, -ENOMEM. */
int load_stands(struct loader *loader);
