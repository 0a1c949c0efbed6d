/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the inputs of the fuzz target catalog_file that have names: a sound catalog of the version
 * that is read, made by the catalog itself, and changes of it that reach each of its refusals and
 * what comes behind them. A new version of the tables needs new ones, or all would be refused for
 * their version alone: that is what --check is for.
 * Usage: catalog_file FOLDER            write them
 *        catalog_file --check FOLDER    each is there, and is taken or refused as was meant
 */
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/loop.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/catalog/reseal.h"

/* With small pages it is short, as a fuzzer's inputs should be. */
#define PAGES_SQL      "PRAGMA page_size = 512; PRAGMA journal_mode = WAL"
#define FILE_BYTES_MAX 65536u
#define HEADER_PAGES   28u /* where a database's header says how many pages it has, big-endian */

/* Tables that take any value, as SQLite keeps them. */
#define LOOSE                                                                                   \
	"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(replace(replace("  \
	"replace(sql, ' NOT NULL', ''), ' CHECK(length(uuid) = 16)', ''), ') STRICT, ', ') ')," \
	" ') STRICT', ')')"
#define IS_LOOSE "in it is not as its version has it"
#define IS_OTHER "in it is unknown"

enum stage { TAKEN, REFUSED, DAMAGED };

static const struct seed {
	const char *name;
	enum stage stage;  /* how far it comes: refused as a whole; or taken, its job damaged */
	const char *words; /* of the refusal or the damage */
	const char *sql[2];
	bool is_sealed;      /* checksums are right all the same */
	uint32_t byte_count; /* what is left of the file; UINT32_MAX all */
	uint32_t page_count; /* what its header says instead; 0 the truth */
} seeds[] = {
#define WHOLE .byte_count = UINT32_MAX
	{ "good", TAKEN, "", { NULL }, WHOLE },
	{ "empty", TAKEN, "", { NULL }, .byte_count = 0 },
	{ "application", REFUSED, "no catalog", { "UPDATE meta SET application_id = 7" }, WHOLE },
	{ "version", REFUSED, "has version 99", { "UPDATE meta SET version = 99" }, WHOLE },
	{ "column", REFUSED, IS_LOOSE, { "ALTER TABLE stand DROP COLUMN beta1_power" }, WHOLE },
	{ "missing", REFUSED, "'extent' in it is missing", { "DROP TABLE extent" }, WHOLE },
	{ "trigger",
	  REFUSED,
	  IS_OTHER,
	  { "CREATE TRIGGER t AFTER INSERT ON job BEGIN DELETE FROM job; END" },
	  WHOLE },
	{ "view",
	  REFUSED,
	  IS_OTHER,
	  { "ALTER TABLE extent RENAME TO e2", "CREATE VIEW extent AS SELECT *, random() FROM e2" },
	  WHOLE },
	{ "changing",
	  REFUSED,
	  IS_OTHER,
	  { "ALTER TABLE blob RENAME TO b2",
	    "CREATE VIEW blob AS SELECT job_id, slot, rank, randomblob(abs(random() % 100))"
	    " AS bytes, 0 AS checksum FROM b2" },
	  WHOLE },
	{ "loose", REFUSED, IS_LOOSE, { LOOSE }, WHOLE },
	{ "nulls",
	  REFUSED,
	  IS_LOOSE,
	  { LOOSE, "UPDATE job SET name = NULL; UPDATE stand SET step = NULL;"
	           " UPDATE start SET name = NULL" },
	  WHOLE },
	{ "null-uuid", REFUSED, IS_LOOSE, { LOOSE, "UPDATE store SET uuid = NULL" }, WHOLE },
	{ "short-uuid", REFUSED, IS_LOOSE, { LOOSE, "UPDATE store SET uuid = x'0102'" }, WHOLE },
	{ "text-values",
	  REFUSED,
	  IS_LOOSE,
	  { LOOSE, "UPDATE param SET shape = NULL; UPDATE blob SET bytes = NULL;"
	           " UPDATE extent SET hashes = 'abcdefgh', store_uuid = NULL" },
	  WHOLE },
	{ "characters",
	  REFUSED,
	  IS_LOOSE,
	  { LOOSE, "UPDATE extent SET hashes = '\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9';"
	           " UPDATE blob SET bytes = 'h\xc3\xa9ll\xc3\xb6 w\xc3\xb6rld'" },
	  .is_sealed = true,
	  WHOLE },
	{ "checksum",
	  DAMAGED,
	  "the checksum of a row in table extent",
	  { "UPDATE extent SET offset = offset + 4096" },
	  WHOLE },
	{ "range",
	  DAMAGED,
	  "a value out of its range in table job",
	  { "UPDATE job SET optimizer = 77" },
	  .is_sealed = true,
	  WHOLE },
	{ "rows", DAMAGED, "the number of rows in table blob", { "DELETE FROM blob" }, WHOLE },
	{ "head", REFUSED, "catalog.db", { NULL }, .byte_count = 16 },
	{ "short", REFUSED, "catalog.db", { NULL }, .byte_count = 700 },
	{ "cut", REFUSED, "catalog.db", { NULL }, .byte_count = 5120 },
	{ "header-size", REFUSED, "malformed", { NULL }, WHOLE, .page_count = 1000 },
};

