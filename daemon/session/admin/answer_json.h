/* SPDX-License-Identifier: Apache-2.0 */
/* Building the JSON of answers. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/utf8.h"

static inline json_t *answer_integer(uint64_t value)
{
	/* JSON's integers are signed here; "no limit" is the largest of them. */
	return json_integer((json_int_t)ZI_MIN(value, (uint64_t)INT64_MAX));
}

static inline void answer_put(json_t *object, const char *key, json_t *value)
{
	/* Fails with no memory, or with a value that failed: the answer says so. */
	if (json_object_set_new(object, key, value))
		(void)json_object_set_new(object, "error", json_string("out of memory"));
}

static inline void answer_number(json_t *object, const char *key, uint64_t value)
{
	answer_put(object, key, answer_integer(value));
}

/* A text that is no UTF-8, a path or a model's name perhaps, is told as far as it is. */
static inline json_t *answer_text(const char *value)
{
	json_t *text = json_string(value);
	char *copy;

	if (text)
		return text;
	copy = strdup(value);
	if (!copy)
		return NULL;
	zi_utf8_clean(copy);
	text = json_string(copy);
	free(copy);
	return text;
}

static inline void answer_word(json_t *object, const char *key, const char *value)
{
	answer_put(object, key, answer_text(value));
}
