/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: rows of a catalog that are well-formed and wrong, and what recovery makes of them.
 * The input is a list of rows; each field is right unless the input says otherwise. They are
 * inserted in a transaction that is taken back. Whatever they are: recovery ends, other jobs go on,
 * a job that is refused has words, every extent that is claimed is a job's once, and an attempt to
 * attach is answered.
 */
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/wire/geometry.h"
#include "daemon/catalog/catalog_private.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/extent.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/catalog/reseal.h"

#define STORE_BYTES (8u << 20)
#define ROWS_MAX    64u
#define WAIT_NS     (20 * ZI_NS_PER_S)
/* Kinds of rows from here on are those of catalog version 4: inputs that were kept say the same. */
#define SLOTS_FROM 240u

static struct zi_loop *loop;
static struct nvme_store *store;
static struct nvme_engine *engine;

static void demolish(void)
{
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
	loop = zi_loop_free(loop);
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	static char path[320];
	struct zi_text text = { "" };

	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	zi_log_set_level(ZI_LOG_ERROR);
	(void)snprintf(path, sizeof(path), "%s/store", fuzz_directory()); /* Fits. */
	fuzz_check(!zi_loop_new(&loop), "zi_loop_new");
	fuzz_check(!nvme_store_open(&(struct nvme_store_options){ .name = "fuzz",
	                                                          .path = path,
	                                                          .bytes = STORE_BYTES },
	                            &text, &store),
	           text.chars);
	fuzz_check(
		!nvme_engine_new(&(struct nvme_engine_options){ .backend = "threads", .depth = 2 },
	                         &text, &engine),
		text.chars);
	fuzz_check(!atexit(demolish), "atexit");
	return 0;
}

/* ---- rows ---- */

/* What the next rows continue: a job that would be right. */
struct author {
	struct catalog *catalog;
	struct fuzz_input *input;
	int64_t job, set, unit, param, subgroup;
	int64_t slot; /* of the rows of a commit that come next */
	int64_t next_offset;
	uint64_t elements; /* of the newest parameter */
};

/* The value as it should be, or (bit of @lies) one that the input gives. */
static int64_t lie(struct author *author, uint32_t lies, uint32_t bit, int64_t value)
{
	return lies >> bit & 1 ? (int64_t)fuzz_u64(author->input) : value;
}

/* A row into @table; @blob: bound as the last value, NULL none. */
static void insert(struct author *author, const char *sql, const char *name, const int64_t *values,
                   int value_count, const void *blob, int blob_bytes)
{
	sqlite3_stmt *statement = NULL;
	int place = 1;

	fuzz_check(!sqlite3_prepare_v2(author->catalog->db, sql, -1, &statement, NULL), sql);
	for (int i = 0; i < value_count; i++)
		(void)sqlite3_bind_int64(statement, place++, values[i]); /* It has that many. */
	if (name)
		(void)sqlite3_bind_text(statement, place++, name, -1, SQLITE_STATIC);
	if (blob)
		(void)sqlite3_bind_blob(statement, place, blob, blob_bytes, SQLITE_STATIC);
	(void)sqlite3_step(statement); /* A row that is there twice is refused: as well. */
	(void)sqlite3_finalize(statement);
}

static void add_stand(struct author *author, uint32_t lies, uint8_t kind)
{
	static const char nodes[2] = { 0, 1 };
	int64_t values[13];
	bool has_nodes = kind & 32;

	if (lies >> 19 & 1)
		return;
	values[0] = author->job;
	values[1] = lie(author, lies, 11, kind & 16 ? -1 : 3); /* step */
	values[2] = lie(author, lies, 12, 1 + kind % 3);       /* world_size */
	values[3] = lie(author, lies, 13, 3);
	values[4] = lie(author, lies, 14, 0);
	values[5] = lie(author, lies, 15, 0);
	values[6] = lie(author, lies, 16, 0);
	values[7] = lie(author, lies, 21, author->slot);
	values[8] = lie(author, lies, 22, 7 + author->slot); /* number */
	values[9] = lie(author, lies, 23, kind % 6);         /* strategy */
	values[10] = lie(author, lies, 24, 0);               /* shard_size */
	values[11] = lie(author, lies, 25, has_nodes ? 2 : 1);
	values[12] = lie(author, lies, 26, 0) & 63; /* bytes of the loss scale */
	insert(author,
	       "INSERT INTO stand(job_id, step, world_size, update_count, beta1_power,"
	       " beta2_power, blob_count, slot, number, strategy, shard_size, node_count, nodes,"
	       " scaler, line, stamp, rows_sum, checksum)"
	       " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?14,zeroblob(?13),1,?9,0,0)",
	       NULL, values, 13, nodes, has_nodes ? (int)(1 + kind % 3 > 2 ? 2 : 1 + kind % 3) : 0);
}

