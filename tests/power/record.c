/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder (record.h). The functions here have libc's names and take their place: the dynamic
 * linker finds a program's own symbols first, for its libraries too. Below they call the kernel.
 */
#include "tests/power/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT        __attribute__((visibility("default")))
#define FDS_MAX       1024
#define FILE_NONE     (RECORD_FILES_MAX + 0u)
#define FILE_IS_NAMES (RECORD_FILES_MAX + 1u) /* the directory itself */

/* `lock` guards all of it. It is held for a few instructions, never during a call of the kernel. */
static struct {
	pthread_mutex_t lock;
	bool is_on;
	char directory[PATH_MAX];
	uint64_t place;
	struct record_list list;
	bool is_named[RECORD_FILES_MAX]; /* its name is its own still */
	uint32_t fds[FDS_MAX];           /* which file + 1; 0: none of ours */
} recorder = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void must(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "recorder: %s\n", what);
	abort();
}

/* ---- the list, under the lock ---- */

/* Where @path lies in the directory: its name there, "" for the directory, NULL when elsewhere. */
static const char *name_in(const char *path)
{
	size_t bytes = strlen(recorder.directory);

	if (!recorder.is_on || strncmp(path, recorder.directory, bytes) != 0)
		return NULL;
	if (!path[bytes])
		return "";
	if (path[bytes] != '/')
		return NULL;
	must(!strchr(path + bytes + 1, '/'), "a folder in the folder");
	must(strlen(path + bytes + 1) < RECORD_NAME_BYTES, "a long name");
	return path + bytes + 1;
}

static uint32_t find_name(const char *name)
{
	for (uint32_t i = 0; i < recorder.list.file_count; i++)
		if (recorder.is_named[i] && strcmp(recorder.list.names[i], name) == 0)
			return i;
	return FILE_NONE;
}

/* The new record's index. Its call has not ended. */
static uint32_t add(enum record_kind kind, uint32_t file)
{
	struct record_list *list = &recorder.list;

	if (list->count == list->capacity) {
		list->capacity = list->capacity ? 2 * list->capacity : 4096;
		list->records = reallocarray(list->records, list->capacity, sizeof(*list->records));
		must(list->records != NULL, "no memory");
	}
	list->records[list->count] = (struct record){
		.kind = kind, .file = file, .begin = recorder.place++, .end = UINT64_MAX
	};
	return list->count++;
}

static void take_name(uint32_t file, const char *name)
{
	(void)snprintf(recorder.list.names[file], RECORD_NAME_BYTES, "%s", name); /* Fits. */
	recorder.is_named[file] = true;
}

/* ---- around a call ---- */

/* Return: the record to end, or RECORD_NONE when @fd is none of ours. */
static uint32_t begin_fd(int fd, enum record_kind kind, uint64_t offset_bytes, const void *data,
                         uint64_t bytes)
{
	uint32_t index = RECORD_NONE;

	if (fd < 0 || fd >= FDS_MAX)
		return RECORD_NONE;
	(void)pthread_mutex_lock(&recorder.lock);
	if (recorder.is_on && recorder.fds[fd]) {
		uint32_t file = recorder.fds[fd] - 1;
		struct record *record;

		if (file == FILE_IS_NAMES)
			kind = RECORD_FLUSH_NAMES;
		index = add(kind, file);
		record = &recorder.list.records[index];
		record->offset_bytes = offset_bytes;
		record->bytes = bytes;
		if (bytes) {
			record->data = malloc(bytes);
			must(record->data != NULL, "no memory");
			memcpy(record->data, data, bytes);
		}
	}
	(void)pthread_mutex_unlock(&recorder.lock);
	return index;
}

/* Calls that fail are not what this test is about. */
static void end(uint32_t index, bool is_whole)
{
	if (index == RECORD_NONE)
		return;
	must(is_whole, "a call failed or was short");
	(void)pthread_mutex_lock(&recorder.lock);
	recorder.list.records[index].end = recorder.place++;
	(void)pthread_mutex_unlock(&recorder.lock);
}

static uint32_t begin_name(enum record_kind kind, const char *path, const char *to)
{
	uint32_t index = RECORD_NONE;
	const char *name;

	(void)pthread_mutex_lock(&recorder.lock);
	name = name_in(path);
	if (name) {
		uint32_t file = find_name(name);

		must(file != FILE_NONE, "a name that nobody made");
		index = add(kind, file);
		recorder.is_named[file] = false;
		if (to) {
			must(name_in(to) != NULL, "renamed to elsewhere");
			must(find_name(name_in(to)) == FILE_NONE, "renamed over another");
			take_name(file, name_in(to));
			(void)snprintf(recorder.list.records[index].name, RECORD_NAME_BYTES, "%s",
			               name_in(to));
		}
	}
	(void)pthread_mutex_unlock(&recorder.lock);
	return index;
}

/* Of open(): which file the name means, made or found. */
static uint32_t begin_open(const char *path, int flags, uint32_t *ret_file)
{
	uint32_t index = RECORD_NONE;
	const char *name;

	*ret_file = FILE_NONE;
	(void)pthread_mutex_lock(&recorder.lock);
	name = name_in(path);
	if (name && !name[0]) {
		*ret_file = FILE_IS_NAMES;
	} else if (name) {
		*ret_file = find_name(name);
		must(!(flags & O_TRUNC), "opened to truncate");
		if (*ret_file == FILE_NONE && (flags & O_CREAT)) {
			must(recorder.list.file_count < RECORD_FILES_MAX, "too many files");
			*ret_file = recorder.list.file_count++;
			take_name(*ret_file, name);
			index = add(RECORD_CREATE, *ret_file);
			(void)snprintf(recorder.list.records[index].name, RECORD_NAME_BYTES, "%s",
			               name);
		}
	}
	(void)pthread_mutex_unlock(&recorder.lock);
	return index;
}

