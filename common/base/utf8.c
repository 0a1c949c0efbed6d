/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8; see utf8.h. Floor 0. */
#include "common/base/utf8.h"

#include <stdbool.h>
#include <stdint.h>

static bool is_inner(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

/* How many bytes a character has that begins so; 1 also of what begins none. */
static size_t length_of(char first)
{
	unsigned char byte = (unsigned char)first;

	return byte < 0xc2 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 1;
}

size_t zi_utf8_whole(const char *chars, size_t bytes)
{
	size_t first = bytes;

	for (size_t i = 0; i < 3 && first && is_inner(chars[first - 1]); i++)
		first--;
	if (!first)
		return bytes;
	first--;
	return first + length_of(chars[first]) > bytes ? first : bytes;
}

/* The character at @chars, a text with its NUL; 0xfffd: none. */
static uint32_t decode(const char *chars, size_t *ret_bytes)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t bytes = length_of(chars[0]);
	uint32_t value = (unsigned char)chars[0];

	*ret_bytes = 1;
	if (bytes == 1)
		return value < 0x80 ? value : 0xfffd;
	value &= 0xffu >> (bytes + 1);
	for (size_t i = 1; i < bytes; i++) {
		if (!is_inner(chars[i]))
			return 0xfffd;
		value = value << 6 | ((unsigned char)chars[i] & 0x3f);
	}
	/* Longer than need be, a half of UTF-16, or beyond the last one. */
	if (value < least[bytes] || (value >= 0xd800 && value < 0xe000) || value > 0x10ffff)
		return 0xfffd;
	*ret_bytes = bytes;
	return value;
}

void zi_utf8_clean(char *chars)
{
	char *to = chars;

	while (*chars) {
		size_t bytes;
		uint32_t value = decode(chars, &bytes);
		bool is_none = value == 0xfffd && bytes == 1;

		if (is_none || value < ' ' || (value >= 0x7f && value < 0xa0)) {
			*to++ = '?';
			chars += bytes;
			continue;
		}
		while (bytes--)
			*to++ = *chars++;
	}
	*to = '\0';
}
