/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a suite; see words.h. */
#include "bench/words.h"

#include <string.h>

bool bench_has_word(const char *word, int argc, char **argv)
{
	for (int i = 2; i < argc; i++)
		if (!strcmp(word, argv[i]))
			return true;
	return false;
}
