/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the programs that draw: "--seed 7". */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The number behind @option among @words, (@count,); @otherwise where it is not. */
static inline uint64_t option_number(int count, char **words, const char *option,
                                     uint64_t otherwise)
{
	for (int i = 1; i + 1 < count; i++)
		if (!strcmp(words[i], option))
			return strtoull(words[i + 1], NULL, 10);
	return otherwise;
}
