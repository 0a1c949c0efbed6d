/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test double of a few calls of libc (points.h): each counts itself, and at the chosen one the
 * process kills itself. Any thread.
 */
#include "tests/crash/points.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

const char *const point_class_names[_POINT_CLASS_COUNT] = {
	"store-read", "store-write", "catalog-write", "sync", "file", "send", "receive", "map",
};

enum moment { BEFORE, AFTER, HALF };

/* Written by points_arm(), before there are other threads. */
static struct {
	struct point_counts *counts; /* NULL: not armed */
	enum point_class class;
	uint64_t at;
	enum moment moment;
} armed;

static void die(void)
{
	(void)kill(getpid(), SIGKILL);
	for (;;) /* It comes when the kernel looks. */
		(void)pause();
}

/* Return: this is the call, and it is to die after it or in it. */
static bool reach(enum point_class class)
{
	uint64_t count;

	if (!armed.counts)
		return false;
	count = __atomic_add_fetch(&armed.counts->calls[class], 1, __ATOMIC_RELAXED);
	if (class != armed.class || count != armed.at)
		return false;
	if (armed.moment == BEFORE)
		die();
	return true;
}

bool points_arm(const char *point, struct point_counts *counts)
{
	const char *place = strchr(point, '@');
	char *end;

	armed.counts = NULL;
	armed.at = 0;
	if (*point) {
		if (!place)
			return false;
		armed.class = _POINT_CLASS_COUNT;
		for (uint32_t i = 0; i < _POINT_CLASS_COUNT; i++)
			if (strlen(point_class_names[i]) == (size_t)(place - point) &&
			    !strncmp(point, point_class_names[i], (size_t)(place - point)))
				armed.class = i;
		armed.at = strtoull(place + 1, &end, 10);
		armed.moment = !strcmp(end, "/after")  ? AFTER
		               : !strcmp(end, "/half") ? HALF
		                                       : BEFORE;
		if (armed.class == _POINT_CLASS_COUNT || !armed.at)
			return false;
	}
	armed.counts = counts;
	return true;
}

/* Preloaded: before main(). A process that was not asked to is left alone. */
__attribute__((constructor)) static void arm_preloaded(void)
{
	const char *point = getenv(POINT_ENVIRONMENT);
	const char *path = getenv(POINT_COUNT_ENVIRONMENT);
	struct point_counts *counts;
	int fd;

	if (!point || !path)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC);
	counts = fd < 0 ? MAP_FAILED
	                : mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counts == MAP_FAILED || !points_arm(point, counts)) {
		(void)fprintf(stderr, "points: %s or %s cannot be used\n", path, point);
		_exit(125);
	}
	(void)close(fd);
}

/* ---- the calls ---- */

/* libc's own. Its address is looked up each time: a few hundred nanoseconds, no state. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool is_of_catalog(int fd)
{
	char link[32];
	char path[512];
	ssize_t bytes;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	bytes = readlink(link, path, sizeof(path) - 1);
	path[bytes > 0 ? bytes : 0] = '\0';
	return strstr(path, "catalog.db") != NULL;
}

#define EXPORT __attribute__((visibility("default")))

static ssize_t write_at(ssize_t (*real)(int, const void *, size_t, off_t), int fd,
                        const void *buffer, size_t bytes, off_t offset)
{
	bool is_here =
		armed.counts && reach(is_of_catalog(fd) ? POINT_CATALOG_WRITE : POINT_STORE_WRITE);
	ssize_t result;

	/* Half of a block that is written directly is still a block. */
	if (is_here && armed.moment == HALF)
		bytes = bytes > 1024 ? bytes / 2 / 512 * 512 : bytes / 2;
	result = real(fd, buffer, bytes, offset);
	if (is_here)
		die();
	return result;
}

EXPORT ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
	return write_at(REAL(pwrite), fd, buffer, bytes, offset);
}

EXPORT ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off_t offset)
{
	return write_at(REAL(pwrite64), fd, buffer, bytes, offset);
}

/* SQLite reads its file through pread64(), the engine's threads the store through pread(). */
EXPORT ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
	bool is_here = reach(POINT_STORE_READ);
	ssize_t result = REAL(pread)(fd, buffer, bytes, offset);

	if (is_here)
		die();
	return result;
}

/* A call that only counts, and passes on. */
#define PASS(class, type, name, parameters, arguments) \
	EXPORT type name parameters                    \
	{                                              \
		bool is_here = reach(class);           \
		type result = REAL(name) arguments;    \
                                                       \
		if (is_here)                           \
			die();                         \
		return result;                         \
	}                                              \
	_Static_assert(sizeof(type) > 0, "a semicolon")

PASS(POINT_SYNC, int, fsync, (int fd), (fd));
PASS(POINT_SYNC, int, fdatasync, (int fd), (fd));
PASS(POINT_FILE, int, ftruncate64, (int fd, off_t bytes), (fd, bytes));
PASS(POINT_FILE, int, unlink, (const char *path), (path));
PASS(POINT_SEND, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
     (fd, message, flags));
PASS(POINT_SEND, ssize_t, write, (int fd, const void *buffer, size_t bytes), (fd, buffer, bytes));
PASS(POINT_RECEIVE, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags),
     (fd, message, flags));
PASS(POINT_RECEIVE, ssize_t, read, (int fd, void *buffer, size_t bytes), (fd, buffer, bytes));
PASS(POINT_MAP, void *, mmap,
     (void *address, size_t bytes, int protection, int flags, int fd, off_t offset),
     (address, bytes, protection, flags, fd, offset));
PASS(POINT_MAP, int, munmap, (void *address, size_t bytes), (address, bytes));
