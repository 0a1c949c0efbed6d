/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people. Floor 0, any thread: no state. */
#include "common/base/text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/base/utf8.h"

#define TEXT_ELLIPSIS  "…"
#define ELLIPSIS_BYTES (sizeof(TEXT_ELLIPSIS) - 1)
/* A word that is longer is cut itself. */
#define TEXT_WORD_BYTES 48u

/* Digits after the point that zi_parse_bytes() takes: 10^9 fits a 32-bit word. */
#define TEXT_FRACTION_DIGITS_MAX 9u

/* The letter at index i stands for 2^(10 * i) bytes. */
static const char text_units[] = "BKMGTPE";

/* @text is full, and more would come: it ends behind a whole word, where one ends near, and says
 * that it is cut. */
static void cut(struct zi_text *text)
{
	size_t bytes = zi_utf8_whole(text->chars, sizeof(text->chars) - 1 - ELLIPSIS_BYTES);

	for (size_t i = bytes; i + TEXT_WORD_BYTES > bytes; i--)
		if (text->chars[i - 1] == ' ') {
			bytes = i;
			break;
		}
	memcpy(text->chars + bytes, TEXT_ELLIPSIS, sizeof(TEXT_ELLIPSIS));
}

/* What lies before @used stays, unless @text has to be cut: its last word then goes. */
static void print_at(struct zi_text *text, size_t used, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

static void print_at(struct zi_text *text, size_t used, const char *format, va_list args)
{
	size_t room = sizeof(text->chars) - used;

	if (used >= ELLIPSIS_BYTES && !strcmp(text->chars + used - ELLIPSIS_BYTES, TEXT_ELLIPSIS))
		return; /* It was cut before. */
	if (vsnprintf(text->chars + used, room, format, args) >= (int)room)
		cut(text);
}

/* Fills @text (may be NULL: not wanted) with one sentence. One of more than ZI_TEXT_BYTES - 1
 * bytes ends with "…". */
void zi_text_set(struct zi_text *text, const char *format, ...)
{
	va_list args;

	if (!text)
		return;
	va_start(args, format);
	print_at(text, 0, format, args);
	va_end(args);
}

/* As above. */
void zi_text_set_args(struct zi_text *text, const char *format, va_list args)
{
	print_at(text, 0, format, args);
}

/* Adds to what @text holds, cut as above. */
void zi_text_append(struct zi_text *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_at(text, strnlen(text->chars, sizeof(text->chars) - 1), format, args);
	va_end(args);
}

/* As zi_text_set(). Return: @error, a negative errno or a condition. */
int zi_text_error(struct zi_text *text, int error, const char *format, ...)
{
	va_list args;

	if (!text)
		return error;
	va_start(args, format);
	print_at(text, 0, format, args);
	va_end(args);
	return error;
}

/* See text.h. */
struct zi_reals_text zi_format_reals(double one, double other)
{
	struct zi_reals_text text;

	for (int digits = 9; digits <= 17; digits += 8) {
		(void)snprintf(text.one, sizeof(text.one), "%.*g", digits, one);       /* Fits. */
		(void)snprintf(text.other, sizeof(text.other), "%.*g", digits, other); /* Fits. */
		if (strcmp(text.one, text.other) != 0)
			break;
	}
	return text;
}

/* Return: @bytes in the largest binary unit that leaves at least one, to a tenth, rounded to
 * nearest: "640 B", "64 KiB", "1.5 GiB". */
struct zi_bytes_text zi_format_bytes(uint64_t bytes)
{
	struct zi_bytes_text text;
	unsigned unit = 0;
	uint64_t tenths;

	while (unit < 6 && bytes >> (10 * unit) >= 1024)
		unit++;
	if (!unit) {
		(void)snprintf(text.chars, sizeof(text.chars), "%u B", (unsigned)bytes); /* Fits. */
		return text;
	}
	for (;;) {
		unsigned shift = 10 * unit;
		uint64_t rest = bytes & ((1ull << shift) - 1);

		/* rest < 2^60: ten times that and a half still fit. */
		tenths = (bytes >> shift) * 10 + ((rest * 10 + (1ull << (shift - 1))) >> shift);
		if (tenths < 10240 || unit == 6)
			break;
		unit++; /* 1023.96 KiB is written 1 MiB. */
	}
	/* Fits: at most 4 digits, a tenth and the unit. */
	if (tenths % 10)
		(void)snprintf(text.chars, sizeof(text.chars), "%u.%u %ciB",
		               (unsigned)(tenths / 10), (unsigned)(tenths % 10), text_units[unit]);
	else
		(void)snprintf(text.chars, sizeof(text.chars), "%u %ciB", (unsigned)(tenths / 10),
		               text_units[unit]);
	return text;
}

/* "", "B", "K", "KiB", " KiB" …, upper or lower case letter. KB is refused: nobody knows whether
 * it means 1000 or 1024. */
static bool parse_unit(const char *text, unsigned *ret_shift)
{
	const char *place;

	if (*text == ' ')
		text++;
	else if (!*text) {
		*ret_shift = 0;
		return true;
	}
	if (!*text)
		return false;
	place = strchr(text_units, toupper((unsigned char)*text));
	if (!place)
		return false;
	text++;
	if (*text && (place == text_units || strcmp(text, "iB") != 0))
		return false;
	*ret_shift = 10 * (unsigned)(place - text_units);
	return true;
}

/*
 * @ret_bytes: at most INT64_MAX, so that it also fits the catalog's signed column. A fraction needs
 * a unit and is rounded down to whole bytes.
 * Return: 0, -EINVAL when @text is no such number, -ERANGE when it is too large.
 */
int zi_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	uint64_t fraction = 0;
	uint64_t scale = 1;
	uint64_t whole = 0;
	unsigned shift;
	bool is_overflow = false;
	bool is_fraction = false;

	if (!isdigit((unsigned char)*text))
		return err_origin(-EINVAL);
	for (; isdigit((unsigned char)*text); text++) {
		uint64_t digit = (uint64_t)(*text - '0');

		/* Goes on reading: "99999999999999999999x" is no number rather than a large one. */
		if (!zi_checked_mul(whole, 10, &whole) || !zi_checked_add(whole, digit, &whole))
			is_overflow = true;
	}
	if (*text == '.') {
		is_fraction = true;
		text++;
		if (!isdigit((unsigned char)*text))
			return err_origin(-EINVAL);
		for (unsigned i = 0; isdigit((unsigned char)*text); text++, i++) {
			if (i == TEXT_FRACTION_DIGITS_MAX)
				return err_origin(-EINVAL);
			fraction = fraction * 10 + (uint64_t)(*text - '0');
			scale *= 10;
		}
	}
	if (!parse_unit(text, &shift))
		return err_origin(-EINVAL);
	if (is_fraction && !shift)
		return err_origin(-EINVAL);
	if (is_overflow || whole > (uint64_t)INT64_MAX >> shift)
		return err_origin(-ERANGE);
	/* The fraction is below 1 and whole + 1 at most 2^(63 - shift): no more than 2^63 - 1. */
	*ret_bytes = (whole << shift) + (uint64_t)(((unsigned __int128)fraction << shift) / scale);
	return 0;
}

/* @capacity: bytes of @target, NUL included. Return: 0, or -ENAMETOOLONG with @target untouched. */
int zi_copy_name(char *target, size_t capacity, const char *source)
{
	size_t source_bytes = strnlen(source, capacity);

	if (source_bytes == capacity)
		return err_origin(-ENAMETOOLONG);
	memcpy(target, source, source_bytes + 1);
	return 0;
}

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("._:+-", c));
}

/*
 * Names go into file names, logs and tables: hence the plain alphabet, and no leading '.' or '-'.
 * @bytes_max: capacity of the field, NUL included; @name is never read beyond it, so that it may
 * be an array out of a message that nobody has terminated.
 * Return: 0, -EINVAL, or -ENAMETOOLONG when no NUL lies within @bytes_max.
 */
int zi_check_name(const char *name, size_t bytes_max)
{
	size_t name_bytes = strnlen(name, bytes_max);

	if (name_bytes == bytes_max)
		return err_origin(-ENAMETOOLONG);
	if (!name_bytes || name[0] == '.' || name[0] == '-')
		return err_origin(-EINVAL);
	for (size_t i = 0; i < name_bytes; i++)
		if (!is_name_char(name[i]))
			return err_origin(-EINVAL);
	return 0;
}
