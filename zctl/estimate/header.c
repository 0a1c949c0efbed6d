/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model by the header of its safetensors file (https://huggingface.co/docs/safetensors): names,
 * dtypes, shapes. Which tensors make a unit is told by their names, up to the number of the block,
 * unless zctl export wrote it there (model.h).
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "zctl/estimate/model.h"
#include "zctl/get.h"

struct stored {
	const char *name;
	uint32_t bytes;
	bool is_float;
	enum zi_dtype dtype; /* 0: none of ours */
};

/* What the format knows, as far as an element is whole bytes. */
static const struct stored dtypes[] = {
	{ "F64", 8, true, 0 },
	{ "F32", 4, true, ZI_DTYPE_F32 },
	{ "F16", 2, true, ZI_DTYPE_F16 },
	{ "BF16", 2, true, ZI_DTYPE_BF16 },
	{ "F8_E4M3", 1, true, 0 },
	{ "F8_E5M2", 1, true, 0 },
	{ "I64", 8, false, 0 },
	{ "U64", 8, false, 0 },
	{ "I32", 4, false, 0 },
	{ "U32", 4, false, 0 },
	{ "I16", 2, false, 0 },
	{ "U16", 2, false, 0 },
	{ "I8", 1, false, 0 },
	{ "U8", 1, false, 0 },
	{ "BOOL", 1, false, 0 },
};

static const struct stored *find_dtype(const char *name)
{
	for (size_t i = 0; i < ZI_COUNT_OF(dtypes); i++)
		if (!strcmp(dtypes[i].name, name))
			return &dtypes[i];
	return NULL;
}

static bool ends_with(const char *name, const char *end)
{
	size_t name_bytes = strlen(name), end_bytes = strlen(end);

	return name_bytes >= end_bytes && !strcmp(name + name_bytes - end_bytes, end);
}

/* Floats that files of Hugging Face have beside parameters: GPT-2's and GPT-NeoX's masks, tables of
 * rotary positions. */
static bool is_known_buffer(const char *name, size_t dim_count)
{
	return (ends_with(name, "attn.bias") && dim_count == 4) ||
	       (ends_with(name, "attention.bias") && dim_count == 4) ||
	       ends_with(name, ".masked_bias") || ends_with(name, "rotary_emb.inv_freq");
}

/* "model.layers.12" of "model.layers.12.mlp.up.weight"; without a number the module's name. */
static char *unit_of(const char *name)
{
	const char *end = strrchr(name, '.');

	for (const char *word = name, *next; word; word = next ? next + 1 : NULL) {
		size_t digits = strspn(word, "0123456789");

		next = strchr(word, '.');
		if (!digits || (next ? word + digits != next : word[digits] != '\0'))
			continue;
		end = word + digits;
		break;
	}
	return end && end != name ? strndup(name, (size_t)(end - name)) : strdup(name);
}

static int refuse(const char *name, const char *what, struct zi_text *text)
{
	return zi_text_error(text, err_origin(-EINVAL), "tensor '%.96s' %s", name, what);
}

static int count_elements(const char *name, const json_t *shape, uint64_t *ret_count,
                          struct zi_text *text)
{
	uint64_t dims[ZI_PARAM_DIMS_MAX];
	size_t index;
	json_t *rows;
	int r;

	if (!json_is_array(shape) || json_array_size(shape) > ZI_PARAM_DIMS_MAX)
		return refuse(name, "has no shape of up to 8 dimensions", text);
	json_array_foreach(shape, index, rows)
	{
		if (!json_is_integer(rows) || json_integer_value(rows) < 0)
			return refuse(name, "has an invalid shape", text);
		dims[index] = (uint64_t)json_integer_value(rows);
	}
	r = zi_geometry_elements(dims, (uint32_t)json_array_size(shape), ret_count);
	if (r == -EINVAL)
		return refuse(name, "has a dimension of 0: it holds nothing", text);
	return r ? refuse(name, "has more than 2^48 elements", text) : 0;
}

/* A header whose places do not go with its shapes was made by nobody, or damaged. */
static int check_place(const char *name, const json_t *offsets, uint64_t bytes,
                       struct zi_text *text)
{
	const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);

	if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
	    json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
	    (uint64_t)json_integer_value(end) - (uint64_t)json_integer_value(begin) != bytes)
		return refuse(name, "has data_offsets that are not as long as its shape says",
		              text);
	return 0;
}

