/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl estimate counts the parameters of a configuration of Hugging Face as transformers
 * makes them. Method: models whose numbers of parameters are published; configurations by hand,
 * each broken in one place.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/zctl/estimate.h"

TestSuite(estimate_config, .fini = stop, .timeout = 20);

#define LLAMA(type, hidden, inner, blocks, heads, keys, words, more)                             \
	"{\"model_type\":\"" type "\",\"hidden_size\":" #hidden ",\"intermediate_size\":" #inner \
	",\"num_hidden_layers\":" #blocks ",\"num_attention_heads\":" #heads                     \
	",\"num_key_value_heads\":" #keys ",\"vocab_size\":" #words more "}"

/* Parameters as published with the weights. */
static const struct {
	const char *name, *json;
	uint64_t count;
} published[] = {
	{ "gpt2",
	  "{\"model_type\":\"gpt2\",\"n_embd\":768,\"n_layer\":12,\"n_head\":12,"
	  "\"n_positions\":1024,\"vocab_size\":50257}",
	  124439808 },
	{ "gpt2-xl",
	  "{\"model_type\":\"gpt2\",\"n_embd\":1600,\"n_layer\":48,\"n_head\":25,"
	  "\"n_positions\":1024,\"vocab_size\":50257,\"n_inner\":null}",
	  1557611200 },
	{ "Llama-2-7b", LLAMA("llama", 4096, 11008, 32, 32, 32, 32000, ""), 6738415616 },
	{ "Llama-3.1-8B", LLAMA("llama", 4096, 14336, 32, 32, 8, 128256, ""), 8030261248 },
	{ "Llama-3.2-1B",
	  LLAMA("llama", 2048, 8192, 16, 32, 8, 128256,
	        ",\"head_dim\":64,\"tie_word_embeddings\":true"),
	  1235814400 },
	{ "TinyLlama-1.1B", LLAMA("llama", 2048, 5632, 22, 32, 4, 32000, ""), 1100048384 },
	{ "Mistral-7B", LLAMA("mistral", 4096, 14336, 32, 32, 8, 32000, ""), 7241732096 },
	{ "Mixtral-8x7B",
	  LLAMA("mixtral", 4096, 14336, 32, 32, 8, 32000, ",\"num_local_experts\":8"),
	  46702792704 },
	{ "Qwen2.5-0.5B",
	  LLAMA("qwen2", 896, 4864, 24, 14, 2, 151936, ",\"tie_word_embeddings\":true"),
	  494032768 },
	{ "Qwen3-0.6B",
	  LLAMA("qwen3", 1024, 3072, 28, 16, 8, 151936, ",\"tie_word_embeddings\":true"),
	  596049920 },
	{ "gemma-2b", LLAMA("gemma", 2048, 16384, 18, 8, 1, 256000, ""), 2506172416 },
	{ "Phi-3-mini", LLAMA("phi3", 3072, 8192, 32, 32, 32, 32064, ""), 3821079552 },
	{ "pythia-70m",
	  "{\"model_type\":\"gpt_neox\",\"hidden_size\":512,\"intermediate_size\":2048,"
	  "\"num_hidden_layers\":6,\"num_attention_heads\":8,\"vocab_size\":50304}",
	  70426624 },
	{ "opt-125m",
	  "{\"model_type\":\"opt\",\"hidden_size\":768,\"ffn_dim\":3072,\"num_hidden_layers\":12,"
	  "\"num_attention_heads\":12,\"max_position_embeddings\":2048,\"vocab_size\":50272}",
	  125239296 },
	{ "bert-base-uncased",
	  "{\"model_type\":\"bert\",\"hidden_size\":768,\"intermediate_size\":3072,"
	  "\"num_hidden_layers\":12,\"num_attention_heads\":12,\"max_position_embeddings\":512,"
	  "\"type_vocab_size\":2,\"vocab_size\":30522}",
	  109482240 },
};