/* The job's other slot, or the same again: what comes next is of that commit. */
static void add_slot(struct author *author)
{
	uint32_t lies = fuzz_u32(author->input);
	uint8_t kind = fuzz_u8(author->input);

	author->slot = kind & 64 ? author->slot : 1 - author->slot;
	author->subgroup = 0;
	add_stand(author, lies, kind);
}

static void add_set(struct author *author)
{
	uint8_t lies = fuzz_u8(author->input);
	char name[120];
	int64_t values[3];

	author->set++;
	values[0] = lie(author, lies, 0, author->job);
	values[1] = lie(author, lies, 1, author->set);
	values[2] = lie(author, lies, 2, 3);
	if (lies & 8)
		fuzz_text(author->input, name, sizeof(name));
	else
		(void)snprintf(name, sizeof(name), "s%lld", (long long)author->set); /* Fits. */
	insert(author,
	       "INSERT INTO member_set(job_id, number, members, name, checksum)"
	       " VALUES(?1,?2,?3,?4,0)",
	       name, values, 3, NULL, 0);
}

/* @lies: a bit for each value of the three rows; 19 and 20 leave one out. */
static void add_job(struct author *author)
{
	uint32_t lies = fuzz_u32(author->input);
	uint8_t kind = fuzz_u8(author->input);
	char name[80];
	int64_t values[11];

	author->job++;
	author->unit = author->param = author->set = -1;
	author->subgroup = author->slot = 0;
	if (lies & 1)
		fuzz_text(author->input, name, sizeof(name));
	else
		(void)snprintf(name, sizeof(name), "job%lld", (long long)author->job); /* Fits. */
	values[0] = author->job;
	values[1] = lie(author, lies, 1, 0); /* uid */
	values[2] = lie(author, lies, 2, kind & 1 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32);
	values[3] = lie(author, lies, 3, kind & 1 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32);
	values[4] = lie(author, lies, 4, 1 + kind % 5); /* optimizer */
	values[5] = lie(author, lies, 5, ZI_SCHEDULE_LOCAL);
	values[6] = lie(author, lies, 6, kind & 8 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);
	values[7] = lie(author, lies, 7, ZI_OFFLOAD_NONE);
	values[8] = lie(author, lies, 8, 0); /* durability */
	values[9] = lie(author, lies, 9, 0);
	values[10] = lie(author, lies, 10, 0);
	insert(author,
	       "INSERT INTO job(id, uid, param_dtype, grad_dtype, optimizer, schedule,"
	       " offload_optimizer, offload_param, durability, unit_count, param_count, name,"
	       " snapshot, is_automatic, created_s, extra, set_count, checksum)"
	       " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,'',0,0,x'',0,0)",
	       name, values, 11, NULL, 0);
	add_stand(author, lies, kind);
	if (!(lies >> 20 & 1)) {
		values[1] = lie(author, lies, 17, 1); /* number */
		insert(author,
		       "INSERT INTO start(job_id, number, name, training, checksum)"
		       " VALUES(?1,?2,?3,zeroblob(128),0)",
		       "run", values, 2, NULL, 0);
	}
}

