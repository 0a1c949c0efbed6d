/* SPDX-License-Identifier: Apache-2.0 */
/* Which known name somebody may have meant. Floor 0, any thread: no state. */
#include "common/base/nearest.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "common/base/cleanup.h"

/* Levenshtein's distance, one row of the table at a time. Case does not count. */
static uint32_t distance(const char *a, const char *b)
{
	uint32_t row[ZI_NEAREST_BYTES + 1];
	size_t b_bytes = strnlen(b, ZI_NEAREST_BYTES + 1);

	if (strnlen(a, ZI_NEAREST_BYTES + 1) > ZI_NEAREST_BYTES || b_bytes > ZI_NEAREST_BYTES)
		return UINT32_MAX;
	for (uint32_t j = 0; j <= b_bytes; j++)
		row[j] = j;
	for (uint32_t i = 0; a[i]; i++) {
		uint32_t diagonal = row[0];

		row[0] = i + 1;
		for (uint32_t j = 0; j < b_bytes; j++) {
			uint32_t changed = diagonal + (tolower((unsigned char)a[i]) !=
			                               tolower((unsigned char)b[j]));

			diagonal = row[j + 1];
			row[j + 1] = ZI_MIN(changed, ZI_MIN(row[j], row[j + 1]) + 1);
		}
	}
	return row[b_bytes];
}

/* As in the header. */
void zi_nearest_offer(struct zi_nearest *nearest, const char *name)
{
	uint32_t d = distance(nearest->wanted, name);

	if (!nearest->name || d < nearest->distance) {
		nearest->name = name;
		nearest->distance = d;
	}
}

/* Two letters may differ, or a third of a long name: slips and swapped letters stay within that. A
 * name that has no letter in common is not near, however short. */
const char *zi_nearest_name(const struct zi_nearest *nearest)
{
	uint32_t bytes = (uint32_t)strnlen(nearest->wanted, ZI_NEAREST_BYTES + 1);
	uint32_t most = ZI_MAX(bytes / 3, 2u);

	return nearest->name && nearest->distance <= most && nearest->distance < bytes
	               ? nearest->name
	               : NULL;
}
