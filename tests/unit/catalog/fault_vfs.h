/* SPDX-License-Identifier: Apache-2.0 */
/* A VFS that passes everything on to the system's, counts syncs, and fails one chosen operation.
 * For one test program: its state is static. */
#pragma once

#include <sqlite3.h>

#include "tests/unit/catalog/fixture.h"

#define FAULT_KILLED 77

enum operation { OP_NONE, OP_READ, OP_WRITE, OP_SYNC };

/* Which operation fails next: the one after @countdown others, and all from then on if is_lasting;
 * if is_dying, from then on every write and sync of both files, until is_dead is cleared; if
 * is_killing, the process ends there. */
static struct {
	enum operation operation;
	bool is_log; /* of the log, not of the file */
	bool is_lasting;
	bool is_dying, is_dead, is_killing;
	uint32_t countdown;
	int code;
	uint32_t failed_count;
} fault;

static uint32_t file_sync_count;
static uint32_t log_sync_count;
static sqlite3_vfs *system_vfs;
static sqlite3_vfs fault_vfs;

struct fault_file {
	sqlite3_file base;
	bool is_log;
	sqlite3_file *below;
};

static struct fault_file *of(sqlite3_file *file)
{
	return (struct fault_file *)file;
}

static bool is_failing(struct fault_file *file, enum operation operation)
{
	if (fault.is_dead && operation != OP_READ) {
		fault.failed_count++;
		return true;
	}
	if (fault.operation != operation || fault.is_log != file->is_log)
		return false;
	if (fault.countdown) {
		fault.countdown--;
		return false;
	}
	if (fault.is_killing)
		_exit(FAULT_KILLED);
	if (!fault.is_lasting)
		fault.operation = OP_NONE;
	fault.is_dead = fault.is_dying;
	fault.failed_count++;
	return true;
}

static int fault_close(sqlite3_file *file)
{
	return of(file)->below->pMethods->xClose(of(file)->below);
}

static int fault_read(sqlite3_file *file, void *buffer, int bytes, sqlite3_int64 offset)
{
	if (is_failing(of(file), OP_READ))
		return fault.code;
	return of(file)->below->pMethods->xRead(of(file)->below, buffer, bytes, offset);
}

static int fault_write(sqlite3_file *file, const void *buffer, int bytes, sqlite3_int64 offset)
{
	if (is_failing(of(file), OP_WRITE))
		return fault.code;
	return of(file)->below->pMethods->xWrite(of(file)->below, buffer, bytes, offset);
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 bytes)
{
	return of(file)->below->pMethods->xTruncate(of(file)->below, bytes);
}

static int fault_sync(sqlite3_file *file, int flags)
{
	if (is_failing(of(file), OP_SYNC))
		return fault.code;
	*(of(file)->is_log ? &log_sync_count : &file_sync_count) += 1;
	return of(file)->below->pMethods->xSync(of(file)->below, flags);
}

static int fault_file_size(sqlite3_file *file, sqlite3_int64 *ret_bytes)
{
	return of(file)->below->pMethods->xFileSize(of(file)->below, ret_bytes);
}

static int fault_lock(sqlite3_file *file, int level)
{
	return of(file)->below->pMethods->xLock(of(file)->below, level);
}

static int fault_unlock(sqlite3_file *file, int level)
{
	return of(file)->below->pMethods->xUnlock(of(file)->below, level);
}

static int fault_check_reserved_lock(sqlite3_file *file, int *ret_is_reserved)
{
	return of(file)->below->pMethods->xCheckReservedLock(of(file)->below, ret_is_reserved);
}

static int fault_control(sqlite3_file *file, int operation, void *arg)
{
	return of(file)->below->pMethods->xFileControl(of(file)->below, operation, arg);
}

static int fault_sector_size(sqlite3_file *file)
{
	return of(file)->below->pMethods->xSectorSize(of(file)->below);
}

static int fault_characteristics(sqlite3_file *file)
{
	return of(file)->below->pMethods->xDeviceCharacteristics(of(file)->below);
}

static const sqlite3_io_methods fault_methods = {
	.iVersion = 1, /* No shared memory: exclusive locking does without. */
	.xClose = fault_close,
	.xRead = fault_read,
	.xWrite = fault_write,
	.xTruncate = fault_truncate,
	.xSync = fault_sync,
	.xFileSize = fault_file_size,
	.xLock = fault_lock,
	.xUnlock = fault_unlock,
	.xCheckReservedLock = fault_check_reserved_lock,
	.xFileControl = fault_control,
	.xSectorSize = fault_sector_size,
	.xDeviceCharacteristics = fault_characteristics,
};

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                      int *ret_flags)
{
	int code;

	(void)vfs;
	memset(file, 0, sizeof(struct fault_file));
	of(file)->is_log = flags & SQLITE_OPEN_WAL;
	of(file)->below = (sqlite3_file *)(of(file) + 1);
	code = system_vfs->xOpen(system_vfs, name, of(file)->below, flags, ret_flags);
	if (!code)
		file->pMethods = &fault_methods;
	return code;
}

static void fault_install(void)
{
	system_vfs = sqlite3_vfs_find(NULL);
	fault_vfs = *system_vfs;
	fault_vfs.zName = "fault";
	fault_vfs.szOsFile += (int)sizeof(struct fault_file);
	fault_vfs.xOpen = fault_open;
	cr_assert_eq(sqlite3_vfs_register(&fault_vfs, 1), SQLITE_OK);
}

static void fail_next(enum operation operation, bool is_log, int code)
{
	fault.operation = operation;
	fault.is_log = is_log;
	fault.is_lasting = false;
	fault.is_dying = false;
	fault.is_dead = false;
	fault.is_killing = false;
	fault.countdown = 0;
	fault.code = code;
	fault.failed_count = 0;
}
