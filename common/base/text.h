/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text for people: byte counts with binary units, in both directions, and an error text that is
 * carried beside an errno. Floor 0.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define ZI_TEXT_BYTES 256u

/* What goes wrong for a client or an administrator is an errno and one sentence with figures.
 * Callees fill it when they return a negative errno or a condition; NULL means "not wanted". */
struct zi_text {
	char chars[ZI_TEXT_BYTES];
};

/* Writes the sentence: one that is too long is cut behind a whole word, and ends with "…". What to
 * do stands before it. @text may be NULL. */
void zi_text_set(struct zi_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void zi_text_set_args(struct zi_text *text, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));
/* Goes on with it. */
void zi_text_append(struct zi_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* As above and returns @error: `return zi_text_error(text, -EINVAL, "…")`. */
int zi_text_error(struct zi_text *text, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* "1.5 GiB", "640 B". Returns @buffer. 16 bytes suffice for any value. */
#define ZI_BYTES_TEXT_BYTES 24u
struct zi_bytes_text {
	char chars[ZI_BYTES_TEXT_BYTES];
};
struct zi_bytes_text zi_format_bytes(uint64_t bytes);
/* Two numbers that differ, so that people see it: with 9 digits, or with all 17 where these are
 * alike. */
struct zi_reals_text {
	char one[32], other[32];
};
struct zi_reals_text zi_format_reals(double one, double other);
/* "4096", "64K", "1.5G", "2 GiB" → bytes. -EINVAL when it is none of these, -ERANGE past 2^63. */
int zi_parse_bytes(const char *text, uint64_t *ret_bytes);
/* Copies a name of at most capacity-1 bytes; -ENAMETOOLONG otherwise. */
int zi_copy_name(char *target, size_t capacity, const char *source);
/* Names of jobs, tiers, incarnations: one or more of [A-Za-z0-9._:+-], the first not '.' or '-'.
 * @bytes_max: capacity of the field, NUL included; nothing beyond it is read. */
int zi_check_name(const char *name, size_t bytes_max);
