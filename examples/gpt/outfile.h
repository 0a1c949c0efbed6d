/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that an option names, written at the end of a run. A regular file is replaced as a whole:
 * a file beside it takes its place once every byte is there. A device, a FIFO and an open output of
 * this process (/dev/stdout) are written in place. Symbolic links are followed.
 */
#pragma once

#include <stdio.h>

#include "examples/gpt/problem.h"

#define GPT_OUTFILE_PATH_BYTES 4096u

struct gpt_outfile {
	FILE *file;                          /* the caller writes here */
	const char *option;                  /* without the dashes, for messages */
	const char *path;                    /* as the user gave it, for messages */
	char target[GPT_OUTFILE_PATH_BYTES]; /* the file to be replaced; "": written in place */
	char part[GPT_OUTFILE_PATH_BYTES];   /* the file beside it */
};

int gpt_outfile_open(struct gpt_outfile *out, const char *option, const char *path,
                     struct gpt_problem *problem);
int gpt_outfile_problem(const struct gpt_outfile *out, int error, struct gpt_problem *problem);
int gpt_outfile_close(struct gpt_outfile *out, int r, struct gpt_problem *problem);
