/* SPDX-License-Identifier: Apache-2.0 */
/* zero_optimization: the stage, where planes live, and sizes that are told in elements. Floor 2. */
#include <string.h>
#include <strings.h>

#include "common/base/checked.h"
#include "common/base/err.h"
#include "libclient/deepspeed/private.h"

#define Z    "zero_optimization."
#define MICS Z "mics_shard_size"

static enum zinf_offload device_of(const struct zinf_deepspeed *reader, const char *path)
{
	const char *device = deepspeed_text(reader, path);

	if (!strcasecmp(device, "nvme"))
		return ZINF_OFFLOAD_NVME;
	return strcasecmp(device, "cpu") ? ZINF_OFFLOAD_NONE : ZINF_OFFLOAD_CPU;
}

/* The old name says true or false, and is refused beside the new one, as there. */
static int read_home(struct zinf_deepspeed *reader, const char *name, const char *old,
                     const char *device, enum zinf_offload *ret_home)
{
	*ret_home = device_of(reader, device);
	if (!deepspeed_is_given(reader, old))
		return 0;
	if (deepspeed_is_given(reader, name))
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "%s and %s are given: the first is the old name of "
		                     "{ \"device\": \"cpu\" } in the second; keep that",
		                     old, name);
	*ret_home = deepspeed_bool(reader, old) ? ZINF_OFFLOAD_CPU : ZINF_OFFLOAD_NONE;
	return 0;
}

static int read_homes(struct zinf_deepspeed *reader)
{
	struct zinf_deepspeed_config *config = &reader->config;
	int r = read_home(reader, Z "offload_optimizer", Z "cpu_offload",
	                  Z "offload_optimizer.device", &config->offload_optimizer);

	if (!r)
		r = read_home(reader, Z "offload_param", Z "cpu_offload_param",
		              Z "offload_param.device", &config->offload_param);
	if (r)
		return err_trace(r);
	if (config->offload_param && config->zero_stage < 3)
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     Z "offload_param with stage %u: parameters are offloaded by "
		                       "stage 3 alone",
		                     config->zero_stage);
	if (config->offload_param == ZINF_OFFLOAD_NVME &&
	    config->offload_optimizer != ZINF_OFFLOAD_NVME) {
		r = deepspeed_note_value(reader, Z "offload_optimizer.device",
		                         "with parameters on nvme it is there as well: a step is "
		                         "committed as a whole");
		config->offload_optimizer = ZINF_OFFLOAD_NVME;
	}
	config->optimizer_path = deepspeed_text(reader, Z "offload_optimizer.nvme_path");
	config->param_path = deepspeed_text(reader, Z "offload_param.nvme_path");
	return err_trace(r);
}

static uint32_t width_of(enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? 4 : 2;
}

/* Elements times their width; what is more than 2^64 bytes is no bound at all. */
static uint64_t bytes_of(uint64_t elements, enum zinf_dtype dtype)
{
	uint64_t bytes;

	return zi_checked_mul(elements, width_of(dtype), &bytes) ? bytes : UINT64_MAX;
}

/* 0 where the file says nothing: then zinf chooses. "auto": @factor times what Hugging Face's
 * trainer takes, the hidden size or its square. */
static int read_elements(struct zinf_deepspeed *reader, const char *path, uint64_t automatic,
                         uint64_t *ret_elements)
{
	*ret_elements = 0;
	if (!deepspeed_is_given(reader, path))
		return 0;
	return err_trace(
		deepspeed_count_or(reader, path, automatic, "hidden_elements", ret_elements));
}

static int read_sizes(struct zinf_deepspeed *reader)
{
	struct zinf_deepspeed_config *config = &reader->config;
	uint64_t hidden = reader->facts.hidden_elements;
	uint64_t square, ten_times, elements;
	int r;

	/* Hidden sizes are thousands; what overflows is no size, and is not known. */
	square = zi_checked_mul(hidden, hidden, &square) ? square : 0;
	ten_times = zi_checked_mul(hidden, 10, &ten_times) ? ten_times : 0;
	r = read_elements(reader, Z "reduce_bucket_size", square, &elements);
	if (r)
		return err_trace(r);
	config->bucket_bytes = bytes_of(elements, config->grad_dtype);
	r = read_elements(reader, Z "stage3_param_persistence_threshold", ten_times, &elements);
	if (r)
		return err_trace(r);
	config->persistent_elements = config->zero_stage == 3 ? elements : 0;
	if (config->offload_param != ZINF_OFFLOAD_NVME ||
	    !deepspeed_is_given(reader, Z "offload_param.max_in_cpu"))
		return 0;
	elements = (uint64_t)deepspeed_count(reader, Z "offload_param.max_in_cpu");
	config->param_budget_bytes = bytes_of(elements, config->param_dtype);
	return 0;
}

/* MiCS: what a group of ranks holds together is there once in each group. */
static int read_groups(struct zinf_deepspeed *reader)
{
	int64_t ranks = deepspeed_count(reader, MICS);

	if (ranks <= 0)
		return 0;
	if (reader->config.zero_stage < 3)
		return err_trace(deepspeed_note_value(
			reader, MICS, "groups of ranks divide what stage 3 divides, as there"));
	if (reader->facts.world_size % (uint64_t)ranks)
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     MICS " = %lld: %u rank(s) do not divide into groups of it",
		                     (long long)ranks, reader->facts.world_size);
	reader->config.shard_ranks = (uint32_t)ranks;
	return 0;
}

/* As in the header. */
int deepspeed_zero(struct zinf_deepspeed *reader)
{
	int r = read_homes(reader);

	if (!r)
		r = read_sizes(reader);
	if (!r)
		r = read_groups(reader);
	reader->config.ignores_unused = deepspeed_bool(reader, Z "ignore_unused_parameters");
	return err_trace(r);
}
