/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl estimate takes counts as people write them, cuts the tensors of a file into units as
 * people do, and refuses what makes no sense by name. Method: headers by hand, each broken in one
 * place.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/zctl/estimate.h"

TestSuite(estimate, .fini = stop, .timeout = 20);

/* ---- counts ---- */

Test(estimate, a_count_is_in_powers_of_1000)
{
	static const struct {
		const char *word;
		uint64_t count, units;
	} counts[] = {
		{ "1", 1, 1 },
		{ "1000", 1000, 1 },
		{ "67108864", 1 << 26, 1 },
		{ "67108865", (1 << 26) + 1, 2 },
		{ "125M", 125000000, 2 },
		{ "1.3G", 1300000000, 20 },
		{ "1.3b", 1300000000, 20 },
		{ "0.5k", 500, 1 },
		{ "1.123456789T", 1123456789000, 16741 },
		{ "281474976710656", 1ull << 48, 65536 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(counts); i++) {
		cr_expect(estimate_is_count(counts[i].word), "%s", counts[i].word);
		cr_assert_eq(read_word(counts[i].word, 0), 0, "%s", text.chars);
		cr_expect_eq(model.element_count, counts[i].count, "%s", counts[i].word);
		cr_expect_eq(model.unit_count, counts[i].units, "%s: %u", counts[i].word,
		             model.unit_count);
	}
}

Test(estimate, units_of_a_count_are_equal_but_for_one_element)
{
	uint64_t padded = 0;

	cr_assert_eq(read_word("100003", 4), 0, "%s", text.chars);
	cr_assert_eq(model.unit_count, 4);
	for (uint32_t i = 0; i < 4; i++) {
		cr_expect_eq(model.units[i].element_count, i < 3 ? 25001 : 25000);
		cr_expect_eq(model.unit_padded[i], 7 * 4096);
		padded += model.unit_padded[i];
	}
	cr_expect_eq(model.padded_count, padded);
}

Test(estimate, what_is_no_count_is_a_path)
{
	static const char *const words[] = {
		"1.3", "1.", ".5G", "G", "1GB", "1e9", "-1", "1 G", ""
	};

	for (size_t i = 0; i < ZI_COUNT_OF(words); i++)
		cr_expect(!estimate_is_count(words[i]), "%s", words[i]);
	cr_expect_eq(read_word("1GB", 0), -ENOENT);
	expect_words("1GB: cannot be opened: No such file");
}

Test(estimate, counts_that_cannot_be_are_refused_with_what_can)
{
	static const char *const words[] = { "0",
		                             "0.0K",
		                             "281474976710657",
		                             "300T",
		                             "18446744.1T",
		                             "99999999999999999999999",
		                             "18446744073709551616T" };

	for (size_t i = 0; i < ZI_COUNT_OF(words); i++) {
		cr_expect_eq(read_word(words[i], 0), -EINVAL, "%s", words[i]);
		expect_words("1 to 2^48 are possible");
	}
	cr_expect_eq(read_word("3", 4), -EINVAL);
	expect_words("4 units of 3 elements: 1 to 3 are possible");
	cr_expect_eq(read_word("1G", 65537), -EINVAL);
	expect_words("1 to 65536 are possible");
	cr_expect_eq(read_word("no_count", 4), -EINVAL);
	expect_words("--units 4 is for a count");
}

/* ---- headers ---- */

Test(estimate, tensors_of_a_block_are_a_unit)
{
	static const char *const tensors[] = {
		TENSOR("model.embed.weight", "BF16", "[10,4]", 0, 80),
		TENSOR("model.layers.0.up.weight", "BF16", "[4,8]", 80, 144),
		TENSOR("model.layers.0.up.bias", "F32", "[8]", 144, 176),
		TENSOR("model.layers.1.mlp.experts.3.w", "BF16", "[32]", 176, 240),
		TENSOR("scale", "BF16", "[]", 240, 242) "}",
	};
	char header[1024] = "{\"__metadata__\":{\"format\":\"pt\"}";

	for (size_t i = 0; i < ZI_COUNT_OF(tensors); i++)
		(void)snprintf(header + strlen(header), sizeof(header) - strlen(header), ",%s",
		               tensors[i]);
	cr_assert_eq(read_header(header), 0, "%s", text.chars);
	cr_assert_eq(model.unit_count, 4);
	cr_expect_str_eq(model.units[0].name, "model.embed");
	cr_expect_eq(model.units[0].element_count, 40);
	cr_expect_str_eq(model.units[1].name, "model.layers.0");
	cr_expect_eq(model.units[1].element_count, 40);
	cr_expect_str_eq(model.units[2].name, "model.layers.1");
	cr_expect_str_eq(model.units[3].name, "scale");
	cr_expect_eq(model.units[3].element_count, 1);
	cr_expect_eq(model.param_count, 5);
	cr_expect_eq(model.dtype, ZI_DTYPE_BF16, "most of it");
}

Test(estimate, what_is_no_parameter_is_left_out_and_told)
{
	cr_assert_eq(read_header("{" TENSOR("h.0.w", "F32", "[100]", 0, 400) "," TENSOR(
			     "h.0.attn.bias", "F32", "[1,1,4,4]", 400,
			     464) "," TENSOR("h.0.ids", "I64", "[8]", 464, 528) "}"),
	             0, "%s", text.chars);
	cr_expect_eq(model.element_count, 100);
	cr_expect_eq(model.param_count, 1);
	cr_expect(strstr(model.note.chars, "2 tensors (24 elements) are no parameters"), "%s",
	          model.note.chars);
	cr_expect_eq(read_header("{" TENSOR("h.0.w", "F16", "[8]", 0, 16) "," TENSOR(
			     "h.0.qweight", "I32", "[9]", 16, 52) "}"),
	             -EINVAL);
	expect_words("9 of its 17 elements are integers: it is quantized");
	cr_expect_eq(read_header("{" TENSOR("ids", "I64", "[0]", 0, 0) "}"), -EINVAL);
	cr_expect_eq(read_header("{}"), -EINVAL);
	expect_words("it has no parameters");
}

Test(estimate, what_zinf_wrote_down_is_its_model)
{
	cr_assert_eq(
		read_header("{\"__metadata__\":{\"zinf_job\":\"tale\",\"zinf_model\":\""
	                    "{\\\"param_dtype\\\":\\\"bf16\\\",\\\"grad_dtype\\\":\\\"f32\\\","
	                    "\\\"optimizer\\\":\\\"lion\\\","
	                    "\\\"grad_reduction\\\":\\\"per_micro_batch\\\","
	                    "\\\"units\\\":[\\\"u\\\"],\\\"params\\\":[{\\\"name\\\":\\\"a.0\\\","
	                    "\\\"unit\\\":0,\\\"shape\\\":[3]},{\\\"name\\\":\\\"a.1\\\","
	                    "\\\"unit\\\":0,\\\"shape\\\":[4]}]}\"}}"),
		0, "%s", text.chars);
	cr_expect_str_eq(model.kind.chars, "export of job tale");
	cr_assert_eq(model.unit_count, 1);
	cr_expect_eq(model.units[0].element_count, 7);
	cr_expect_eq(model.grad_dtype, ZI_DTYPE_F32);
	cr_expect_eq(model.optimizer, ZI_OPTIMIZER_LION);
	cr_expect_eq(model.schedule, ZI_SCHEDULE_SHARDED);
	cr_expect_eq(read_header("{\"__metadata__\":{\"zinf_model\":\"{\"}}"), -EINVAL);
	expect_words("zinf_model");
	cr_expect_eq(read_text("{\"format\":\"zinf-checkpoint\",\"units\":[]}"), -EINVAL);
	expect_words("it is invalid: param_dtype, grad_dtype, optimizer or grad_reduction");
	cr_expect_eq(
		read_text("{\"format\":\"zinf-checkpoint\",\"param_dtype\":\"f32\","
	                  "\"grad_dtype\":\"f32\",\"optimizer\":\"adam\","
	                  "\"grad_reduction\":\"per_step\",\"units\":[\"u\",\"u\"],\"params\":["
	                  "{\"name\":\"a\",\"unit\":0,\"shape\":[3]},"
	                  "{\"name\":\"b\",\"unit\":1,\"shape\":[3]}]}"),
		-EINVAL);
	expect_words("two of its units have one name");
}

/* A node's part says what all of the model is. */
Test(estimate, a_part_of_an_export_is_of_the_whole_model)
{
	cr_assert_eq(
		read_text(
			"{\"format\":\"zinf-checkpoint-part\",\"job\":\"tale\",\"node\":1,"
			"\"param_dtype\":\"f32\",\"grad_dtype\":\"f32\","
			"\"optimizer\":\"adam\",\"grad_reduction\":\"per_step\",\"units\":[\"u\"],"
			"\"params\":[{\"name\":\"a\",\"unit\":0,\"shape\":[3]}],"
			"\"subgroups\":[]}"),
		0, "%s", text.chars);
	cr_assert_eq(model.unit_count, 1);
	cr_expect_eq(model.units[0].element_count, 3);
}

Test(estimate, headers_that_make_no_sense_are_refused_by_tensor)
{
	static const struct {
		const char *header, *words;
	} wrong[] = {
		{ "{" TENSOR("a.b", "F7", "[2]", 0, 8) "}",
		  "tensor 'a.b' has dtype 'F7', which is not known" },
		{ "{\"a.b\":3}", "tensor 'a.b' has dtype ''" },
		{ "{" TENSOR("a.b", "F32", "2", 0, 8) "}", "has no shape" },
		{ "{" TENSOR("a.b", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) "}", "up to 8 dimensions" },
		{ "{" TENSOR("a.b", "F32", "[-2]", 0, 8) "}", "has an invalid shape" },
		{ "{" TENSOR("a.b", "F32", "[2.0]", 0, 8) "}", "has an invalid shape" },
		{ "{" TENSOR("a.b", "F32", "[2,0]", 0, 0) "}", "has a dimension of 0" },
		{ "{" TENSOR("a.b", "F32", "[65536,65536,65537]", 0, 8) "}",
		  "has more than 2^48 elements" },
		{ "{" TENSOR("a.b", "F32", "[2]", 0, 7) "}", "data_offsets" },
		{ "{" TENSOR("a.b", "F32", "[2]", 8, 0) "}", "data_offsets" },
		{ "{" TENSOR("a.b", "F32", "[2]", -8, 0) "}", "data_offsets" },
		{ "{\"a.b\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets" },
		{ "{" TENSOR("a", "F32", "[2]", 0, 8) "," TENSOR("a", "F32", "[2]", 8, 16) "}",
		  "is no safetensors header: line 1" },
		{ "[1,2,3]", "is no safetensors header: an object" },
		{ "{" TENSOR("a", "U8", "[281474976710656]", 0,
		             281474976710656) "," TENSOR("b", "U8", "[1]", 0, 1) "}",
		  "more than 2^48 elements beside" },
		{ "{" TENSOR("a", "F8_E4M3", "[281474976710656]", 0,
		             281474976710656) "," TENSOR("b", "F8_E4M3", "[1]", 0, 1) "}",
		  "it has more than 2^48 elements" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(wrong); i++) {
		cr_expect_eq(read_header(wrong[i].header), -EINVAL, "%s", wrong[i].header);
		expect_words(wrong[i].words);
	}
}

Test(estimate, a_cut_header_is_refused_wherever_it_is_cut)
{
	static const char header[] = "{" TENSOR("a.b", "F32", "[2]", 0, 8) "}";

	for (size_t cut = 1; cut <= sizeof(header) - 1; cut++) {
		cr_expect_eq(read_cut_header(header, cut), -EINVAL, "%zu", cut);
		expect_words("is cut short");
	}
	cr_expect_eq(read_cut_header(header, sizeof(header)), -EINVAL);
	expect_words("has 7 bytes: it is cut short");
}

Test(estimate, json_of_something_else_is_refused)
{
	cr_expect_eq(read_text("{\"train_batch_size\": 8}"), -EINVAL);
	expect_words("is neither a config.json of Hugging Face");
	cr_expect_eq(read_text("{\"a\": 1, \"a\": 2}"), -EINVAL);
	expect_words("line 1, column");
	cr_expect_eq(read_text("not JSON at all"), -EINVAL);
	cr_expect_eq(read_text("{\"weight_map\":{\"a\":\"x.safetensors\"}}"), -EINVAL);
	expect_words("it is an index, without its files");
}
