/* SPDX-License-Identifier: Apache-2.0 */
/* A file that an option names (outfile.h). */
#include "examples/gpt/outfile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Links in a chain, as the kernel allows (path_resolution(7)). */
#define LINKS_MAX 40u

static_assert(GPT_OUTFILE_PATH_BYTES == PATH_MAX, "every path that the kernel takes fits");

/* The failure of a call on the file. @error: a negative errno. Return: @error. */
int gpt_outfile_problem(const struct gpt_outfile *out, int error, struct gpt_problem *problem)
{
	return gpt_problem_set(problem, error, "writing --%s %s failed: %s", out->option, out->path,
	                       strerror(-error));
}

/* Replaces the link in @path by what it points to. Return: 0; 1: @path is no link; -errno. */
static int follow(char path[static GPT_OUTFILE_PATH_BYTES])
{
	char text[GPT_OUTFILE_PATH_BYTES], joined[GPT_OUTFILE_PATH_BYTES];
	ssize_t bytes = readlink(path, text, sizeof(text) - 1);
	const char *slash = strrchr(path, '/');
	int folder_bytes = slash ? (int)(slash - path) + 1 : 0;

	if (bytes < 0)
		return errno == EINVAL || errno == ENOENT ? 1 : -errno;
	text[bytes] = '\0';
	if (text[0] == '/')
		folder_bytes = 0; /* The link names the whole path. */
	if (snprintf(joined, sizeof(joined), "%.*s%s", folder_bytes, path, text) >=
	    (int)sizeof(joined))
		return -ENAMETOOLONG;
	memcpy(path, joined, sizeof(joined));
	return 0;
}

/* Where the last link leads. */
static int resolve(const char *path, char ret_target[static GPT_OUTFILE_PATH_BYTES])
{
	int r = 0;

	if (snprintf(ret_target, GPT_OUTFILE_PATH_BYTES, "%s", path) >= (int)GPT_OUTFILE_PATH_BYTES)
		return -ENAMETOOLONG;
	for (unsigned i = 0; !r && i < LINKS_MAX; i++)
		r = follow(ret_target);
	if (!r)
		return -ELOOP;
	return r < 0 ? r : 0;
}

/* Whether both are the same file. */
static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Return: standard output or standard error where it is the file of @status; -1: neither is. */
static int find_open_output(const struct stat *status)
{
	struct stat own;

	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (!fstat(fd, &own) && is_same(&own, status))
			return fd;
	return -1;
}

static int open_in_place(struct gpt_outfile *out, const struct stat *status)
{
	int output = find_open_output(status);
	int fd;

	(void)fflush(stdout); /* What was printed comes first; its failure shows at the end. */
	fd = output >= 0 ? fcntl(output, F_DUPFD_CLOEXEC, 0)
	                 : open(out->path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_TRUNC);
	if (fd < 0)
		return -errno;
	out->file = fdopen(fd, "w");
	if (!out->file) {
		int r = -errno;

		(void)close(fd); /* Nothing was written. */
		return r;
	}
	out->target[0] = '\0';
	return 0;
}

/* Whether the file can be replaced by renaming another one onto out->target. */
static bool is_replaced(const struct gpt_outfile *out, const struct stat *status)
{
	struct stat target;

	if (!S_ISREG(status->st_mode) || find_open_output(status) >= 0)
		return false;
	/* An open file without a name has a link in /proc that leads nowhere. */
	return !lstat(out->target, &target) && is_same(&target, status);
}

static int open_part(struct gpt_outfile *out)
{
	if (snprintf(out->part, sizeof(out->part), "%s.part", out->target) >=
	    (int)sizeof(out->part))
		return -ENAMETOOLONG;
	out->file = fopen(out->part, "we");
	return out->file ? 0 : -errno;
}

/**
 * gpt_outfile_open() - opens a file that is to be written as a whole
 * @out: close it after success only
 * @option: the name of the option, without the dashes. Not copied
 * @path: of the file; it may be there, and a link may lead to it. Not copied
 * @problem: what failed
 *
 * Opening a FIFO waits for its reader.
 *
 * Return: 0 or a negative errno.
 */
int gpt_outfile_open(struct gpt_outfile *out, const char *option, const char *path,
                     struct gpt_problem *problem)
{
	struct stat status;
	int r;

	*out = (struct gpt_outfile){ .option = option, .path = path };
	r = resolve(path, out->target);
	if (!stat(path, &status) && (r || !is_replaced(out, &status)))
		r = open_in_place(out, &status);
	else if (!r)
		r = open_part(out);
	return r ? gpt_outfile_problem(out, r, problem) : 0;
}

/**
 * gpt_outfile_close() - ends the writing
 * @out: opened
 * @r: 0, or the error that ended the writing. A file that is not whole replaces nothing
 * @problem: what failed, unless @r is an error: its reason stays
 *
 * Return: @r, or the error of the close.
 */
int gpt_outfile_close(struct gpt_outfile *out, int r, struct gpt_problem *problem)
{
	assert(out->file);
	if (fclose(out->file) && !r)
		r = gpt_outfile_problem(out, -errno, problem);
	out->file = NULL;
	if (!out->target[0])
		return r;
	if (!r && rename(out->part, out->target))
		r = gpt_outfile_problem(out, -errno, problem);
	if (r)
		(void)unlink(out->part); /* It may not be there. */
	return r;
}
