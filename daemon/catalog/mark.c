/* SPDX-License-Identifier: Apache-2.0 */
/* The witness of the newest commit; see mark.h. */
#include "daemon/catalog/mark.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/catalog/catalog_private.h"
#include "kernels/hash.h"

static_assert(offsetof(struct catalog_mark, checksum) == 344, "layout on disk");
static_assert(sizeof(struct catalog_mark) <= 512, "a sector");

static uint64_t checksum_of(const struct catalog_mark *mark)
{
	return kern_hash(mark, offsetof(struct catalog_mark, checksum));
}

/* "" where the kernel does not say. */
static void read_boot(char *boot)
{
	_cleanup_(zi_closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, boot, CATALOG_BOOT_BYTES - 1);

	boot[bytes > 0 ? bytes : 0] = '\0';
	boot[strcspn(boot, "\n")] = '\0';
}

static int failed(const struct catalog *catalog, int error, const char *doing, struct zi_text *text)
{
	return err_origin(zi_text_error(text, error, "%s %s-mark: %s", doing, catalog->path,
	                                strerror(-error)));
}

/* What is read wholly and checks; else it claims nothing. */
static void read_mark(struct catalog *catalog)
{
	struct catalog_mark *mark = &catalog->mark;
	ssize_t bytes = -1;

	if (catalog->mark_fd >= 0)
		bytes = pread(catalog->mark_fd, mark, sizeof(*mark), 0);
	if (bytes == (ssize_t)sizeof(*mark) && mark->version == CATALOG_MARK_VERSION &&
	    !memcmp(mark->magic, CATALOG_MARK_MAGIC, sizeof(mark->magic)) &&
	    mark->checksum == checksum_of(mark) &&
	    memchr(mark->newest.job, '\0', sizeof(mark->newest.job)) &&
	    memchr(mark->synced.job, '\0', sizeof(mark->synced.job)) &&
	    memchr(mark->boot, '\0', sizeof(mark->boot)))
		return;
	*mark = (struct catalog_mark){ .version = CATALOG_MARK_VERSION };
	memcpy(mark->magic, CATALOG_MARK_MAGIC, sizeof(mark->magic));
}

/* After it catalog->mark claims no less than the file does. */
static void write_mark(struct catalog *catalog, struct catalog_mark *mark)
{
	mark->checksum = checksum_of(mark);
	if (pwrite(catalog->mark_fd, mark, sizeof(*mark), 0) == (ssize_t)sizeof(*mark))
		catalog->mark = *mark;
}

/* Nothing is claimed any more, also after a power failure: an empty file claims nothing, and a disk
 * that is full takes that. On failure the file may claim what it did. */
static int void_mark(struct catalog *catalog, struct zi_text *text)
{
	if (ftruncate(catalog->mark_fd, 0) || fdatasync(catalog->mark_fd))
		return failed(catalog, -errno, "Writing", text);
	catalog->mark.newest.stamp = catalog->mark.synced.stamp = 0;
	return 0;
}

/* Of a file beside the catalog's. -1: it does not fit. */
static int path_of(const struct catalog *catalog, const char *end, char *path)
{
	int bytes = snprintf(path, PATH_MAX, "%s%s", catalog->path, end);

	errno = ENAMETOOLONG;
	return bytes < PATH_MAX ? 0 : -1;
}

/* -1 and ENOENT: it is not there. */
static int open_file(const struct catalog *catalog, int flags)
{
	char path[PATH_MAX];

	if (path_of(catalog, "-mark", path))
		return -1;
	return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
}

/* See mark.h. */
int catalog_mark_remove(const struct catalog *catalog, struct zi_text *text)
{
	char path[PATH_MAX];

	if (path_of(catalog, "-mark", path) || (unlink(path) && errno != ENOENT))
		return failed(catalog, -errno, "Removing", text);
	return 0;
}

/* See mark.h. */
int catalog_mark_open(struct catalog *catalog, struct zi_text *text)
{
	assert(catalog->mark_fd < 0);
	read_boot(catalog->boot);
	catalog->mark_fd = open_file(catalog, 0);
	if (catalog->mark_fd < 0 && errno != ENOENT)
		return failed(catalog, -errno, "Opening", text);
	read_mark(catalog);
	return 0;
}

/* The mark is of the catalog's owner: a zinfd that root started on another user's directory, or an
 * earlier one, leaves it to that user. SQLite does the same with the log. Best effort: without the
 * right to give files away the mark stays its maker's. */
static void give_to_owner(const struct catalog *catalog)
{
	struct stat wanted, present;

	if (stat(catalog->path, &wanted) || fstat(catalog->mark_fd, &present))
		return;
	if (present.st_uid == wanted.st_uid && present.st_gid == wanted.st_gid)
		return;
	if (fchown(catalog->mark_fd, wanted.st_uid, wanted.st_gid))
		return; /* See above. */
}

/* See mark.h. */
int catalog_mark_accept(struct catalog *catalog, struct zi_text *text)
{
	if (catalog->mark_fd < 0)
		catalog->mark_fd = open_file(catalog, O_CREAT);
	if (catalog->mark_fd < 0)
		return failed(catalog, -errno, "Making", text);
	give_to_owner(catalog);
	return 0;
}

/* See mark.h. */
int catalog_mark_check(struct catalog *catalog, uint64_t newest, struct zi_text *text)
{
	const struct catalog_mark *mark = &catalog->mark;
	bool is_same_boot = mark->boot[0] && !strcmp(mark->boot, catalog->boot);
	/* A newer one that was not synced may be lost with the power. */
	const struct catalog_mark_commit *sure = is_same_boot ? &mark->newest : &mark->synced;

	if (newest >= sure->stamp)
		return 0;
	return err_origin(zi_text_error(
		text, -EUCLEAN,
		"%.60s: its newest%s commit (step %lld of job '%.40s') is missing: " CATALOG_FILE
		"-wal may have been damaged, cut or removed. Restore it, or remove " CATALOG_FILE
		"-mark to go on with older commits",
		catalog->path, is_same_boot ? "" : " synced", (long long)sure->step, sure->job));
}

/* See mark.h. */
int catalog_mark_prepare(struct catalog *catalog, uint64_t newest, struct zi_text *text)
{
	return newest >= catalog->mark.newest.stamp ? 0 : err_trace(void_mark(catalog, text));
}

/* See mark.h. */
void catalog_mark_close(struct catalog *catalog)
{
	char path[PATH_MAX];

	/* SQLite removes the log when all of it is in the catalog's file. */
	if (catalog->mark_fd >= 0 &&
	    snprintf(path, sizeof(path), "%s-wal", catalog->path) < PATH_MAX &&
	    access(path, F_OK) && errno == ENOENT)
		(void)void_mark(catalog, NULL); /* Else it claims what is there. */
	catalog->mark_fd = zi_close(catalog->mark_fd);
}

/* See mark.h. A mark that could not be written claims less, or does not check. */
void catalog_mark_note(struct catalog *catalog, const struct catalog_request *request,
                       uint64_t stamp)
{
	struct catalog_mark mark = catalog->mark;
	const struct catalog_job *job = request->job;

	mark.newest = (struct catalog_mark_commit){ .stamp = stamp, .step = job->step };
	(void)snprintf(mark.newest.job, sizeof(mark.newest.job), "%s%s%s", job->name,
	               job->snapshot[0] ? "/" : "", job->snapshot); /* Fits. */
	if (catalog->is_synced)
		mark.synced = mark.newest;
	memcpy(mark.boot, catalog->boot, sizeof(mark.boot));
	write_mark(catalog, &mark);
}