static void add_unit(struct author *author)
{
	uint8_t lies = fuzz_u8(author->input);
	char name[120];
	int64_t values[3];

	author->unit++;
	author->subgroup = 0;
	values[0] = lie(author, lies, 0, author->job);
	values[1] = lie(author, lies, 1, author->unit);
	values[2] = lie(author, lies, 3, author->set < 0 ? 0 : author->set);
	if (lies & 4)
		fuzz_text(author->input, name, sizeof(name));
	else
		(void)snprintf(name, sizeof(name), "u%lld", (long long)author->unit); /* Fits. */
	insert(author,
	       "INSERT INTO unit(job_id, unit, member_set, name, checksum) VALUES(?1,?2,?3,?4,0)",
	       name, values, 3, NULL, 0);
}

static void add_param(struct author *author)
{
	static const uint64_t elements[4] = { 700, 16384, 20000, 300000 };
	uint8_t lies = fuzz_u8(author->input);
	uint64_t shape[ZI_PARAM_DIMS_MAX + 2] = { 0 };
	int shape_bytes = 8;
	char name[120];
	int64_t values[3];

	author->param++;
	values[0] = lie(author, lies, 0, author->job);
	values[1] = lie(author, lies, 1, author->param);
	values[2] = lie(author, lies, 2, author->unit);
	shape[0] = author->elements = elements[fuzz_u8(author->input) % 4];
	if (lies & 8) {
		shape_bytes = fuzz_u8(author->input) % (int)sizeof(shape);
		fuzz_take(author->input, shape, (size_t)shape_bytes);
	}
	if (lies & 16)
		fuzz_text(author->input, name, sizeof(name));
	else
		(void)snprintf(name, sizeof(name), "p%lld", (long long)author->param); /* Fits. */
	insert(author,
	       "INSERT INTO param(job_id, param, unit, name, shape, checksum)"
	       " VALUES(?1,?2,?3,?4,?5,0)",
	       name, values, 3, shape, shape_bytes);
}

/* The next subgroup's extent of one plane, as the newest parameter alone would make it. */
static void add_extent(struct author *author)
{
	uint32_t lies = fuzz_u32(author->input);
	uint8_t kind = fuzz_u8(author->input);
	uint64_t padded = zi_geometry_padded(author->elements ? author->elements : 1);
	uint64_t count = zi_geometry_subgroup_elements(
		padded, (uint32_t)(author->subgroup % (int64_t)zi_geometry_subgroup_count(padded)));
	uint32_t tiles = zi_geometry_tile_count(count);
	uint64_t bytes = count * (kind & 1 ? kind & 2 ? 12 : 8 : kind & 2 ? 2 : 4);
	uint8_t hashes[512];
	int hash_bytes = (int)(tiles * 8 < sizeof(hashes) ? tiles * 8 : sizeof(hashes));
	char sql[256];
	char uuid[40] = { 0 };
	int64_t values[8];

	bytes = (bytes + ZI_STORE_ALIGN_BYTES - 1) & ~(uint64_t)(ZI_STORE_ALIGN_BYTES - 1);
	memset(hashes, kind, sizeof(hashes));
	values[0] = lie(author, lies, 0, author->job);
	values[1] = lie(author, lies, 1, kind & 1 ? ZI_PLANE_STATE : ZI_PLANE_PARAM);
	values[2] = lie(author, lies, 2, author->unit);
	values[3] = lie(author, lies, 3, author->subgroup);
	values[4] = lie(author, lies, 4, author->next_offset);
	values[5] = lie(author, lies, 5, kind & 4 ? 0 : (int64_t)bytes);
	values[6] = lie(author, lies, 6, 3);
	values[7] = lie(author, lies, 10, author->slot);
	author->next_offset += kind & 4 ? 0 : (int64_t)bytes;
	if (kind & 8)
		author->subgroup++;
	if (lies & 128)
		hash_bytes = fuzz_u8(author->input);
	for (uint32_t i = 0; i < sizeof(store->uuid); i++)
		(void)snprintf(uuid + i * 2, 3, "%02x",
		               (uint8_t)(store->uuid[i] ^ (lies >> 8 & 1)));
	(void)snprintf(sql, sizeof(sql),
	               "INSERT INTO extent(job_id, plane, unit, subgroup, offset, bytes, step,"
	               " slot, hashes, store_uuid, checksum)"
	               " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,X'%s',0)",
	               lies & 512 ? "00" : uuid); /* Fits. */
	insert(author, sql, NULL, values, 8, hashes, hash_bytes);
}

