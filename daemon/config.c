/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the configuration. Floor 7, main thread. inih cuts lines; what they mean is checked here
 * against the table. A wrong line is refused with its place, what was found, what is allowed, and the
 * nearest name: a typing error must never become a default.
 */
#include "daemon/config.h"

#include <ctype.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

/* A name is at most this long, for the distance between two. */
#define CONFIG_NAME_BYTES 64u

struct config_reader {
	struct config *config;
	struct zi_text *text;
	FILE *stream;
	const char *place; /* file name, or "--set" */
	uint32_t line;
	int result; /* the first error */
};

/* The first error stands; says where. Return: 0, which makes inih note an error. */
__attribute__((format(printf, 2, 3))) static int refuse(struct config_reader *reader,
                                                        const char *format, ...)
{
	char message[ZI_TEXT_BYTES];
	va_list args;

	if (reader->result)
		return 0;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args); /* Truncation is meant. */
	va_end(args);
	if (reader->line)
		zi_text_set(reader->text, "%s:%u: %s", reader->place, reader->line, message);
	else
		zi_text_set(reader->text, "%s: %s", reader->place, message);
	reader->result = err_origin(-EINVAL);
	return 0;
}

/* Levenshtein's distance; names longer than CONFIG_NAME_BYTES are just far. */
static uint32_t distance(const char *a, const char *b)
{
	uint32_t row[CONFIG_NAME_BYTES + 1];
	size_t b_bytes = strlen(b);

	if (strlen(a) > CONFIG_NAME_BYTES || b_bytes > CONFIG_NAME_BYTES)
		return UINT32_MAX;
	for (uint32_t j = 0; j <= b_bytes; j++)
		row[j] = j;
	for (uint32_t i = 0; a[i]; i++) {
		uint32_t diagonal = row[0];

		row[0] = i + 1;
		for (uint32_t j = 0; j < b_bytes; j++) {
			uint32_t changed = diagonal + (a[i] != b[j]);

			diagonal = row[j + 1];
			row[j + 1] = ZI_MIN(changed, ZI_MIN(row[j], row[j + 1]) + 1);
		}
	}
	return row[b_bytes];
}

/* The nearest of some names, offered one by one. */
struct nearest {
	const char *wanted;
	const char *name;
	uint32_t distance;
};

static void nearest_offer(struct nearest *nearest, const char *name)
{
	uint32_t d = distance(nearest->wanted, name);

	if (!nearest->name || d < nearest->distance) {
		nearest->name = name;
		nearest->distance = d;
	}
}

static int refuse_section(struct config_reader *reader, const char *section)
{
	struct nearest nearest = { .wanted = section };

	for (uint32_t i = 0; i < config_section_count; i++)
		nearest_offer(&nearest, config_sections[i].name);
	if (!*section)
		return refuse(reader, "a key before the first section; allowed are [daemon], "
				      "[tier.cpu], [nvme NAME], [engine], [limits], [quota], [step]");
	return refuse(reader,
	              "no section [%.40s] (nearest: [%s]); allowed are [daemon], [tier.cpu], "
	              "[nvme NAME], [engine], [limits], [quota], [step]",
	              section, nearest.name);
}

static int refuse_key(struct config_reader *reader, const char *section, const char *name)
{
	struct nearest nearest = { .wanted = name };
	char allowed[ZI_TEXT_BYTES] = "";

	for (uint32_t i = 0; i < config_key_count; i++) {
		size_t used_bytes = strlen(allowed);

		if (strcmp(config_keys[i].section, section) != 0)
			continue;
		nearest_offer(&nearest, config_keys[i].name);
		(void)snprintf(allowed + used_bytes, sizeof(allowed) - used_bytes, "%s%s",
		               used_bytes ? ", " : "", config_keys[i].name); /* May be cut. */
	}
	return refuse(reader, "[%s] has no key '%.40s' (nearest: '%s'); allowed are %s", section,
	              name, nearest.name, allowed);
}

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

static int refuse_range(struct config_reader *reader, const struct config_key *key,
                        const char *value)
{
	const char *or_word = key->special ? " or " : "";
	const char *special = key->special ? key->special : "";

	switch (key->kind) {
	case CONFIG_COUNT:
		return refuse(reader, "%s = '%.40s': %llu to %llu%s%s are allowed", key->name, value,
		              (unsigned long long)key->low, (unsigned long long)key->high, or_word,
		              special);
	case CONFIG_BYTES:
		return refuse(reader, "%s = '%.40s': bytes (4096, 64K, 1.5G) from %s to %s%s%s are "
				      "allowed",
		              key->name, value, zi_format_bytes(key->low).chars,
		              zi_format_bytes(key->high).chars, or_word, special);
	case CONFIG_MODE:
		return refuse(reader, "%s = '%.40s': octal, 0000 to 0777 are allowed", key->name,
		              value);
	case CONFIG_CHOICE:
		return refuse(reader, "%s = '%.40s': allowed are: %s", key->name, value,
		              key->choices);
	case CONFIG_TEXT:
		break;
	}
	return refuse(reader, "%s: 1 to %u bytes are allowed", key->name, CONFIG_TEXT_BYTES - 1);
}

/* Checks @value and stores it at its place in @base. 1, or 0 after refusing. */
static int assign(struct config_reader *reader, const struct config_key *key, void *base,
                  const char *value)
{
	bool is_special = key->special && !strcmp(value, key->special);
	uint64_t *number = (uint64_t *)((char *)base + key->offset);
	uint64_t parsed = key->special_value;
	bool is_good = is_special;

	switch (key->kind) {
	case CONFIG_TEXT:
		if (!*value || strlen(value) >= CONFIG_TEXT_BYTES)
			return refuse_range(reader, key, value);
		(void)strcpy_fixed((char *)base + key->offset, is_special ? "" : value);
		return 1;
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
		return refuse_range(reader, key, value);
	*number = parsed;
	return 1;
}
