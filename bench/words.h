/* SPDX-License-Identifier: Apache-2.0 */
/* The words that a suite is started with: "SUITE DIRECTORY WORD...". */
#pragma once

#include <stdbool.h>

/* Whether @word, the name of a part for instance, is behind the directory. */
bool bench_has_word(const char *word, int argc, char **argv);
