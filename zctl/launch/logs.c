/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of a run (logs.h). */
#include "zctl/launch/logs.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/err.h"

static int make_directory(const char *path, struct zi_text *text)
{
	if (!mkdir(path, 0777) || errno == EEXIST)
		return 0;
	return zi_text_error(text, -errno, "making %.200s failed: %s", path, strerror(errno));
}

static bool has_files(const struct launch_options *options)
{
	for (uint32_t rank = 0; rank < options->rank_count; rank++)
		if (options->redirects[rank] || options->tees[rank])
			return true;
	return false;
}

/* In $TMPDIR. Without log files it is no matter if none can be made. */
static int open_temporary(struct launch_logs *logs, struct zi_text *text)
{
	const char *parent = getenv("TMPDIR");

	(void)snprintf(logs->directory, sizeof(logs->directory), "%s/zctl-launch.XXXXXX",
	               parent && *parent ? parent : "/tmp");
	if (mkdtemp(logs->directory))
		return 0;
	(void)zi_text_error(text, -errno, "making %.200s failed: %s", logs->directory,
	                    strerror(errno));
	logs->directory[0] = '\0';
	return logs->is_kept ? err_origin(-errno) : 0;
}

/* A rank may go to another directory before it writes its error there. */
static int make_absolute(struct launch_logs *logs, struct zi_text *text)
{
	char *path = realpath(logs->directory, NULL);
	int r = 0;

	if (!path)
		return zi_text_error(text, -errno, "%.200s: %s", logs->directory, strerror(errno));
	if (strlen(path) >= sizeof(logs->directory))
		r = zi_text_error(text, -ENAMETOOLONG, "%.200s is too long a path", path);
	else
		(void)snprintf(logs->directory, sizeof(logs->directory), "%s", path);
	free(path);
	return err_trace(r);
}

/* See logs.h. */
int launch_logs_open(struct launch_logs *logs, const struct launch_options *options,
                     const char *run_id, const char *start, struct zi_text *text)
{
	int bytes, r;

	*logs = (struct launch_logs){ .is_kept = options->log_directory || has_files(options) };
	if (!options->log_directory)
		return err_trace(open_temporary(logs, text));
	/* Of one run when the names are one, as with torchrun. */
	bytes = snprintf(logs->directory, sizeof(logs->directory), "%s/%s%s%s",
	                 options->log_directory, run_id, strcmp(run_id, start) ? "_" : "",
	                 strcmp(run_id, start) ? start : "");
	if (bytes < 0 || (size_t)bytes >= sizeof(logs->directory))
		return zi_text_error(text, -ENAMETOOLONG,
		                     "--log-dir is too long: %zu bytes at most",
		                     sizeof(logs->directory) - strlen(run_id) - strlen(start) - 3);
	r = make_directory(options->log_directory, text);
	if (!r)
		r = make_directory(logs->directory, text);
	if (!r)
		r = make_absolute(logs, text);
	return err_trace(r);
}

/* See logs.h. */
int launch_logs_make(const struct launch_logs *logs, uint32_t attempt, uint32_t rank_count,
                     struct zi_text *text)
{
	char path[PATH_MAX];
	int r;

	if (!logs->directory[0])
		return 0;
	(void)snprintf(path, sizeof(path), "%s/attempt_%u", logs->directory, attempt); /* Fits. */
	r = make_directory(path, text);
	for (uint32_t rank = 0; rank < rank_count && !r; rank++) {
		(void)snprintf(path, sizeof(path), "%s/attempt_%u/%u", logs->directory, attempt,
		               rank); /* Fits. */
		r = make_directory(path, text);
	}
	return err_trace(r);
}

/* See logs.h. */
const char *launch_logs_path(const struct launch_logs *logs, uint32_t attempt, uint32_t rank,
                             const char *file, char path[PATH_MAX])
{
	path[0] = '\0';
	if (logs->directory[0])
		(void)snprintf(path, PATH_MAX, "%s/attempt_%u/%u/%s", logs->directory, attempt,
		               rank, file); /* Fits: names of ours. */
	return path;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	(void)remove(path); /* What stays has become somebody else's. */
	return 0;
}

/* See logs.h. */
void launch_logs_close(struct launch_logs *logs)
{
	if (logs->directory[0] && !logs->is_kept)
		(void)nftw(logs->directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	logs->directory[0] = '\0';
}
