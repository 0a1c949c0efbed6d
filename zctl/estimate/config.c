/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model by its config.json of Hugging Face (model.h): families whose parameters follow from a few
 * numbers, as transformers makes them (src/transformers/models/FAMILY/modeling_FAMILY.py). A family
 * that is not in the table is refused: a guess may be wrong by a multiple.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/nearest.h"
#include "zctl/estimate/model.h"
#include "zctl/get.h"

/* Of any number in a config: products of three of them and a few dozen fit 64 bits. */
#define NUMBER_MAX (1ull << 19)
#define BLOCKS_MAX 65536u

struct family {
	const char *name; /* model_type */
	/* Keys; NULL: there is none of that. */
	const char *hidden, *blocks, *heads, *inner, *positions;
	uint32_t position_more; /* rows beyond @positions */
	uint32_t token_types;   /* rows of their embedding, where type_vocab_size does not say */
	uint32_t head_elements; /* of a head; 0: hidden / heads; head_dim goes before it */
	uint32_t norm_width;    /* 1: scale; 2: and shift */
	uint32_t norm_count;    /* of a block */
	uint32_t embed_norms;   /* behind the embeddings */
	bool is_gated;          /* three matrices in the MLP, not two */
	bool has_biases;        /* all matrices but the head */
	bool has_input_biases;  /* of query, key and value alone */
	bool has_head_norms;    /* of query and key */
	bool is_tied;           /* unless tie_word_embeddings says */
	bool is_headless;       /* a pooler in place of a head and the last norm */
};

/* What most have had since LLaMA. */
#define LLAMA(type)                                                                    \
	.name = (type), .hidden = "hidden_size", .blocks = "num_hidden_layers",        \
	.heads = "num_attention_heads", .inner = "intermediate_size", .norm_width = 1, \
	.norm_count = 2, .is_gated = true

static const struct family families[] = {
	{ LLAMA("llama") },
	{ LLAMA("mistral") },
	{ LLAMA("mixtral") },
	{ LLAMA("phi3") },
	{ LLAMA("qwen2"), .has_input_biases = true },
	{ LLAMA("qwen3"), .has_head_norms = true, .head_elements = 128 },
	{ LLAMA("gemma"), .head_elements = 256, .is_tied = true },
	{ .name = "gpt2",
	  .hidden = "n_embd",
	  .blocks = "n_layer",
	  .heads = "n_head",
	  .inner = "n_inner",
	  .positions = "n_positions",
	  .norm_width = 2,
	  .norm_count = 2,
	  .has_biases = true,
	  .is_tied = true },
	{ .name = "gpt_neox",
	  .hidden = "hidden_size",
	  .blocks = "num_hidden_layers",
	  .heads = "num_attention_heads",
	  .inner = "intermediate_size",
	  .norm_width = 2,
	  .norm_count = 2,
	  .has_biases = true },
	{ .name = "opt",
	  .hidden = "hidden_size",
	  .blocks = "num_hidden_layers",
	  .heads = "num_attention_heads",
	  .inner = "ffn_dim",
	  .positions = "max_position_embeddings",
	  .position_more = 2,
	  .norm_width = 2,
	  .norm_count = 2,
	  .has_biases = true,
	  .is_tied = true },
	{ .name = "bert",
	  .hidden = "hidden_size",
	  .blocks = "num_hidden_layers",
	  .heads = "num_attention_heads",
	  .inner = "intermediate_size",
	  .positions = "max_position_embeddings",
	  .token_types = 2,
	  .norm_width = 2,
	  .norm_count = 2,
	  .embed_norms = 1,
	  .has_biases = true,
	  .is_headless = true },
};

/* The numbers of one config. */
struct numbers {
	uint64_t hidden, blocks, heads, key_heads, head, inner, vocabulary, positions, types,
		experts;
	bool is_tied, has_attention_biases, has_inner_biases;
};

static int refuse(const char *key, const char *what, struct zi_text *text)
{
	return zi_text_error(text, err_origin(-EINVAL), "%s %s", key, what);
}

