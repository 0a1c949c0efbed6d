/* SPDX-License-Identifier: Apache-2.0 */
/* Damage at rest (faults.h). */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "tests/faults/faults.h"

static bool flip(const char *path, uint64_t place_bits)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char byte = 0;
	bool is_done = fd >= 0 && pread(fd, &byte, 1, (off_t)(place_bits / 8)) == 1;

	byte ^= (unsigned char)(1u << place_bits % 8);
	is_done = is_done && pwrite(fd, &byte, 1, (off_t)(place_bits / 8)) == 1;
	(void)zi_close(fd);
	return faults_says(is_done, "a bit cannot be turned in", path);
}

/* A bit of the victim's @plane that was drawn. */
static uint64_t draw_bit(const struct test *test, int plane, uint64_t random)
{
	char path[300];
	sqlite3_stmt *rows = NULL;
	sqlite3 *db = NULL;
	uint64_t count = 0, offset = 0, bytes = 1;

	(void)snprintf(path, sizeof(path), "%s/state/catalog.db", test->harness.directory);
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(db,
	                       "SELECT e.offset, e.bytes FROM extent e JOIN job j ON e.job_id ="
	                       " j.id WHERE j.name = 'victim' AND plane = ?1 AND bytes > 0",
	                       -1, &rows, NULL) == SQLITE_OK) {
		(void)sqlite3_bind_int(rows, 1, plane);
		while (sqlite3_step(rows) == SQLITE_ROW) {
			count++;
			if (faults_mix(random + count) % count == 0) {
				offset = (uint64_t)sqlite3_column_int64(rows, 0);
				bytes = (uint64_t)sqlite3_column_int64(rows, 1);
			}
		}
	}
	(void)sqlite3_finalize(rows);
	(void)sqlite3_close(db);
	return (offset + faults_mix(random) % bytes) * 8 + faults_mix(random + 1) % 8;
}

/* Turned, noticed by words, turned back. */
static bool check_plane(struct test *test, int plane, uint64_t random)
{
	struct trainer_report report;
	uint64_t bit = draw_bit(test, plane, random);
	char path[300];
	int r;

	(void)snprintf(path, sizeof(path), "%s/store", test->harness.directory);
	if (!faults_says(bit >= 8ull * FAULTS_SUPERBLOCK_BYTES, "no extent is known of", path) ||
	    !flip(path, bit) || !faults_start(test, "auto"))
		return false;
	r = faults_train(test, 3, random % 2, &report);
	test->found_count += r == -EBADMSG;
	test->case_count++;
	return faults_says(r == -EBADMSG && faults_names_place(test, report.text),
	                   "a turned bit is not named", report.text) &&
	       faults_halt(test) && flip(path, bit);
}

static bool check_superblock(struct test *test, uint64_t random)
{
	char path[300], log[8192];
	uint64_t bit = faults_mix(random) % (48 * 8); /* magic, version, state, bytes, uuid */
	bool is_started;

	(void)snprintf(path, sizeof(path), "%s/store", test->harness.directory);
	if (!flip(path, bit))
		return false;
	(void)truncate(test->harness.log_path, 0);
	test->harness.options.is_quiet = true;
	is_started = harness_restart(&test->harness) == 0;
	test->harness.options.is_quiet = false;
	harness_log(&test->harness, log, sizeof(log));
	test->found_count += !is_started;
	test->case_count++;
	return faults_says(!is_started && strstr(log, path),
	                   "a turned bit of a superblock is not named", log) &&
	       flip(path, bit);
}

/* Whatever it hits: refused at start, the job refused, or of no consequence. */
static bool check_catalog(struct test *test, uint64_t random)
{
	char path[300], log[8192];
	struct trainer_report report = { .result = 0 };
	char copy[2048];
	off_t size;
	int fd;
	int r = 0;

	(void)snprintf(path, sizeof(path), "%s/state/catalog.db", test->harness.directory);
	(void)snprintf(copy, sizeof(copy), "cp %s %s/kept", path, test->harness.directory);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	(void)zi_close(fd);
	if (!faults_says(size > 0 && system(copy) == 0, "no catalog", path) ||
	    !flip(path, faults_mix(random) % ((uint64_t)size * 8)))
		return false;
	(void)truncate(test->harness.log_path, 0);
	test->harness.options.is_quiet = true;
	if (harness_restart(&test->harness) == 0) {
		/* To where it stands: parameters and state are read, nothing is written. */
		r = faults_train(test, 2, true, &report);
		if (!faults_halt(test))
			return false;
	} else {
		r = -EUCLEAN;
	}
	test->harness.options.is_quiet = false;
	harness_log(&test->harness, log, sizeof(log));
	test->case_count++;
	test->found_count += r != 0;
	test->harmless_count += r == 0;
	(void)snprintf(copy, sizeof(copy), "rm -f %s-wal %s-mark; mv %s/kept %s", path, path,
	               test->harness.directory, path);
	return faults_says(r == 0 || r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT ||
	                           r == -EACCES,
	                   "a turned bit of the catalog is not named", r ? report.text : log) &&
	       faults_says(system(copy) == 0, "no copy", path);
}

bool faults_check_rest(struct test *test)
{
	struct trainer_report report;
	uint32_t round_count = test->stride > 1 ? 2 : 12;
	bool is_right = faults_start(test, "auto") &&
	                faults_says(faults_train(test, 2, false, &report) == 0, "no sound run",
	                            report.text) &&
	                faults_halt(test);

	for (uint32_t i = 0; i < round_count && is_right; i++) {
		uint64_t random = test->seed * 7919 + i;

		is_right = check_plane(test, 0, random) && check_plane(test, 1, random) &&
		           check_superblock(test, random) && check_catalog(test, 2 * random) &&
		           check_catalog(test, 2 * random + 1);
	}
	return is_right && faults_start(test, "auto") &&
	       faults_says(faults_train(test, 4, false, &report) == 0,
	                   "turned back, it is not right", report.text);
}
