/* SPDX-License-Identifier: Apache-2.0 */
/* A run of zinf-gpt for a suite: its lines of JSON, one for each rank and step. */
#pragma once

#include <jansson.h>

typedef void (*gpt_line_fn)(void *arg, const json_t *line);

/* Starts the zinf-gpt that lies near @program with @words and --json, and hands over each line,
 * which stays gpt_run()'s. Return: 0; -1 after saying why. */
int gpt_run(const char *program, const char *words, gpt_line_fn line, void *arg);
