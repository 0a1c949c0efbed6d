/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers from text. */
#include "examples/gpt/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return: 0, -EINVAL not a number, -ERANGE. */
int gpt_parse_u64(const char *text, uint64_t *ret_value)
{
	char *end;
	uint64_t value;

	if (!isdigit((unsigned char)text[0])) /* strtoull() takes signs and blanks. */
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

/* Return: 0, -EINVAL not a finite number. */
int gpt_parse_f64(const char *text, double *ret_value)
{
	char *end;
	double value;

	if (!text[0] || isspace((unsigned char)text[0]))
		return -EINVAL;
	value = strtod(text, &end);
	if (*end || !isfinite(value))
		return -EINVAL;
	*ret_value = value;
	return 0;
}

/* "4096", "64K", "1.5G", "256MiB": binary units. Return: 0, -EINVAL, -ERANGE from 2^63. */
int gpt_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	const char *unit;
	double scale = 1;
	double value;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	value = strtod(text, &end);
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit)
			return -EINVAL;
		scale = ldexp(1.0, 10 * (int)(unit - units + 1));
		end++;
		if (strcmp(end, "") != 0 && strcmp(end, "B") != 0 && strcmp(end, "iB") != 0)
			return -EINVAL;
	}
	if (!(value * scale < 0x1p63))
		return -ERANGE;
	*ret_bytes = (uint64_t)(value * scale);
	return 0;
}
