/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the catalog, version 4, and its kept statements. Floor 2.
 *
 * A change here is a change of CATALOG_VERSION. Tables are STRICT, so that quick_check also finds a
 * value of the wrong type. Words that are uint64_t in C are stored as the int64_t of the same bits.
 * The last column of a table is the checksum of the others, in their order (seal.c), but for
 * `slot`.
 *
 *   meta    one row: whose file this is, and which version
 *   store   the stores that extents lie on: a name in the configuration, and what is written in
 *           the store's own superblock
 *   job     a training state: what of it never changes; or (with a name in `snapshot`) of one as it
 *           stood once
 *   stand   where it stands: the committed step, and what the next one's arithmetic needs. A job
 *           has two slots for stands, each with its extents and blobs: the one in force has the
 *           larger number. One of several nodes keeps the commit before in the other until all
 *           nodes have made theirs; in one node there is one slot, which each commit replaces.
 *           A checksum leaves the slot out, so that a row can be copied into the other one:
 *           which rows belong to a stand is what rows_sum says
 *   start   its newest incarnation, and how that one asked to train
 *   member_set  which ranks train which of its units together
 *   unit    its units and parameters, in order of registration
 *   param
 *   extent  where each subgroup's planes of the committed step lie. Without a rowid, in the order
 *           of its key, which is that in which a commit replaces them; what tells most rows apart
 *           comes first, as a row is found by comparing column after column
 *   blob    what each rank wants to have back on resume
 *   traffic what was read and written, of stores, uids and jobs (traffic.c): "job:NAME" goes with
 *           the job, the others stay
 *   incarnation  the newest starts of a job that had names, so that older ones are known as such
 */
#include "common/base/assert.h"
#include "daemon/catalog/catalog_private.h"

const char catalog_schema_sql[] =
	"CREATE TABLE meta("
	" application_id INTEGER NOT NULL,"
	" version INTEGER NOT NULL,"
	" fence INTEGER NOT NULL) STRICT;" /* commit.c: counts failed commits */
	"CREATE TABLE store("
	" name TEXT NOT NULL PRIMARY KEY,"
	" uuid BLOB NOT NULL UNIQUE CHECK(length(uuid) = 16),"
	" checksum INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE TABLE job("
	" id INTEGER PRIMARY KEY,"
	" name TEXT NOT NULL,"
	" uid INTEGER NOT NULL,"
	" param_dtype INTEGER NOT NULL,"
	" grad_dtype INTEGER NOT NULL,"
	" optimizer INTEGER NOT NULL,"
	" schedule INTEGER NOT NULL,"
	" offload_optimizer INTEGER NOT NULL,"
	" offload_param INTEGER NOT NULL,"
	" durability INTEGER NOT NULL,"
	" snapshot TEXT NOT NULL," /* '' the job itself */
	" is_automatic INTEGER NOT NULL,"
	" created_s INTEGER NOT NULL,"
	" extra BLOB NOT NULL,"
	" set_count INTEGER NOT NULL,"
	" unit_count INTEGER NOT NULL,"
	" param_count INTEGER NOT NULL,"
	" checksum INTEGER NOT NULL,"
	" UNIQUE(name, snapshot)) STRICT;"
	"CREATE TABLE stand("
	" job_id INTEGER NOT NULL,"
	" slot INTEGER NOT NULL," /* 0, 1 */
	" step INTEGER NOT NULL," /* committed; -1 none */
	" world_size INTEGER NOT NULL,"
	" update_count INTEGER NOT NULL,"
	" beta1_power REAL NOT NULL,"
	" beta2_power REAL NOT NULL,"
	" number INTEGER NOT NULL," /* of the job's commits */
	" line INTEGER NOT NULL,"   /* of the group that made it */
	" stamp INTEGER NOT NULL,"  /* of all stands: one written later has a larger one */
	" strategy INTEGER NOT NULL,"
	" shard_size INTEGER NOT NULL,"
	" node_count INTEGER NOT NULL,"
	" nodes BLOB NOT NULL," /* with several, a byte for each rank, and this one */
	" scaler BLOB NOT NULL,"
	" blob_count INTEGER NOT NULL,"
	" rows_sum INTEGER NOT NULL," /* of the checksums of its extents and blobs */
	" checksum INTEGER NOT NULL,"
	" PRIMARY KEY(job_id, slot)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE start("
	" job_id INTEGER PRIMARY KEY,"
	" number INTEGER NOT NULL,"
	" name TEXT NOT NULL,"     /* "": nameless */
	" training BLOB NOT NULL," /* how it asked to train, as it came */
	" checksum INTEGER NOT NULL) STRICT;"
	"CREATE TABLE member_set("
	" job_id INTEGER NOT NULL,"
	" number INTEGER NOT NULL,"
	" name TEXT NOT NULL,"
	" members INTEGER NOT NULL," /* a bit per rank */
	" checksum INTEGER NOT NULL,"
	" PRIMARY KEY(job_id, number)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE unit("
	" job_id INTEGER NOT NULL,"
	" unit INTEGER NOT NULL,"
	" name TEXT NOT NULL,"
	" member_set INTEGER NOT NULL,"
	" checksum INTEGER NOT NULL,"
	" PRIMARY KEY(job_id, unit)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE param("
	" job_id INTEGER NOT NULL,"
	" param INTEGER NOT NULL,"
	" name TEXT NOT NULL,"
	" unit INTEGER NOT NULL,"
	" shape BLOB NOT NULL," /* 8 bytes for each dimension, little-endian */
	" checksum INTEGER NOT NULL,"
	" PRIMARY KEY(job_id, param)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE extent("
	" job_id INTEGER NOT NULL,"
	" slot INTEGER NOT NULL,"
	" plane INTEGER NOT NULL,"
	" unit INTEGER NOT NULL,"
	" subgroup INTEGER NOT NULL,"
	" store_uuid BLOB NOT NULL,"
	" offset INTEGER NOT NULL,"
	" bytes INTEGER NOT NULL,"
	" step INTEGER NOT NULL," /* that wrote it */
	" hashes BLOB NOT NULL,"  /* 8 bytes for each tile, little-endian */
	" checksum INTEGER NOT NULL,"
	" PRIMARY KEY(job_id, unit, subgroup, plane, slot)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE blob("
	" job_id INTEGER NOT NULL,"
	" slot INTEGER NOT NULL,"
	" rank INTEGER NOT NULL,"
	" bytes BLOB NOT NULL,"
	" checksum INTEGER NOT NULL,"
	" PRIMARY KEY(job_id, slot, rank)) STRICT;" /* up to 64 KiB a row: better with a rowid */
	"CREATE TABLE traffic("
	" subject TEXT NOT NULL PRIMARY KEY,"
	" read_bytes INTEGER NOT NULL,"
	" write_bytes INTEGER NOT NULL,"
	" day INTEGER NOT NULL," /* since 1970, UTC */
	" day_write_bytes INTEGER NOT NULL,"
	" checksum INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE TABLE incarnation("
	" job_id INTEGER NOT NULL,"
	" number INTEGER NOT NULL,"
	" name TEXT NOT NULL,"
	" checksum INTEGER NOT NULL,"
	" PRIMARY KEY(job_id, number)) STRICT, WITHOUT ROWID;";

