/* SPDX-License-Identifier: Apache-2.0 */
/* A value of the file by its path, or what stands for it: the table's default, or for "auto" what
 * the trainer says. The walk has held types and ranges against the table before. Floor 2. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "libclient/deepspeed/private.h"

/* @value: may be NULL, and is "" then, as without memory. */
struct deepspeed_shown deepspeed_show(const json_t *value)
{
	struct deepspeed_shown shown = { "" };
	/* 15 digits: as the file has it, 0.9 rather than 0.90000000000000002. */
	size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15);
	char *json = value ? json_dumps(value, flags) : NULL;
	size_t room = sizeof(shown.chars);

	if (json) /* ASCII: it may be cut anywhere. */
		(void)snprintf(shown.chars, room, strlen(json) < room ? "%s" : "%.59s...", json);
	free(json);
	return shown;
}

/* NULL: the file does not have it, or "auto". */
static const json_t *given(const struct zinf_deepspeed *reader, const char *path)
{
	return deepspeed_is_auto(reader, path) ? NULL
	                                       : reader->values[deepspeed_find(reader, path)];
}

static const char *standard(const struct zinf_deepspeed *reader, const char *path)
{
	return deepspeed_key(deepspeed_find(reader, path))->standard;
}

/* As in the header; "auto" counts. */
bool deepspeed_is_given(const struct zinf_deepspeed *reader, const char *path)
{
	return reader->values[deepspeed_find(reader, path)] != NULL;
}

/* As in the header. */
bool deepspeed_is_auto(const struct zinf_deepspeed *reader, const char *path)
{
	const json_t *value = reader->values[deepspeed_find(reader, path)];

	return json_is_string(value) && !strcmp(json_string_value(value), "auto");
}

/* As in the header. */
bool deepspeed_bool(const struct zinf_deepspeed *reader, const char *path)
{
	const json_t *value = given(reader, path);

	return value ? json_is_true(value) : !strcmp(standard(reader, path), "true");
}

/* As in the header; 0 where there is neither. */
double deepspeed_number(const struct zinf_deepspeed *reader, const char *path)
{
	const json_t *value = given(reader, path);

	return value ? json_number_value(value) : strtod(standard(reader, path), NULL);
}

/* As in the header; 0 where there is neither. */
int64_t deepspeed_count(const struct zinf_deepspeed *reader, const char *path)
{
	const json_t *value = given(reader, path);

	if (!value)
		return strtoll(standard(reader, path), NULL, 10);
	if (json_is_integer(value))
		return json_integer_value(value);
	/* The range's end is no double: what is there is the next one, which is no int64_t. */
	return json_real_value(value) < 0x1p63 ? (int64_t)json_real_value(value) : INT64_MAX;
}

/* As in the header. */
const char *deepspeed_text(const struct zinf_deepspeed *reader, const char *path)
{
	const json_t *value = given(reader, path);
	const char *text = standard(reader, path);

	if (value)
		return json_string_value(value);
	return strcmp(text, "null") != 0 ? text : NULL;
}

static int refuse_auto(struct zinf_deepspeed *reader, const char *path, const char *name)
{
	return zi_text_error(&reader->text, err_origin(-EINVAL),
	                     "%s is \"auto\", and the trainer does not say what that is "
	                     "(zinf_deepspeed_facts.%s): write a value, or fill that in",
	                     path, name);
}

/* As in the header. */
int deepspeed_number_or(struct zinf_deepspeed *reader, const char *path, double fact,
                        const char *name, double *ret_number)
{
	const struct deepspeed_key *key = deepspeed_key(deepspeed_find(reader, path));

	if (!deepspeed_is_auto(reader, path)) {
		*ret_number = deepspeed_number(reader, path);
		return 0;
	}
	if (!isfinite(fact))
		return refuse_auto(reader, path, name);
	if (!(fact >= key->low && fact <= key->high))
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "%s is \"auto\", and zinf_deepspeed_facts.%s is %.15g: from "
		                     "%.15g to %.15g is allowed",
		                     path, name, fact, key->low, key->high);
	*ret_number = fact;
	return 0;
}

/* As in the header. */
int deepspeed_count_or(struct zinf_deepspeed *reader, const char *path, uint64_t fact,
                       const char *name, uint64_t *ret_count)
{
	if (!deepspeed_is_auto(reader, path)) {
		*ret_count = (uint64_t)deepspeed_count(reader, path);
		return 0;
	}
	if (!fact)
		return refuse_auto(reader, path, name);
	*ret_count = fact;
	return 0;
}