Test(estimate_config, published_models_have_as_many_parameters_as_they_have)
{
	for (size_t i = 0; i < ZI_COUNT_OF(published); i++) {
		cr_assert_eq(read_text(published[i].json), 0, "%s: %s", published[i].name,
		             text.chars);
		cr_expect_eq(model.element_count, published[i].count, "%s: %llu", published[i].name,
		             (unsigned long long)model.element_count);
	}
}

Test(estimate_config, a_configuration_has_units_for_blocks_and_what_is_around_them)
{
	cr_assert_eq(read_text(LLAMA("llama", 64, 128, 3, 4, 2, 1000,
	                             ",\"torch_dtype\":\"bfloat16\",\"attention_bias\":true,"
	                             "\"mlp_bias\":true")),
	             0, "%s", text.chars);
	cr_assert_eq(model.unit_count, 5);
	cr_expect_str_eq(model.units[0].name, "embeddings");
	cr_expect_eq(model.units[0].element_count, 64000);
	cr_expect_str_eq(model.units[3].name, "block.2");
	/* Query and output, key and value, three matrices, their biases, two norms. */
	cr_expect_eq(model.units[3].element_count, 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 +
	                                                   (64 + 2 * 32 + 64) + (2 * 128 + 64) +
	                                                   2 * 64);
	cr_expect_str_eq(model.units[4].name, "head");
	cr_expect_eq(model.units[4].element_count, 64000 + 64);
	cr_expect_eq(model.dtype, ZI_DTYPE_BF16);
	cr_assert_eq(read_text("{\"hidden_size\":64,\"intermediate_size\":128,"
	                       "\"num_hidden_layers\":1,\"num_attention_heads\":4,"
	                       "\"vocab_size\":1000,\"dtype\":\"float16\"}"),
	             0, "%s", text.chars);
	cr_expect(strstr(model.note.chars, "counted as llama"), "%s", model.note.chars);
	cr_expect_eq(model.dtype, ZI_DTYPE_F16);
}

Test(estimate_config, configurations_that_make_no_sense_are_refused_by_key)
{
	static const struct {
		const char *json, *words;
	} wrong[] = {
		{ "{\"model_type\":\"lama\",\"hidden_size\":64}",
		  "model_type 'lama' is not known (the nearest is llama" },
		{ "{\"model_type\":7}", "model_type is missing" },
		{ "{\"hidden_size\":64}", "model_type is missing" },
		{ LLAMA("llama", 0, 128, 3, 4, 2, 1000, ""), "hidden_size is no whole number" },
		{ LLAMA("llama", -1, 128, 3, 4, 2, 1000, ""), "hidden_size is no whole number" },
		{ LLAMA("llama", 1e3, 128, 3, 4, 2, 1000, ""), "hidden_size is no whole number" },
		{ LLAMA("llama", 524289, 128, 3, 4, 2, 1000, ""), "from 1 to 2^19" },
		{ LLAMA("llama", null, 128, 3, 4, 2, 1000, ""), "hidden_size is missing" },
		{ LLAMA("llama", 64, 128, 65537, 4, 2, 1000, ""),
		  "num_hidden_layers is more than 65536" },
		{ LLAMA("llama", 64, 128, 3, 65, 2, 1000, ""),
		  "num_attention_heads is more than the channels" },
		{ LLAMA("llama", 64, 128, 3, 4, 0, 1000, ""), "num_key_value_heads is no whole" },
		{ LLAMA("mixtral", 64, 128, 3, 4, 2, 1000, ""), "num_local_experts is missing" },
		{ LLAMA("llama", 64, 128, 3, 4, 2, 1000, ",\"mlp_bias\":1"),
		  "mlp_bias is neither true nor false" },
		{ LLAMA("llama", 524288, 524288, 65536, 4, 4, 1000, ""),
		  "more than 2^48 elements" },
		{ "{\"model_type\":\"gpt2\",\"n_embd\":768,\"n_layer\":12,\"n_head\":12,"
		  "\"vocab_size\":50257}",
		  "n_positions is missing" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(wrong); i++) {
		cr_expect_eq(read_text(wrong[i].json), -EINVAL, "%s", wrong[i].json);
		expect_words(wrong[i].words);
	}
}
