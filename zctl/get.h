/* SPDX-License-Identifier: Apache-2.0 */
/* Reading keys of the daemon's answers. A key that is not there (an older daemon) reads as 0 or "".
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

static inline uint64_t get_count(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value < 0 ? 0 : (uint64_t)value;
}

static inline int64_t get_signed(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static inline const char *get_word(const json_t *object, const char *key)
{
	const char *word = json_string_value(json_object_get(object, key));

	return word ? word : "";
}