/* BEGIN IMMEDIATE: a transaction that cannot write fails before it has done anything. */
static const char *const statement_sql[_CATALOG_SQL_COUNT] = {
	[CATALOG_SQL_BEGIN] = "BEGIN IMMEDIATE",
	[CATALOG_SQL_COMMIT] = "COMMIT",
	[CATALOG_SQL_ROLLBACK] = "ROLLBACK",
	[CATALOG_SQL_FENCE] = "UPDATE meta SET fence = fence + 1",
	[CATALOG_SQL_JOB_INSERT] =
		"INSERT INTO job(name, uid, param_dtype, grad_dtype, optimizer, schedule,"
		" offload_optimizer, offload_param, durability, snapshot, is_automatic, created_s,"
		" extra, set_count, unit_count, param_count, checksum)"
		" VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17)",
	/* With each of its stands. */
	[CATALOG_SQL_JOB_FIND] = "SELECT id, slot, number FROM job"
				 " LEFT JOIN stand ON stand.job_id = job.id"
				 " WHERE name = ?1 AND snapshot = ?2",
	[CATALOG_SQL_JOB_DELETE] = "DELETE FROM job WHERE id = ?1",
	[CATALOG_SQL_STAND_REPLACE] =
		"REPLACE INTO stand(job_id, slot, step, world_size, update_count, beta1_power,"
		" beta2_power, number, line, stamp, strategy, shard_size, node_count, nodes,"
		" scaler, blob_count, rows_sum, checksum)"
		" VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)",
	[CATALOG_SQL_STAND_STAMP] = "SELECT coalesce(max(stamp), 0) FROM stand",
	[CATALOG_SQL_STAND_FIND] =
		"SELECT slot FROM stand WHERE job_id = ?1 AND number = ?2 AND line = ?3",
	[CATALOG_SQL_STAND_DELETE] = "DELETE FROM stand WHERE job_id = ?1",
	[CATALOG_SQL_STAND_CLEAR] = "DELETE FROM stand WHERE job_id = ?1 AND slot = ?2",
	[CATALOG_SQL_START_REPLACE] = "REPLACE INTO start(job_id, number, name, training, checksum)"
				      " VALUES(?1,?2,?3,?4,?5)",
	[CATALOG_SQL_START_DELETE] = "DELETE FROM start WHERE job_id = ?1",
	[CATALOG_SQL_SET_INSERT] = "INSERT INTO member_set(job_id, number, name, members, checksum)"
				   " VALUES(?1,?2,?3,?4,?5)",
	[CATALOG_SQL_SET_DELETE] = "DELETE FROM member_set WHERE job_id = ?1",
	[CATALOG_SQL_UNIT_INSERT] =
		"INSERT INTO unit(job_id, unit, name, member_set, checksum) VALUES(?1,?2,?3,?4,?5)",
	[CATALOG_SQL_UNIT_DELETE] = "DELETE FROM unit WHERE job_id = ?1",
	[CATALOG_SQL_PARAM_INSERT] = "INSERT INTO param(job_id, param, name, unit, shape, checksum)"
				     " VALUES(?1,?2,?3,?4,?5,?6)",
	[CATALOG_SQL_PARAM_DELETE] = "DELETE FROM param WHERE job_id = ?1",
	[CATALOG_SQL_EXTENT_REPLACE] =
		"REPLACE INTO extent(job_id, slot, plane, unit, subgroup, store_uuid, offset,"
		" bytes, step, hashes, checksum) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)",
	/* What the new slot does not have yet, out of the other one. */
	[CATALOG_SQL_EXTENT_INHERIT] =
		"INSERT OR IGNORE INTO extent(job_id, slot, plane, unit, subgroup, store_uuid,"
		" offset, bytes, step, hashes, checksum)"
		" SELECT job_id, ?2, plane, unit, subgroup, store_uuid, offset, bytes, step,"
		" hashes, checksum FROM extent WHERE job_id = ?1 AND slot = 1 - ?2",
	[CATALOG_SQL_EXTENT_DELETE] = "DELETE FROM extent WHERE job_id = ?1",
	[CATALOG_SQL_EXTENT_CLEAR] = "DELETE FROM extent WHERE job_id = ?1 AND slot = ?2",
	[CATALOG_SQL_ROWS] = "SELECT checksum FROM extent WHERE job_id = ?1 AND slot = ?2"
			     " UNION ALL"
			     " SELECT checksum FROM blob WHERE job_id = ?1 AND slot = ?2",
	[CATALOG_SQL_BLOB_INSERT] =
		"INSERT INTO blob(job_id, slot, rank, bytes, checksum) VALUES(?1,?2,?3,?4,?5)",
	[CATALOG_SQL_BLOB_DELETE] = "DELETE FROM blob WHERE job_id = ?1",
	[CATALOG_SQL_BLOB_CLEAR] = "DELETE FROM blob WHERE job_id = ?1 AND slot = ?2",
	[CATALOG_SQL_INCARNATION_REPLACE] =
		"REPLACE INTO incarnation(job_id, number, name, checksum) VALUES(?1,?2,?3,?4)",
	[CATALOG_SQL_INCARNATION_FORGET] =
		"DELETE FROM incarnation WHERE job_id = ?1 AND number <= ?2",
	[CATALOG_SQL_INCARNATION_DELETE] = "DELETE FROM incarnation WHERE job_id = ?1",
	[CATALOG_SQL_TRAFFIC_REPLACE] =
		"REPLACE INTO traffic(subject, read_bytes, write_bytes, day, day_write_bytes,"
		" checksum) VALUES(?1,?2,?3,?4,?5,?6)",
	[CATALOG_SQL_TRAFFIC_DELETE] = "DELETE FROM traffic WHERE subject = 'job:' || ?1",
};

/* Return: a code of SQLite. What was prepared until a failure is finalised with the catalog. */
int catalog_schema_prepare(struct catalog *catalog)
{
	for (uint32_t i = 0; i < _CATALOG_SQL_COUNT; i++) {
		int code;

		assert(statement_sql[i]);
		code = sqlite3_prepare_v3(catalog->db, statement_sql[i], -1,
		                          SQLITE_PREPARE_PERSISTENT, &catalog->statements[i], NULL);
		if (code)
			return code;
	}
	return SQLITE_OK;
}

/* The kept statements, before the connection is closed. */
void catalog_schema_finalize(struct catalog *catalog)
{
	for (uint32_t i = 0; i < _CATALOG_SQL_COUNT; i++)
		catalog->statements[i] = catalog_sql_finalize(catalog->statements[i]);
}