static char path[320];
static uint8_t bytes[FILE_BYTES_MAX];

/* ---- a sound one ---- */

static void request_done(struct catalog_request *request)
{
	zi_loop_stop(request->loop);
}

/* One job at step 3, whose rows fit a page each. */
static void put_job(struct catalog *catalog)
{
	static const uint64_t hashes[1] = { 0x0123456789abcdef };
	struct catalog_set set = { "all", 1 };
	struct catalog_unit unit = { "u", 0 };
	struct catalog_param param = { .name = "w", .dim_count = 1, .shape = { 1024 } };
	struct catalog_incarnation start = { 1, "a" };
	struct catalog_blob blob = { 0, "abc", 3 };
	struct catalog_extent extents[2];
	struct catalog_job job = {
		.name = "train",
		.world_size = 1,
		.config = { ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_OPTIMIZER_ADAMW, ZI_SCHEDULE_LOCAL,
		            ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME, ZI_DURABILITY_PROCESS },
		.incarnation_number = 1,
		.incarnation = "a",
		.step = 3,
		.update_count = 3,
		.beta1_power = 0.5,
		.beta2_power = 0.75,
		.number = 4,
		.line = 1,
		.set_count = 1,
		.unit_count = 1,
		.param_count = 1,
		.extent_count = 2,
		.blob_count = 1,
		.incarnation_count = 1,
		.sets = &set,
		.units = &unit,
		.params = &param,
		.extents = extents,
		.blobs = &blob,
		.incarnations = &start,
	};
	struct catalog_request request = { .kind = CATALOG_JOB_CREATE,
		                           .job = &job,
		                           .done = request_done };

	for (uint32_t i = 0; i < 2; i++)
		extents[i] = (struct catalog_extent){
			.plane = i ? ZI_PLANE_STATE : ZI_PLANE_PARAM,
			.store_uuid = { 1 },
			.extent = { (uint64_t)(1 + i) << 20, i ? 12288 : 4096 },
			.step = 3,
			.hash_count = 1,
			.hashes = hashes,
		};
	fuzz_check(!zi_loop_new(&request.loop), "a loop");
	fuzz_check(!catalog_start(catalog), "the catalog's thread");
	catalog_submit(catalog, &request);
	fuzz_check(!zi_loop_run(request.loop), "the loop");
	fuzz_check(!request.result, request.text.chars);
	/* Its requests are over. */
	request.loop = zi_loop_free(request.loop);
}

