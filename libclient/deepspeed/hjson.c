/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed reads its configuration as HJSON. Files in use take two things from HJSON: comments and
 * commas before a closing bracket. Both become blanks here, so that a JSON parser reads the file
 * and its lines and columns stay those of the file. Source of the syntax: hjson.github.io/syntax.
 * Floor 2. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/deepspeed/private.h"

/* The end of the string that begins at @at, behind its closing quote; @end where it has none. */
static size_t skip_string(const char *text, size_t at, size_t end)
{
	for (at++; at < end && text[at] != '"' && text[at] != '\n'; at++)
		if (text[at] == '\\')
			at++;
	return at < end ? at + 1 : end;
}

/* The end of a comment that begins at @at; @at where none begins. */
static size_t skip_comment(const char *text, size_t at, size_t end)
{
	bool is_block = text[at] == '/' && at + 1 < end && text[at + 1] == '*';
	bool is_line = text[at] == '#' || (text[at] == '/' && at + 1 < end && text[at + 1] == '/');

	if (is_block) {
		for (at += 2; at < end; at++)
			if (text[at] == '*' && at + 1 < end && text[at + 1] == '/')
				return at + 2;
	} else if (is_line) {
		while (at < end && text[at] != '\n')
			at++;
	}
	return at;
}

static void blank(char *text, size_t from, size_t to)
{
	for (; from < to; from++)
		if (text[from] != '\n')
			text[from] = ' ';
}

/* As in the header. */
char *deepspeed_plain_json(const char *text, size_t bytes)
{
	char *plain = malloc(bytes + 1);
	size_t comma =
		bytes; /* where the last token is a comma behind a value; @bytes: it is not */
	char last = '{';

	if (!plain)
		return NULL;
	memcpy(plain, text, bytes);
	for (size_t at = 0, next; at < bytes; at = next) {
		next = skip_comment(plain, at, bytes);
		if (next > at) {
			blank(plain, at, next);
			continue;
		}
		next = plain[at] == '"' ? skip_string(plain, at, bytes) : at + 1;
		if (plain[at] && strchr(" \t\r\n", plain[at]))
			continue;
		if ((plain[at] == '}' || plain[at] == ']') && comma < bytes)
			plain[comma] = ' ';
		comma = plain[at] == ',' && last && !strchr("{[,", last) ? at : bytes;
		last = plain[at];
	}
	return plain;
}