/* What is beside the parameters. */
static int add_buffer(struct estimate_sums *sums, uint64_t count, bool is_float,
                      struct zi_text *text)
{
	sums->buffer_count++;
	sums->buffer_elements += count;
	sums->whole_elements += is_float ? 0 : count;
	if (sums->buffer_elements > ESTIMATE_ELEMENTS_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "it has more than 2^48 elements beside its parameters");
	return 0;
}

static int read_tensor(struct estimate_model *model, const char *name, const json_t *tensor,
                       struct zi_text *text)
{
	const struct stored *dtype = find_dtype(get_word(tensor, "dtype"));
	const json_t *shape = json_object_get(tensor, "shape");
	_cleanup_(zi_freep) char *unit = unit_of(name);
	uint64_t count = 0;
	int r;

	if (!unit)
		return zi_text_error(text, err_origin(-ENOMEM), "there is no memory for its names");
	if (!dtype)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "tensor '%.96s' has dtype '%.16s', which is not known", name,
		                     get_word(tensor, "dtype"));
	r = count_elements(name, shape, &count, text);
	if (!r)
		r = check_place(name, json_object_get(tensor, "data_offsets"), count * dtype->bytes,
		                text);
	if (r)
		return err_trace(r);
	if (!dtype->is_float || is_known_buffer(name, json_array_size(shape)))
		return err_trace(add_buffer(&model->sums, count, dtype->is_float, text));
	model->param_count++;
	r = estimate_model_add(model, unit, count, text);
	if (!r) /* So none of these is more than all of them. */
		model->sums.by_dtype[dtype->dtype] += count;
	return err_trace(r);
}

/* Most elements decide: norms are often kept in another dtype. */
static enum zi_dtype main_dtype(const struct estimate_sums *sums)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < _ZI_DTYPE_FLOAT_COUNT; i++)
		if (sums->by_dtype[i] > sums->by_dtype[found])
			found = i;
	return (enum zi_dtype)found;
}

static int read_tensors(struct estimate_model *model, json_t *header, struct zi_text *text)
{
	const char *name;
	json_t *tensor;

	json_object_foreach(header, name, tensor)
	{
		int r = strcmp(name, "__metadata__") ? read_tensor(model, name, tensor, text) : 0;

		if (r)
			return err_trace(r);
	}
	model->sums.header_count++;
	return 0;
}

/* See model.h. */
int estimate_read_header(struct estimate_model *model, json_t *header, struct zi_text *text)
{
	const json_t *metadata = json_object_get(header, "__metadata__");
	const char *written = json_string_value(json_object_get(metadata, "zinf_model"));
	json_t *record;
	int r;

	if (!written)
		return err_trace(read_tensors(model, header, text));
	record = json_loads(written, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(record)) {
		json_decref(record);
		return zi_text_error(text, err_origin(-EINVAL),
		                     "what it says of its model (zinf_model) is not JSON");
	}
	(void)json_object_set(record, "job", json_object_get(metadata, "zinf_job")); /* Or none. */
	r = estimate_read_record(model, record, text);
	json_decref(record);
	return err_trace(r);
}

/* See model.h. */
int estimate_end_headers(struct estimate_model *model, struct zi_text *text)
{
	const struct estimate_sums *sums = &model->sums;

	/* Several to a word, as of 4 bits each: neither what they are nor how many is said here. */
	if (sums->whole_elements > model->element_count)
		return zi_text_error(
			text, err_origin(-EINVAL),
			"%llu of its %llu elements are integers: it is quantized, "
			"name the file of the model that is trained",
			(unsigned long long)sums->whole_elements,
			(unsigned long long)(sums->whole_elements + model->element_count));
	if (!sums->header_count)
		return 0;
	if (sums->buffer_count)
		zi_text_set(&model->note,
		            "%llu tensors (%llu elements) are no parameters: masks, tables, "
		            "integers",
		            (unsigned long long)sums->buffer_count,
		            (unsigned long long)sums->buffer_elements);
	model->dtype = main_dtype(sums);
	zi_text_set(&model->kind, "names and shapes of %llu safetensors file%s",
	            (unsigned long long)sums->header_count, sums->header_count > 1 ? "s" : "");
	return 0;
}
