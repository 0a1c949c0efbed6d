/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of DeepSpeed's JSON share: one reader at a time, and what it said. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "libclient/deepspeed/private.h"

/* What a file must have at least. */
#define MICRO "'train_micro_batch_size_per_gpu': 1"

static struct zinf_deepspeed *reader;
static struct zinf_deepspeed_config config;
static char why[ZI_TEXT_BYTES];

/* A trainer that knows everything, of two ranks. */
static inline struct zinf_deepspeed_facts all_facts(void)
{
	struct zinf_deepspeed_facts facts = ZINF_DEEPSPEED_FACTS_INIT;

	facts.world_size = 2;
	facts.micro_batch = 3;
	facts.accumulation_count = 4;
	facts.warmup_count = 50;
	facts.total_count = 500;
	facts.lr = 2e-4;
	facts.beta1 = 0.8;
	facts.beta2 = 0.95;
	facts.eps = 1e-7;
	facts.weight_decay = 0.1;
	facts.max_norm = 0.5;
	facts.dtype = ZINF_BF16;
	facts.hidden_elements = 1000;
	return facts;
}

/* What a file means, whether zinfd can do it or not; @json: with ' for ". */
static inline int parse_with(const char *json, const struct zinf_deepspeed_facts *facts)
{
	char *text = strdup(json);
	int r;

	zinf_deepspeed_free(reader);
	reader = NULL;
	why[0] = '\0';
	for (char *at = text; (at = strchr(at, '\'')); at++)
		*at = '"';
	r = zinf_deepspeed_read(text, strlen(text), facts, why, sizeof(why), &reader);
	free(text);
	cr_assert_eq(r != 0, reader == NULL);
	cr_assert_eq(r != 0, why[0] != '\0', "%s: %d %s", json, r, why);
	config = (struct zinf_deepspeed_config){ .bytes = sizeof(config) };
	if (!r)
		zinf_deepspeed_get(reader, &config);
	return r;
}

static inline int parse(const char *json)
{
	struct zinf_deepspeed_facts facts = all_facts();

	return parse_with(json, &facts);
}

/* The reason of the note on @key; NULL: there is none. */
static inline const char *note_on(const char *key)
{
	struct zinf_deepspeed_note note;

	for (uint32_t i = 0; zinf_deepspeed_get_note(reader, i, &note); i++)
		if (!strcmp(note.key, key))
			return note.reason;
	return NULL;
}

static inline void accepted(const char *json)
{
	int r = parse(json);

	cr_assert_eq(r, 0, "%s: %d %s", json, r, why);
}

static inline void refused(const char *json, int error, const char *words)
{
	int r = parse(json);

	cr_assert_eq(r, error, "%s: %d %s", json, r, why);
	cr_assert(strstr(why, words), "'%s' is not in '%s'", words, why);
}

/* @keys: in the order of the file. */
static inline void noted(const char *const *keys)
{
	struct zinf_deepspeed_note note;
	uint32_t i = 0;

	for (; keys[i]; i++) {
		cr_assert(zinf_deepspeed_get_note(reader, i, &note), "no note on %s", keys[i]);
		cr_expect_str_eq(note.key, keys[i]);
	}
	cr_expect_not(zinf_deepspeed_get_note(reader, i, &note), "a note on %s", note.key);
	zinf_deepspeed_free(reader);
	reader = NULL;
}
#define NOTED(...) noted((const char *const[]){ __VA_ARGS__, NULL })