static void add_blob(struct author *author)
{
	static uint8_t bytes[2 * ZI_BLOB_BYTES];
	uint8_t lies = fuzz_u8(author->input);
	int64_t values[3];

	values[0] = lie(author, lies, 0, author->job);
	values[1] = lie(author, lies, 1, lies >> 4);
	values[2] = lie(author, lies, 3, author->slot);
	insert(author,
	       "INSERT INTO blob(job_id, rank, slot, bytes, checksum) VALUES(?1,?2,?3,?4,0)", NULL,
	       values, 3, bytes, lies & 4 ? fuzz_u8(author->input) % 129 * 1024 : 10);
}

static void add_incarnation(struct author *author)
{
	uint8_t lies = fuzz_u8(author->input);
	char name[80] = "run";
	int64_t values[2];

	values[0] = lie(author, lies, 0, author->job);
	values[1] = lie(author, lies, 1, 1);
	if (lies & 4)
		fuzz_text(author->input, name, sizeof(name));
	insert(author, "INSERT INTO incarnation(job_id, number, name, checksum) VALUES(?1,?2,?3,0)",
	       name, values, 2, NULL, 0);
}

/* Counts and checksums as they should be (else nothing behind them would be looked at), but for
 * @how 1, the counts, and 2, the checksums. */
static void finish(struct author *author, uint8_t how)
{
	static const char counts_sql[] =
		"UPDATE job SET set_count = (SELECT count(*) FROM member_set WHERE job_id = id),"
		" unit_count = (SELECT count(*) FROM unit WHERE job_id = id),"
		" param_count = (SELECT count(*) FROM param WHERE job_id = id);"
		"UPDATE stand SET blob_count ="
		" (SELECT count(*) FROM blob WHERE blob.job_id = stand.job_id"
		" AND blob.slot = stand.slot);";

	if (how != 1)
		reseal_run(author->catalog->db, counts_sql);
	if (how != 2)
		reseal(author->catalog->db);
}

/* ---- recovery ---- */

struct node {
	struct tier cpu, nvme;
	struct dev *device;
	struct tier_holders *holders;
	struct zero *zero;
};

static void lost(void *arg, const char *job, int64_t step)
{
	(void)arg;
	fuzz_check(step >= 0, "a lost job at no step");
	fuzz_check(job[0] != '\0', "a lost job without a name");
}

static void told(void *arg, const struct zero_job_report *report)
{
	(void)arg;
	fuzz_check(!report->refusal || report->refusal[0], "a refusal without words");
}

static void broken(void *arg, int error, uint32_t culprit, const struct zi_text *text)
{
	(void)arg;
	(void)error;
	(void)culprit;
	(void)text;
}

static void attach(struct node *node, const char *name)
{
	struct zero_attach attach = {
		.job = name,
		.incarnation = "next",
		.pid = getpid(),
		.world_size = 1,
		.config = { .param_dtype = ZI_DTYPE_BF16,
		            .grad_dtype = ZI_DTYPE_BF16,
		            .optimizer = ZI_OPTIMIZER_ADAMW,
		            .schedule = ZI_SCHEDULE_LOCAL,
		            .offload_optimizer = ZI_OFFLOAD_NVME },
		.timeout_ns = ZI_NS_PER_S,
		.broken = broken,
	};
	struct zero_rank *rank = NULL;
	struct zi_text text = { "" };
	uint64_t number;
	int r;

	r = zero_attach(node->zero, &attach, &text, &rank, &number);
	fuzz_check(!r || text.chars[0], "a refusal without words");
	if (!r)
		zero_rank_leave(rank, true, NULL);
}

