/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of options as one: finding, setting, showing. */
#include "examples/gpt/args_option.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "examples/gpt/distance.h"
#include "examples/gpt/number.h"

static const struct gpt_option_table *const tables[] = {
	&gpt_options_model,       &gpt_options_training, &gpt_options_lr,    &gpt_options_scale,
	&gpt_options_activations, &gpt_options_device,   &gpt_options_ranks, &gpt_options_zinf,
	&gpt_options_use,         &gpt_options_output,   &gpt_options_tests,
};
#define TABLE_COUNT (sizeof(tables) / sizeof(tables[0]))

/* @name: without the dashes, (@name_bytes,). @ret_index: counted over all tables. NULL: unknown. */
const struct gpt_option *gpt_option_find(const char *name, size_t name_bytes, uint32_t *ret_index)
{
	uint32_t index = 0;

	for (size_t t = 0; t < TABLE_COUNT; t++) {
		for (uint32_t i = 0; i < tables[t]->count; i++, index++) {
			const struct gpt_option *option = &tables[t]->options[i];

			if (strlen(option->name) != name_bytes ||
			    strncmp(option->name, name, name_bytes) != 0)
				continue;
			assert(index < GPT_OPTIONS_MAX);
			*ret_index = index;
			return option;
		}
	}
	return NULL;
}

/* The known name that @name, (@name_bytes,), may have been meant for. NULL: none is near: a guess
 * would mislead. Two letters may differ, or a third of a long name. */
const char *gpt_option_nearest(const char *name, size_t name_bytes)
{
	unsigned most = name_bytes / 3 > 2 ? (unsigned)(name_bytes / 3) : 2;
	unsigned best_distance = UINT_MAX;
	const char *best = NULL;
	char wanted[64];

	if (name_bytes >= sizeof(wanted))
		return NULL;
	memcpy(wanted, name, name_bytes);
	wanted[name_bytes] = '\0';

	for (size_t t = 0; t < TABLE_COUNT; t++) {
		for (uint32_t i = 0; i < tables[t]->count; i++) {
			unsigned distance = gpt_distance(wanted, tables[t]->options[i].name);

			if (distance < best_distance) {
				best = tables[t]->options[i].name;
				best_distance = distance;
			}
		}
	}
	return best_distance <= most && best_distance < name_bytes ? best : NULL;
}

static int set_choice(const struct gpt_option *option, const char *value, uint32_t *ret_value,
                      struct gpt_problem *problem)
{
	char list[320] = "";

	for (const struct gpt_choice *choice = option->choices; choice->name; choice++) {
		size_t used = strlen(list);

		if (strcmp(choice->name, value) == 0) {
			*ret_value = choice->value;
			return 0;
		}
		(void)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
		               choice->name); /* The lists of the tables fit. */
	}
	return gpt_problem_set(problem, -EINVAL, "--%s %s: allowed are %s", option->name, value,
	                       list);
}

/* @value: of an option that is no flag. @args: texts point into @value. Return: 0, -EINVAL with the
 * reason. */
int gpt_option_set(const struct gpt_option *option, const char *value, struct gpt_args *args,
                   struct gpt_problem *problem)
{
	void *field = (char *)args + option->offset;
	uint64_t integer = 0;
	double number = 0;
	int r = 0;

	assert(option->kind != GPT_OPTION_FLAG);
	if (option->kind == GPT_OPTION_TEXT) {
		*(const char **)field = value;
		return 0;
	}
	if (option->kind == GPT_OPTION_CHOICE)
		return set_choice(option, value, field, problem);
	if (option->kind == GPT_OPTION_F64)
		r = gpt_parse_f64(value, &number);
	else if (option->kind == GPT_OPTION_BYTES)
		r = gpt_parse_bytes(value, &integer);
	else
		r = gpt_parse_u64(value, &integer);
	if (r)
		return gpt_problem_set(
			problem, -EINVAL, "--%s %s: a number%s is needed", option->name, value,
			option->kind == GPT_OPTION_BYTES ? " (with K, M, G or T)" : "");
	if (option->kind != GPT_OPTION_F64)
		number = (double)integer;
	if (!(number >= option->min && number <= option->max))
		return gpt_problem_set(problem, -EINVAL, "--%s %s: allowed is %.15g to %.15g",
		                       option->name, value, option->min, option->max);
	if (option->kind == GPT_OPTION_F64)
		*(double *)field = number;
	else if (option->kind == GPT_OPTION_U32)
		*(uint32_t *)field = (uint32_t)integer;
	else
		*(uint64_t *)field = integer;
	return 0;
}

/* ---- --help ---- */

#define HELP_COLUMNS     80
#define HELP_TEXT_COLUMN 26 /* where what is said about an option begins */

/* Columns of @bytes bytes of UTF-8. */
static int columns_of(const char *text, size_t bytes)
{
	int count = 0;

	for (size_t i = 0; i < bytes; i++)
		count += ((unsigned char)text[i] & 0xc0) != 0x80;
	return count;
}

/* The words of @text from @column on, in lines that are indented by @indent. */
static void print_wrapped(const char *text, int column, int indent, FILE *file)
{
	bool is_first = true;

	while (*text) {
		size_t bytes = strcspn(text, " ");
		int width = columns_of(text, bytes);

		if (!is_first && column + 1 + width > HELP_COLUMNS) {
			(void)fprintf(file, "\n%*s", indent, "");
			column = indent;
			is_first = true;
		}
		(void)fprintf(file, "%s%.*s", is_first ? "" : " ", (int)bytes, text);
		column += width + !is_first;
		is_first = false;
		text += bytes;
		text += strspn(text, " ");
	}
	(void)fprintf(file, "\n");
}

static void print_option(const struct gpt_option *option, FILE *file)
{
	size_t value_bytes = strcspn(option->help, " "); /* 0: it takes none */
	int column = 4 + columns_of(option->name, strlen(option->name));

	(void)fprintf(file, "  --%s", option->name);
	if (value_bytes) {
		(void)fprintf(file, " %.*s", (int)value_bytes, option->help);
		column += 1 + columns_of(option->help, value_bytes);
	}
	if (column + 2 > HELP_TEXT_COLUMN)
		(void)fprintf(file, "\n%*s", HELP_TEXT_COLUMN, "");
	else
		(void)fprintf(file, "%*s", HELP_TEXT_COLUMN - column, "");
	print_wrapped(option->help + value_bytes + strspn(option->help + value_bytes, " "),
	              HELP_TEXT_COLUMN, HELP_TEXT_COLUMN, file);
}

/* All of them by groups, in lines of at most 80 columns. */
void gpt_option_help(FILE *file)
{
	for (size_t t = 0; t < TABLE_COUNT; t++) {
		(void)fprintf(file, "\n%s\n", tables[t]->heading);
		for (uint32_t i = 0; i < tables[t]->count; i++)
			print_option(&tables[t]->options[i], file);
	}
}
