/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the reader of DeepSpeed's JSON. One table (keys.c) says what every key is; walk.c
 * holds a file against it; then each section (batch, zero, precision, optimizer, schedule) turns
 * values into fields, and yet.c refuses what zinfd cannot do yet. Floor 2, any thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <zinf/deepspeed.h>

#include "common/base/text.h"

enum deepspeed_type {
	DEEPSPEED_OBJECT, /* whose keys are rows of the table */
	DEEPSPEED_WHOLE,  /* an object that is taken as one value */
	DEEPSPEED_BOOL,
	DEEPSPEED_COUNT,  /* a number without a fraction: 500000000, 5e8 */
	DEEPSPEED_NUMBER, /* finite */
	DEEPSPEED_TEXT,
	DEEPSPEED_CHOICE, /* one of `choices`, in any case */
	DEEPSPEED_BETAS,  /* two numbers from 0 to below 1 */
	DEEPSPEED_LIST
};

/* What becomes of a key whose value is another than `standard`. */
enum deepspeed_kind {
	DEEPSPEED_USE,   /* a field; with a reason also a note: not quite what it does there */
	DEEPSPEED_NOTE,  /* nothing, and a note says why */
	DEEPSPEED_SAME,  /* nothing, for zinf does so anyway */
	DEEPSPEED_REFUSE /* -EOPNOTSUPP: results would be others */
};

/* A row. */
struct deepspeed_key {
	const char *path; /* "zero_optimization.stage" */
	enum deepspeed_type type;
	enum deepspeed_kind kind;
	const char *standard; /* default, as JSON; "null": none, and null may stand for it */
	double low, high;     /* of numbers; both allowed */
	const char *choices;  /* blank-separated */
	const char *alias;    /* another name in the same object */
	const char *only;     /* types of optimizer or scheduler that have it, blank-separated */
	const char *same;     /* a second value, as JSON, of which nothing is to be said */
	const char *does;     /* of USE: what it becomes */
	const char *reason;
	bool may_be_auto; /* "auto" is filled in from zinf_deepspeed_facts */
	bool has_switch;  /* WHOLE: of no effect without "enabled": true */
	bool is_needed;   /* in its object, where the object's type has it */
};

/* What a value of the file is to people: JSON, ASCII, cut. */
struct deepspeed_shown {
	char chars[64];
};

struct zinf_deepspeed {
	json_t *root;
	json_t **values; /* (deepspeed_key_count(),) borrowed from root; NULL: not in the file */
	struct zinf_deepspeed_facts facts;
	const char *optimizer; /* type, in lower case, of a table; "" without one */
	const char *schedule;  /* type, of the table; "" without one */
	struct zinf_deepspeed_config config;
	struct zinf_deepspeed_note *notes; /* (note_count,) keys and values owned */
	uint32_t note_count;
	struct zi_text text; /* why not */
};

/* ---- keys.c ---- */

uint32_t deepspeed_key_count(void);
/* @index: below that. A row of an object stands before those of its keys. */
const struct deepspeed_key *deepspeed_key(uint32_t index);
/* Whether blank-separated @words have @word, whatever the case. */
bool deepspeed_has_word(const char *words, const char *word);
/* Whether the row holds for the file's optimizer or scheduler. */
bool deepspeed_holds(const struct zinf_deepspeed *reader, const struct deepspeed_key *key);
/* The row of @path that holds; there is one. */
uint32_t deepspeed_find(const struct zinf_deepspeed *reader, const char *path);

/* ---- hjson.c ---- */

/* A copy of @text, (@bytes,), in which comments and commas before a closing bracket are blanks.
 * Return: the caller's, free() it; NULL: no memory. */
char *deepspeed_plain_json(const char *text, size_t bytes);

/* ---- walk.c ---- */

/* Every key of the file: known, of its type, in its range; notes and refusals as the table says.
 * Fills `values`. Return: 0; -EINVAL, -EOPNOTSUPP, -ENOMEM. */
int deepspeed_walk(struct zinf_deepspeed *reader);

/* ---- value.c: what the file says, else the default. "auto" is the caller's business. ---- */

struct deepspeed_shown deepspeed_show(const json_t *value);
bool deepspeed_is_given(const struct zinf_deepspeed *reader, const char *path);
bool deepspeed_is_auto(const struct zinf_deepspeed *reader, const char *path);
bool deepspeed_bool(const struct zinf_deepspeed *reader, const char *path);
double deepspeed_number(const struct zinf_deepspeed *reader, const char *path);
int64_t deepspeed_count(const struct zinf_deepspeed *reader, const char *path);
/* NULL: neither given nor a default. */
const char *deepspeed_text(const struct zinf_deepspeed *reader, const char *path);
/* As above; for "auto" the @fact. -EINVAL when that is not known (NaN, 0): @name says what the
 * trainer has to tell. */
int deepspeed_number_or(struct zinf_deepspeed *reader, const char *path, double fact,
                        const char *name, double *ret_number);
int deepspeed_count_or(struct zinf_deepspeed *reader, const char *path, uint64_t fact,
                       const char *name, uint64_t *ret_count);

/* ---- notes.c ---- */

/* @value: as JSON; copied. @reason: a constant. Return: 0, -ENOMEM. */
int deepspeed_note(struct zinf_deepspeed *reader, const char *key, const char *value,
                   const char *reason);
/* @path: of the table; its value is the file's, or the default. */
int deepspeed_note_value(struct zinf_deepspeed *reader, const char *path, const char *reason);

/* ---- sections: values into fields of `config`. 0; -EINVAL, -EOPNOTSUPP with `text`. ---- */

int deepspeed_batch(struct zinf_deepspeed *reader);
int deepspeed_precision(struct zinf_deepspeed *reader);
int deepspeed_zero(struct zinf_deepspeed *reader);
int deepspeed_optimizer(struct zinf_deepspeed *reader);
int deepspeed_schedule(struct zinf_deepspeed *reader);
int deepspeed_rest(struct zinf_deepspeed *reader);

/* Before the walk: which rows hold is a matter of the two types. */
int deepspeed_find_optimizer(struct zinf_deepspeed *reader);
int deepspeed_find_schedule(struct zinf_deepspeed *reader);
