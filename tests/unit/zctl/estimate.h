/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of zctl estimate share: a source, and what was read of it. Each program has its
 * own. */
#pragma once

#include <criterion/criterion.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "zctl/estimate/model.h"

static struct estimate_model model;
static struct zi_text text;

static inline void stop(void)
{
	estimate_model_free(&model);
}

/* What @json of a file says. */
static inline int read_text(const char *json)
{
	text = (struct zi_text){ "" };
	estimate_model_free(&model);
	return estimate_read_bytes(&model, json, strlen(json), NULL, &text);
}

/* A safetensors file down to the end of its header, of which @cut_bytes are missing. */
static inline int read_cut_header(const char *header, size_t cut_bytes)
{
	uint8_t bytes[4096] = { 0 };
	size_t header_bytes = strlen(header);

	cr_assert_leq(header_bytes + 8, sizeof(bytes));
	bytes[0] = (uint8_t)header_bytes;
	bytes[1] = (uint8_t)(header_bytes >> 8);
	memcpy(bytes + 8, header, header_bytes);
	text = (struct zi_text){ "" };
	estimate_model_free(&model);
	return estimate_read_bytes(&model, bytes, 8 + header_bytes - cut_bytes, NULL, &text);
}

static inline int read_header(const char *header)
{
	return read_cut_header(header, 0);
}

static inline int read_word(const char *word, uint32_t unit_count)
{
	text = (struct zi_text){ "" };
	estimate_model_free(&model);
	return estimate_read(&model, word, unit_count, &text);
}

#define expect_words(part) \
	cr_expect(strstr(text.chars, (part)), "'%s' is not in: %s", part, text.chars)

/* One of a safetensors header. */
#define TENSOR(name, dtype, shape, begin, end)                                                \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin \
	"," #end "]}"
