/* SPDX-License-Identifier: Apache-2.0 */
/* How far two names are from each other. */
#include "examples/gpt/distance.h"

#include <string.h>

/* How many letters must be put in, taken out or changed (Levenshtein). Longer names count as
 * far. */
unsigned gpt_distance(const char *a, const char *b)
{
	enum { MAX = 31 };
	unsigned row[MAX + 1];
	size_t count_a = strlen(a), count_b = strlen(b);

	if (count_a > MAX || count_b > MAX)
		return MAX;
	for (unsigned j = 0; j <= count_b; j++)
		row[j] = j;
	for (unsigned i = 1; i <= count_a; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= count_b; j++) {
			unsigned least = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			least = row[j] + 1 < least ? row[j] + 1 : least;
			least = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
			row[j] = least;
		}
	}
	return row[count_b];
}