/* @otherwise: where it is not there, or null; 0: it must be. */
static int take(const json_t *config, const char *key, uint64_t otherwise, uint64_t *ret_number,
                struct zi_text *text)
{
	const json_t *value = json_object_get(config, key);

	if ((!value || json_is_null(value)) && otherwise) {
		*ret_number = otherwise;
		return 0;
	}
	if (!value || json_is_null(value))
		return refuse(key, "is missing", text);
	if (!json_is_integer(value) || json_integer_value(value) < 1 ||
	    (uint64_t)json_integer_value(value) > NUMBER_MAX)
		return refuse(key, "is no whole number from 1 to 2^19", text);
	*ret_number = (uint64_t)json_integer_value(value);
	return 0;
}

static int take_flag(const json_t *config, const char *key, bool otherwise, bool *ret_flag,
                     struct zi_text *text)
{
	const json_t *value = json_object_get(config, key);

	if (value && !json_is_null(value) && !json_is_boolean(value))
		return refuse(key, "is neither true nor false", text);
	*ret_flag = json_is_boolean(value) ? json_is_true(value) : otherwise;
	return 0;
}

static int take_sizes(const json_t *config, const struct family *family, struct numbers *numbers,
                      struct zi_text *text)
{
	int r = take(config, family->hidden, 0, &numbers->hidden, text);

	if (!r)
		r = take(config, family->blocks, 0, &numbers->blocks, text);
	if (!r && numbers->blocks > BLOCKS_MAX)
		r = refuse(family->blocks, "is more than 65536", text);
	if (!r)
		r = take(config, family->heads, 0, &numbers->heads, text);
	if (!r) /* GPT-2's alone may be left out: four times as wide. */
		r = take(config, family->inner,
		         strcmp(family->inner, "n_inner") ? 0 : 4 * numbers->hidden,
		         &numbers->inner, text);
	if (!r)
		r = take(config, "vocab_size", 0, &numbers->vocabulary, text);
	if (!r && family->positions)
		r = take(config, family->positions, 0, &numbers->positions, text);
	if (!r && family->token_types)
		r = take(config, "type_vocab_size", family->token_types, &numbers->types, text);
	return err_trace(r);
}

static int take_rest(const json_t *config, const struct family *family, struct numbers *numbers,
                     struct zi_text *text)
{
	bool is_llama = family->is_gated;
	uint64_t head =
		family->head_elements ? family->head_elements : numbers->hidden / numbers->heads;
	int r = 0;

	if (!head)
		return refuse(family->heads, "is more than the channels there are", text);
	numbers->head = head;
	numbers->key_heads = numbers->heads;
	if (is_llama)
		r = take(config, "head_dim", head, &numbers->head, text);
	if (!r && is_llama)
		r = take(config, "num_key_value_heads", numbers->heads, &numbers->key_heads, text);
	if (!r && !strcmp(family->name, "mixtral"))
		r = take(config, "num_local_experts", 0, &numbers->experts, text);
	if (!r && is_llama)
		r = take_flag(config, "attention_bias", false, &numbers->has_attention_biases,
		              text);
	if (!r && is_llama)
		r = take_flag(config, "mlp_bias", false, &numbers->has_inner_biases, text);
	if (!r)
		r = take_flag(config, "tie_word_embeddings", family->is_tied, &numbers->is_tied,
		              text);
	return err_trace(r);
}

/* ---- counting: at most 2^19 x 2^19 x 2^19 in each term ---- */

static uint64_t count_attention(const struct family *family, const struct numbers *numbers)
{
	uint64_t query = numbers->heads * numbers->head, key = numbers->key_heads * numbers->head;
	bool has_inputs =
		family->has_biases || family->has_input_biases || numbers->has_attention_biases;
	bool has_output = family->has_biases || numbers->has_attention_biases;

	return 2 * numbers->hidden * (query + key) + (has_inputs ? query + 2 * key : 0) +
	       (has_output ? numbers->hidden : 0) +
	       (family->has_head_norms ? 2 * numbers->head : 0);
}

