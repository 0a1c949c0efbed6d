/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as far as memory is concerned: how many elements its units have, and what its source says
 * of the training. Sources are read by count.c, header.c, config.c and record.c; source.c knows
 * which one a word means. Nothing in them is believed.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/plan.h"

/* A layout's limit on its parameters; no unit is without one. */
#define ESTIMATE_UNITS_MAX (1u << 24)
/* As of every shape (docs/ARITHMETIC.md). */
#define ESTIMATE_ELEMENTS_MAX (1ull << 48)

struct estimate_unit {
	char *name; /* NULL: one of many that are equal */
	uint64_t element_count;
};

/* Of safetensors headers without a word of zinf in them. */
struct estimate_sums {
	uint64_t header_count;
	uint64_t by_dtype[_ZI_DTYPE_FLOAT_COUNT]; /* elements of parameters; 0: of no dtype here */
	uint64_t buffer_count, buffer_elements;   /* what are no parameters */
	uint64_t whole_elements;                  /* of these, integers */
};

struct estimate_model {
	struct zi_text kind; /* what the source is: "safetensors header", "llama's config.json" */
	struct zi_text note; /* what else should be known of its figures, or "" */
	struct estimate_unit *units; /* (unit_count,) */
	uint64_t *unit_padded;       /* (unit_count,) by estimate_model_end() */
	uint32_t unit_count, unit_capacity;
	uint64_t param_count; /* 0: the source does not say */
	uint64_t element_count, padded_count;
	json_t *indices; /* of the units, by name */
	struct estimate_sums sums;
	/* 0: the source does not say. */
	enum zi_dtype dtype, grad_dtype;
	enum zi_optimizer optimizer;
	enum zi_schedule schedule;
};

/* Twice is fine. */
void estimate_model_free(struct estimate_model *model);
/* @element_count more, in the unit of that name, which is new if there is none. @name: NULL: a new
 * one without a name. Return: 0; -EINVAL with words: too many; -ENOMEM. */
int estimate_model_add(struct estimate_model *model, const char *name, uint64_t element_count,
                       struct zi_text *text);
/* It has all its units. Return: 0; -EINVAL with words: it has none; -ENOMEM. */
int estimate_model_end(struct estimate_model *model, struct zi_text *text);
/* Once it has ended; what it points to is the model's. */
struct zi_plan_model estimate_model_plan(const struct estimate_model *model);

/* ---- count.c ---- */

/* "1.3G", "125M": elements, in powers of 1000. */
bool estimate_is_count(const char *word);
/* @unit_count: equal units; 0: one for each 2^26 elements. Return: 0; -EINVAL with words. */
int estimate_read_count(struct estimate_model *model, const char *word, uint32_t unit_count,
                        struct zi_text *text);

/* ---- header.c ---- */

/* @header: of a safetensors file; of each, where they are several. Return: 0; -EINVAL with words,
 * which name the tensor. */
int estimate_read_header(struct estimate_model *model, json_t *header, struct zi_text *text);
/* After the last one. */
int estimate_end_headers(struct estimate_model *model, struct zi_text *text);

/* ---- config.c ---- */

/* @config: config.json of Hugging Face. Return: 0; -EINVAL with words, which name the key. */
int estimate_read_config(struct estimate_model *model, const json_t *config, struct zi_text *text);

/* ---- record.c ---- */

/* @record: manifest.json of an export, or what its parameters' file says of the model. Return: 0;
 * -EINVAL with words. */
int estimate_read_record(struct estimate_model *model, json_t *record, struct zi_text *text);

/* ---- source.c ---- */

/* The length of a safetensors header, and what the format allows itself. */
#define ESTIMATE_LENGTH_BYTES     8u
#define ESTIMATE_HEADER_BYTES_MAX 100000000u

/* What a file holds: JSON, or a safetensors file down to the end of its header. @directory: where
 * the files lie that an index names; NULL: it may name none. Return: 0; -EINVAL, -ENOMEM, or what
 * reading a file said, with words that do not name the file. */
int estimate_read_bytes(struct estimate_model *model, const void *bytes, size_t byte_count,
                        const char *directory, struct zi_text *text);
/* @source: a count, or a path. @unit_count: as of estimate_read_count(); 0 for a path. Return: 0;
 * -errno with words; estimate_model_free() in both cases. */
int estimate_read(struct estimate_model *model, const char *source, uint32_t unit_count,
                  struct zi_text *text);