/* Free space and claimed extents are all of the store. Damaged jobs keep what they can. */
static void check_space(const struct node *node)
{
	uint64_t claimed_bytes = 0;

	zi_list_for_each(link, &node->zero->jobs) {
		const struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		for (uint32_t i = 0; i < job->subgroup_count; i++)
			for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
				claimed_bytes += job->subgroups[i].places[plane].extent.bytes;
	}
	fuzz_check(claimed_bytes + nvme_space_free_bytes(node->nvme.members[0].space) <=
	                   nvme_space_total_bytes(node->nvme.members[0].space),
	           "an extent is two jobs'");
}

/* Jobs of memory alone go with the loop's first turns. */
static void settle(struct node *node)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(WAIT_NS);

	while (!zi_list_is_empty(&node->zero->ghosts)) {
		zi_loop_stop(loop);
		fuzz_check(!zi_loop_run(loop), "zi_loop_run");
		(void)sched_yield(); /* Always 0 on Linux. */
		fuzz_check(zi_clock_now_ns() < deadline_ns, "a job is never deleted");
	}
}

static void recover(struct catalog *catalog)
{
	struct node node = { 0 };
	struct zi_text text = { "" };
	int r;

	tier_init_cpu(&node.cpu, 0, 64 << 20, NULL, false);
	fuzz_check(!tier_init_nvme(&node.nvme, store->name, 0), "tier_init_nvme");
	fuzz_check(!tier_member_add_store(&node.nvme, store), "tier_member_add_store");
	fuzz_check(!dev_fake_new(1, &node.device), "dev_fake_new");
	fuzz_check(!tier_holders_new(&node.holders), "tier_holders_new");
	fuzz_check(!zero_new(&(struct zero_options){ .loop = loop,
	                                             .catalog = catalog,
	                                             .engine = engine,
	                                             .holders = node.holders,
	                                             .cpu_tiers = &node.cpu,
	                                             .cpu_tier_count = 1,
	                                             .devices = &node.device,
	                                             .nvme_tiers = &node.nvme,
	                                             .nvme_tier_count = 1,
	                                             .default_staging_bytes = 8 << 20,
	                                             .uid_cpu_limit_bytes = UINT64_MAX,
	                                             .uid_nvme_limit_bytes = UINT64_MAX,
	                                             .jobs_max = 64,
	                                             .jobs_per_uid_max = 64,
	                                             .units_max = 64,
	                                             .params_max = 64 },
	                     &node.zero),
	           "zero_new");
	r = zero_recover(node.zero, lost, NULL, &text);
	fuzz_check(!r || text.chars[0], "a refusal without words");
	fuzz_check(!catalog_sql_run(catalog, "ROLLBACK"), "ROLLBACK");
	fuzz_check(!catalog_start(catalog), "catalog_start");
	settle(&node);
	check_space(&node);
	(void)zero_report(node.zero, NULL, told, NULL); /* True: no name asked. */
	if (!r) {
		attach(&node, "job1");
		attach(&node, "job2");
		settle(&node);
	}
	node.zero = zero_free(node.zero);
	node.holders = tier_holders_free(node.holders);
	node.device = dev_free(node.device);
	fuzz_check(!node.nvme.used_bytes, "space is still charged");
	tier_deinit(&node.cpu);
	tier_deinit(&node.nvme);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static void (*const rows[])(struct author * author) = { add_job,   add_unit,
		                                                add_param, add_extent,
		                                                add_blob,  add_incarnation };
	struct fuzz_input input = { bytes, byte_count };
	struct author author = { .input = &input, .next_offset = NVME_SUPERBLOCK_BYTES };
	uint8_t how = fuzz_u8(&input) % 8;
	struct zi_text text = { "" };

	fuzz_check(!catalog_open(fuzz_directory(), &text, &author.catalog), text.chars);
	fuzz_check(!catalog_sql_run(author.catalog, "BEGIN"), "BEGIN");
	for (uint32_t i = 0; i < ROWS_MAX && input.byte_count; i++) {
		uint8_t kind = fuzz_u8(&input);

		if (kind < SLOTS_FROM)
			rows[kind % 6](&author);
		else
			(kind & 1 ? add_slot : add_set)(&author);
	}
	finish(&author, how);
	recover(author.catalog);
	author.catalog = catalog_close(author.catalog);
	return 0;
}