static void make_sound(void)
{
	static const uint8_t uuid[16] = { 1 };
	struct catalog *catalog = NULL;
	struct zi_text text = { "" };

	change_file(path, PAGES_SQL, false);
	fuzz_check(!catalog_open(fuzz_directory(), &text, &catalog), text.chars);
	fuzz_check(!catalog_adopt_store(catalog, "disk", uuid, true, &text), text.chars);
	put_job(catalog);
	catalog = catalog_close(catalog);
	change_file(path, "INSERT INTO traffic VALUES('job:train', 4096, 16384, 20000, 16384, 0)",
	            true);
}

/* ---- what becomes of it ---- */

static size_t read_file(const char *name)
{
	FILE *file = fopen(name, "re");
	size_t byte_count = file ? fread(bytes, 1, sizeof(bytes), file) : 0;

	fuzz_check(file != NULL, name);
	fuzz_check(byte_count < sizeof(bytes), "a file too long");
	(void)fclose(file); /* Only read. */
	return byte_count;
}

static void write_file(const char *name, size_t byte_count)
{
	FILE *file = fopen(name, "we");

	fuzz_check(file && fwrite(bytes, 1, byte_count, file) == byte_count, name);
	fuzz_check(!fclose(file), name);
}

/* Into bytes, as @seed has it. Return: how many. */
static size_t make(const struct seed *seed)
{
	size_t byte_count;

	make_sound();
	for (uint32_t i = 0; i < 2 && seed->sql[i]; i++)
		change_file(path, seed->sql[i], seed->is_sealed && (i == 1 || !seed->sql[1]));
	byte_count = read_file(path);
	fuzz_check(byte_count > HEADER_PAGES + 4, "a database");
	for (uint32_t i = 0; i < 4 && seed->page_count; i++)
		bytes[HEADER_PAGES + i] = (uint8_t)(seed->page_count >> (24 - 8 * i));
	(void)unlink(path); /* It was read. */
	return byte_count < seed->byte_count ? byte_count : seed->byte_count;
}

static int take(void *arg, struct catalog_job *job)
{
	*(struct zi_text *)arg = job->damage;
	job = catalog_job_free(job);
	return 0;
}

/* Return: what is in bytes is taken or refused as it should be. */
static bool is_as_meant(const struct seed *seed, size_t byte_count)
{
	struct catalog *catalog = NULL;
	struct zi_text text = { "" }, damage = { "" };
	enum stage stage = TAKEN;

	write_file(path, byte_count);
	if (catalog_open(fuzz_directory(), &text, &catalog))
		stage = REFUSED;
	else
		fuzz_check(!catalog_load_jobs(catalog, take, &damage, &text), text.chars);
	catalog = catalog_close(catalog);
	(void)unlink(path); /* Made above. */
	if (damage.chars[0]) {
		stage = DAMAGED;
		text = damage;
	}
	if (stage == seed->stage && strstr(text.chars, seed->words))
		return true;
	(void)fprintf(stderr, "catalog_file/%s: %s, not: '%s'; `make fuzz-seeds` makes them anew\n",
	              seed->name, text.chars[0] ? text.chars : "taken", seed->words);
	return false;
}

int main(int count, char **words)
{
	bool is_check = count == 3 && !strcmp(words[1], "--check");
	bool is_right = true;

	if (count != 2 && !is_check) {
		(void)fprintf(stderr, "usage: %s [--check] FOLDER\n", words[0]);
		return 2;
	}
	(void)snprintf(path, sizeof(path), "%s/catalog.db", fuzz_directory()); /* Fits. */
	for (size_t i = 0; i < ZI_COUNT_OF(seeds); i++) {
		char name[512];
		size_t byte_count;

		(void)snprintf(name, sizeof(name), "%s/%s", words[count - 1], seeds[i].name);
		if (is_check && access(name, R_OK)) {
			(void)fprintf(stderr, "%s is missing; `make fuzz-seeds` makes it\n", name);
			is_right = false;
			continue;
		}
		byte_count = is_check ? read_file(name) : make(&seeds[i]);
		if (!is_check)
			write_file(name, byte_count);
		is_right &= is_as_meant(&seeds[i], byte_count);
	}
	return is_right ? 0 : 1;
}
