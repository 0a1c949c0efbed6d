/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An option of the command line: name, type, limits, help, and the field of struct gpt_args that it
 * sets. Each topic has a table of its own, in args_TOPIC.c; this is what walks over all of them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/gpt/args.h"
#include "examples/gpt/problem.h"

enum gpt_option_kind {
	GPT_OPTION_FLAG,   /* bool */
	GPT_OPTION_U32,    /* uint32_t */
	GPT_OPTION_U64,    /* uint64_t */
	GPT_OPTION_F64,    /* double */
	GPT_OPTION_BYTES,  /* uint64_t */
	GPT_OPTION_TEXT,   /* const char * */
	GPT_OPTION_CHOICE, /* uint32_t */
};

/* A name and the value it stands for; a list ends with NULL. */
struct gpt_choice {
	const char *name;
	uint32_t value;
};

struct gpt_option {
	const char *name; /* without the dashes */
	const char *help; /* begins with the word for the value, if it has one */
	const struct gpt_choice *choices;
	size_t offset;
	double min;
	double max;
	enum gpt_option_kind kind;
};

struct gpt_option_table {
	const char *heading;
	const struct gpt_option *options; /* (count,) */
	uint32_t count;
};

/* In the order of --help. */
extern const struct gpt_option_table gpt_options_model, gpt_options_training; /* args_training.c */
extern const struct gpt_option_table gpt_options_lr;                          /* args_lr.c */
extern const struct gpt_option_table gpt_options_scale;                       /* args_scale.c */
extern const struct gpt_option_table gpt_options_activations;               /* args_activations.c */
extern const struct gpt_option_table gpt_options_device;                    /* args_device.c */
extern const struct gpt_option_table gpt_options_ranks, gpt_options_zinf;   /* args_zinf.c */
extern const struct gpt_option_table gpt_options_use;                       /* args_use.c */
extern const struct gpt_option_table gpt_options_output, gpt_options_tests; /* args_output.c */

#define GPT_OPTION_TABLE(title, list)                               \
	{                                                           \
		.heading = (title), .options = (list),              \
		.count = (uint32_t)(sizeof(list) / sizeof(*(list))) \
	}
#define GPT_AT(field) offsetof(struct gpt_args, field)
#define GPT_FLAG(option, field, text)                                                              \
	{                                                                                          \
		.name = (option), .help = (text), .offset = GPT_AT(field), .kind = GPT_OPTION_FLAG \
	}
#define GPT_NUMBER(option, type, field, least, most, text)                                 \
	{                                                                                  \
		.name = (option), .help = (text), .offset = GPT_AT(field), .min = (least), \
		.max = (most), .kind = (type)                                              \
	}
#define GPT_TEXT(option, field, text)                                                              \
	{                                                                                          \
		.name = (option), .help = (text), .offset = GPT_AT(field), .kind = GPT_OPTION_TEXT \
	}
#define GPT_CHOICE(option, field, list, text)                                                 \
	{                                                                                     \
		.name = (option), .help = (text), .choices = (list), .offset = GPT_AT(field), \
		.kind = GPT_OPTION_CHOICE                                                     \
	}

const struct gpt_option *gpt_option_find(const char *name, size_t name_bytes, uint32_t *ret_index);
const char *gpt_option_nearest(const char *name, size_t name_bytes);
int gpt_option_set(const struct gpt_option *option, const char *value, struct gpt_args *args,
                   struct gpt_problem *problem);
void gpt_option_help(FILE *file);
