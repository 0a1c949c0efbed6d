/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a run: DIRECTORY/attempt_N/RANK with stdout.log, stderr.log and error.json
 * (which the rank's program may write: $TORCHELASTIC_ERROR_FILE). Below --log-dir, or with log
 * files but without it in a temporary one that stays; without log files it goes at the end.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "zctl/launch/options.h"

struct launch_logs {
	char directory[PATH_MAX - 64]; /* "": none could be made, and none is needed */
	bool is_kept;
};

/* @start: made up, of this run alone. Return: 0; -errno with the path. */
int launch_logs_open(struct launch_logs *logs, const struct launch_options *options,
                     const char *run_id, const char *start, struct zi_text *text);
/* Directories of all ranks. Return: 0; -errno with the path. */
int launch_logs_make(const struct launch_logs *logs, uint32_t attempt, uint32_t rank_count,
                     struct zi_text *text);
/* Path of a rank's file; "" where there is no directory. Return: @path. */
const char *launch_logs_path(const struct launch_logs *logs, uint32_t attempt, uint32_t rank,
                             const char *file, char path[PATH_MAX]);
/* Removes what is not kept. */
void launch_logs_close(struct launch_logs *logs);
