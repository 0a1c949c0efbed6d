/* SPDX-License-Identifier: Apache-2.0 */
/* One value of the configuration: what is allowed, said when it is not. Floor 7. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "daemon/config.h"

/* The index of @value among the blank-separated @choices. */
static bool find_choice(const char *choices, const char *value, uint64_t *ret_index)
{
	size_t value_bytes = strlen(value);
	uint64_t index = 0;

	for (const char *word = choices; *word; index++) {
		size_t word_bytes = strcspn(word, " ");

		if (word_bytes == value_bytes && !memcmp(word, value, word_bytes)) {
			*ret_index = index;
			return true;
		}
		word += word_bytes + (word[word_bytes] == ' ');
	}
	return false;
}

/* Digits only: no sign, no blank. */
static bool parse_count(const char *value, int base, uint64_t *ret_count)
{
	char *end;
	uint64_t count;

	if (!isdigit((unsigned char)*value))
		return false;
	errno = 0;
	count = strtoull(value, &end, base);
	if (*end || errno)
		return false;
	*ret_count = count;
	return true;
}

static int refuse_range(struct zi_text *text, const struct config_key *key, const char *value)
{
	const char *or_word = key->special ? " or " : "";
	const char *special = key->special ? key->special : "";

	switch (key->kind) {
	case CONFIG_COUNT:
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%s = '%.40s': %llu to %llu%s%s are allowed", key->name, value,
		                     (unsigned long long)key->low, (unsigned long long)key->high,
		                     or_word, special);
	case CONFIG_BYTES:
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%s = '%.40s': bytes (4096, 64K, 1.5G) from %s to %s%s%s are "
		                     "allowed",
		                     key->name, value, zi_format_bytes(key->low).chars,
		                     zi_format_bytes(key->high).chars, or_word, special);
	case CONFIG_MODE:
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%s = '%.40s': octal, 0000 to 0777 are allowed", key->name,
		                     value);
	case CONFIG_CHOICE:
		return zi_text_error(text, err_origin(-EINVAL), "%s = '%.40s': allowed are: %s",
		                     key->name, value, key->choices);
	case CONFIG_TEXT:
		break;
	}
	return zi_text_error(text, err_origin(-EINVAL), "%s: 1 to %u bytes are allowed", key->name,
	                     CONFIG_TEXT_BYTES - 1);
}

/**
 * config_assign() - check a value and put it into its place
 * @key: of the table
 * @base: struct config or struct config_store, as @key's section says
 * @value: as it stands in the file
 * @text: of a refusal; may be NULL
 *
 * Return: 0; -EINVAL, with the place untouched.
 */
int config_assign(const struct config_key *key, void *base, const char *value, struct zi_text *text)
{
	bool is_special = key->special && !strcmp(value, key->special);
	uint64_t *number = (uint64_t *)((char *)base + key->offset);
	uint64_t parsed = key->special_value;
	bool is_good = is_special;

	switch (key->kind) {
	case CONFIG_TEXT:
		if (!*value || zi_copy_name((char *)base + key->offset, CONFIG_TEXT_BYTES,
		                            is_special ? "" : value))
			return refuse_range(text, key, value);
		return 0;
	case CONFIG_CHOICE:
		is_good = find_choice(key->choices, value, &parsed);
		break;
	case CONFIG_COUNT:
	case CONFIG_MODE:
		if (!is_special)
			is_good = parse_count(value, key->kind == CONFIG_MODE ? 8 : 10, &parsed) &&
			          parsed >= key->low && parsed <= key->high;
		break;
	case CONFIG_BYTES:
		if (!is_special)
			is_good = !zi_parse_bytes(value, &parsed) && parsed >= key->low &&
			          parsed <= key->high;
		break;
	}
	if (!is_good)
		return refuse_range(text, key, value);
	*number = parsed;
	return 0;
}