static int open_any(int directory, const char *path, int flags, unsigned mode)
{
	uint32_t file;
	uint32_t index = begin_open(path, flags, &file);
	int fd = (int)syscall(SYS_openat, directory, path, flags, mode);

	end(index, fd >= 0);
	if (fd >= 0 && fd < FDS_MAX) {
		(void)pthread_mutex_lock(&recorder.lock);
		recorder.fds[fd] = file == FILE_NONE ? 0 : file + 1;
		(void)pthread_mutex_unlock(&recorder.lock);
	}
	must(file == FILE_NONE || fd < FDS_MAX, "a descriptor beyond the table");
	return fd;
}

/* ---- libc's names ---- */

static unsigned mode_of(int flags, va_list arguments)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, unsigned) : 0;
}

EXPORT int open(const char *path, int flags, ...)
{
	va_list arguments;
	unsigned mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	return open_any(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) __attribute__((alias("open")));

EXPORT int openat(int directory, const char *path, int flags, ...)
{
	va_list arguments;
	unsigned mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	return open_any(directory, path, flags, mode);
}

EXPORT int openat64(int directory, const char *path, int flags, ...)
	__attribute__((alias("openat")));

EXPORT int close(int fd)
{
	if (fd >= 0 && fd < FDS_MAX) {
		(void)pthread_mutex_lock(&recorder.lock);
		recorder.fds[fd] = 0;
		(void)pthread_mutex_unlock(&recorder.lock);
	}
	return (int)syscall(SYS_close, fd);
}

EXPORT ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
	uint32_t index = begin_fd(fd, RECORD_WRITE, (uint64_t)offset, buffer, bytes);
	ssize_t done = syscall(SYS_pwrite64, fd, buffer, bytes, offset);

	end(index, done == (ssize_t)bytes);
	return done;
}

EXPORT ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off_t offset)
	__attribute__((alias("pwrite")));

EXPORT int ftruncate(int fd, off_t bytes)
{
	uint32_t index = begin_fd(fd, RECORD_TRUNCATE, (uint64_t)bytes, NULL, 0);
	int r = (int)syscall(SYS_ftruncate, fd, bytes);

	end(index, r == 0);
	return r;
}

EXPORT int ftruncate64(int fd, off_t bytes) __attribute__((alias("ftruncate")));

EXPORT int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	uint32_t index = begin_fd(fd, RECORD_EXTEND, (uint64_t)(offset + bytes), NULL, 0);
	int r = (int)syscall(SYS_fallocate, fd, mode, offset, bytes);

	must(index == RECORD_NONE || mode == 0, "fallocate() in another mode");
	end(index, r == 0);
	return r;
}

EXPORT int fallocate64(int fd, int mode, off_t offset, off_t bytes)
	__attribute__((alias("fallocate")));

EXPORT int fsync(int fd)
{
	end(begin_fd(fd, RECORD_FLUSH, 0, NULL, 0), true);
	return 0;
}

EXPORT int fdatasync(int fd) __attribute__((alias("fsync")));

EXPORT int unlink(const char *path)
{
	uint32_t index;
	int r;

	/* SQLite also removes what is not there. */
	if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW))
		return -1;
	index = begin_name(RECORD_UNLINK, path, NULL);
	r = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	end(index, r == 0);
	return r;
}

EXPORT int renameat2(int from_directory, const char *from, int to_directory, const char *to,
                     unsigned flags)
{
	uint32_t index = begin_name(RECORD_RENAME, from, to);
	int r = (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);

	end(index, r == 0);
	return r;
}

EXPORT int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* Others that write. None of ours comes here: the program ends rather than miss it. */
static void refuse_fd(int fd)
{
	must(begin_fd(fd, RECORD_WRITE, 0, NULL, 0) == RECORD_NONE, "a call that is not recorded");
}

EXPORT ssize_t write(int fd, const void *buffer, size_t bytes)
{
	refuse_fd(fd);
	return syscall(SYS_write, fd, buffer, bytes);
}

EXPORT int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
	refuse_fd(fd);
	return (int)syscall(SYS_sync_file_range, fd, offset, bytes, flags);
}

/* ---- public ---- */

void record_start(const char *directory)
{
	(void)pthread_mutex_lock(&recorder.lock);
	must(!recorder.is_on && !recorder.list.count, "one record in a program");
	(void)snprintf(recorder.directory, sizeof(recorder.directory), "%s", directory);
	recorder.is_on = true;
	(void)pthread_mutex_unlock(&recorder.lock);
}

const struct record_list *record_stop(void)
{
	(void)pthread_mutex_lock(&recorder.lock);
	must(recorder.is_on, "nothing is being recorded");
	recorder.is_on = false;
	memset(recorder.fds, 0, sizeof(recorder.fds));
	(void)pthread_mutex_unlock(&recorder.lock);
	return &recorder.list;
}

uint64_t record_now(void)
{
	uint64_t place;

	(void)pthread_mutex_lock(&recorder.lock);
	place = recorder.place++;
	(void)pthread_mutex_unlock(&recorder.lock);
	return place;
}
