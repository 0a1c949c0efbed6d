/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for people: columns as wide as their widest cell, numbers to the right. */
#pragma once

#include <stdbool.h>

#define TABLE_COLUMNS_MAX 16

struct table;

/* @headings: one per column, NULL-terminated; a heading that begins with '>' aligns right (the
 * sign is not printed). NULL when memory is short. */
struct table *table_new(const char *const *headings);
struct table *table_free(struct table *table);
/* Adds a cell, row by row from the left; formatted text is copied. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints to stdout; headings in bold when @is_colour. */
void table_print(const struct table *table, bool is_colour);
