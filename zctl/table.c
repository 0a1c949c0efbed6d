/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for people (table.h). Cells are kept until the table is printed, since a column is as wide
 * as its widest cell. Short of memory, cells print as "?": a table is never worth an abort.
 */
#include "zctl/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2u /* blanks between columns */

struct table {
	const char *const *headings;
	unsigned column_count;
	char **cells;
	size_t cell_count, cell_capacity;
};

struct table *table_new(const char *const *headings)
{
	struct table *table = calloc(1, sizeof *table);

	if (!table)
		return NULL;
	table->headings = headings;
	while (headings[table->column_count])
		table->column_count++;
	assert(table->column_count && table->column_count <= TABLE_COLUMNS_MAX);
	return table;
}

struct table *table_free(struct table *table)
{
	if (!table)
		return NULL;
	for (size_t i = 0; i < table->cell_count; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
	return NULL;
}

void table_cell(struct table *table, const char *format, ...)
{
	va_list arguments;
	char *text = NULL;

	if (!table)
		return;
	if (table->cell_count == table->cell_capacity) {
		size_t capacity = table->cell_capacity ? 2 * table->cell_capacity : 64;
		char **grown = realloc(table->cells, capacity * sizeof *grown);

		if (!grown)
			return;
		table->cells = grown;
		table->cell_capacity = capacity;
	}
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	table->cells[table->cell_count++] = text;
}

static const char *cell_text(const struct table *table, size_t index)
{
	if (index >= table->cell_count)
		return "";
	return table->cells[index] ? table->cells[index] : "?";
}

static const char *heading_text(const struct table *table, unsigned column)
{
	const char *heading = table->headings[column];

	return *heading == '>' ? heading + 1 : heading;
}

/* @blanks: what is due before the next word, so that no line ends in blanks. */
static void print_cell(const char *text, size_t width, bool is_right, size_t *blanks)
{
	size_t pad = width - strlen(text);

	if (*text)
		printf("%*s%s", (int)(*blanks + (is_right ? pad : 0)), "", text);
	*blanks = *text ? (is_right ? 0 : pad) + GAP : *blanks + width + GAP;
}

static void print_row(const struct table *table, size_t first_cell, const size_t *widths)
{
	size_t blanks = 0;

	for (unsigned c = 0; c < table->column_count; c++)
		print_cell(cell_text(table, first_cell + c), widths[c], *table->headings[c] == '>',
		           &blanks);
	putchar('\n');
}

static void print_headings(const struct table *table, const size_t *widths, bool is_colour)
{
	size_t blanks = 0;

	fputs(is_colour ? "\033[1m" : "", stdout);
	for (unsigned c = 0; c < table->column_count; c++)
		print_cell(heading_text(table, c), widths[c], *table->headings[c] == '>', &blanks);
	puts(is_colour ? "\033[0m" : "");
}

void table_print(const struct table *table, bool is_colour)
{
	size_t widths[TABLE_COLUMNS_MAX] = { 0 };
	size_t rows;

	if (!table)
		return;
	rows = (table->cell_count + table->column_count - 1) / table->column_count;
	for (unsigned c = 0; c < table->column_count; c++) {
		widths[c] = strlen(heading_text(table, c));
		for (size_t r = 0; r < rows; r++) {
			size_t bytes = strlen(cell_text(table, r * table->column_count + c));

			widths[c] = bytes > widths[c] ? bytes : widths[c];
		}
	}
	print_headings(table, widths, is_colour);
	for (size_t r = 0; r < rows; r++)
		print_row(table, r * table->column_count, widths);
}