static uint64_t count_inner(const struct family *family, const struct numbers *numbers)
{
	uint64_t into = family->is_gated ? 2 : 1;
	uint64_t count = (into + 1) * numbers->hidden * numbers->inner;

	if (family->has_biases || numbers->has_inner_biases)
		count += into * numbers->inner + numbers->hidden;
	if (!numbers->experts)
		return count;
	return numbers->experts * count + numbers->hidden * numbers->experts; /* and the router */
}

static uint64_t count_embeddings(const struct family *family, const struct numbers *numbers)
{
	uint64_t rows = numbers->vocabulary + numbers->types;

	if (family->positions)
		rows += numbers->positions + family->position_more;
	return numbers->hidden * (rows + family->embed_norms * family->norm_width);
}

static uint64_t count_head(const struct family *family, const struct numbers *numbers)
{
	if (family->is_headless)
		return numbers->hidden * numbers->hidden + numbers->hidden;
	return numbers->hidden *
	       (family->norm_width + (numbers->is_tied ? 0 : numbers->vocabulary));
}

static int add_all(struct estimate_model *model, const struct family *family,
                   const struct numbers *numbers, struct zi_text *text)
{
	uint64_t block = count_attention(family, numbers) + count_inner(family, numbers) +
	                 numbers->hidden * family->norm_count * family->norm_width;
	int r = estimate_model_add(model, "embeddings", count_embeddings(family, numbers), text);

	for (uint32_t i = 0; i < numbers->blocks && !r; i++) {
		char name[24];

		(void)snprintf(name, sizeof(name), "block.%u", i); /* Fits. */
		r = estimate_model_add(model, name, block, text);
	}
	if (!r)
		r = estimate_model_add(model, "head", count_head(family, numbers), text);
	return err_trace(r);
}

/* ---- which family ---- */

static int find_family(const json_t *config, const struct family **ret_family, struct zi_text *text)
{
	const json_t *type = json_object_get(config, "model_type");
	struct zi_nearest nearest = { .wanted = json_string_value(type) };
	const char *near;

	if (!type && json_object_get(config, "intermediate_size")) {
		*ret_family = &families[0];
		return 0;
	}
	if (!json_is_string(type))
		return refuse("model_type", "is missing, which says how its parameters are counted",
		              text);
	for (size_t i = 0; i < ZI_COUNT_OF(families); i++) {
		zi_nearest_offer(&nearest, families[i].name);
		if (strcmp(families[i].name, nearest.wanted))
			continue;
		*ret_family = &families[i];
		return 0;
	}
	near = zi_nearest_name(&nearest);
	(void)zi_text_error(text, 0, "model_type '%.40s' is not known (%s%s%sknown are",
	                    nearest.wanted, near ? "the nearest is " : "", near ? near : "",
	                    near ? "; " : "");
	for (size_t i = 0; text && i < ZI_COUNT_OF(families); i++)
		zi_text_append(text, " %s", families[i].name);
	if (text)
		zi_text_append(text, "): give its safetensors file or count");
	return err_origin(-EINVAL);
}

static enum zi_dtype dtype_of(const json_t *config)
{
	const char *word = get_word(config, "torch_dtype");

	if (!*word)
		word = get_word(config, "dtype"); /* Its name since transformers 4.56. */
	return !strcmp(word, "bfloat16")  ? ZI_DTYPE_BF16
	       : !strcmp(word, "float16") ? ZI_DTYPE_F16
	       : !strcmp(word, "float32") ? ZI_DTYPE_F32
	                                  : (enum zi_dtype)0;
}

/* See model.h. */
int estimate_read_config(struct estimate_model *model, const json_t *config, struct zi_text *text)
{
	const struct family *family = NULL;
	struct numbers numbers = { 0 };
	int r = find_family(config, &family, text);

	if (!r)
		r = take_sizes(config, family, &numbers, text);
	if (!r)
		r = take_rest(config, family, &numbers, text);
	if (!r)
		r = add_all(model, family, &numbers, text);
	if (r)
		return err_trace(r);
	model->dtype = dtype_of(config);
	zi_text_set(&model->kind, "configuration of a %s", family->name);
	if (!json_object_get(config, "model_type"))
		zi_text_set(&model->note,
		            "no model_type: counted as llama, with %s word embeddings",
		            numbers.is_tied ? "tied" : "untied");
	return 0;
}
