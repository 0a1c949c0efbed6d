/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot be planned; see plan_check.h. Floor 1, any thread. */
#include "common/wire/plan_check.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "common/wire/geometry.h"
#include "common/wire/owner.h"

/* Far beyond any store; a product with any width, and 64 ranks, is below 2^63. */
#define PLAN_ELEMENTS_MAX (1ull << 50)
/* Of a rank, for its tensors and for its arena. */
#define PLAN_RANK_BYTES_MAX (1ull << 50)
/* Of all snapshots together. */
#define PLAN_SNAPSHOT_BYTES_MAX (1ull << 62)

/* What is kept beside the training state. No sum passes 2^63: 64 ranks of 2^50 bytes each are 2^56.
 * Precondition: the model is a sound one. */
static int check_beside(const struct zi_plan_model *model, const struct zi_plan_options *options,
                        struct zi_text *text)
{
	enum zi_dtype dtype = (enum zi_dtype)options->config.param_dtype;
	bool has_state = !zi_training_is_forward_only(&options->training);
	uint64_t width = zi_dtype_bytes(dtype) +
	                 (has_state ? zi_state_element_bytes(
					      (enum zi_optimizer)options->config.optimizer, dtype)
	                            : 0);
	uint64_t held_bytes = model->padded_count * width;
	const struct {
		const char *name;
		uint64_t value, max;
	} fields[] = {
		{ "tensor_bytes", options->tensor_bytes, PLAN_RANK_BYTES_MAX },
		{ "arena_bytes", options->arena_bytes, PLAN_RANK_BYTES_MAX },
		{ "snapshot_count", options->snapshot_count, PLAN_SNAPSHOT_BYTES_MAX / held_bytes },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(fields); i++)
		if (fields[i].value > fields[i].max)
			return err_origin(zi_text_error(
				text, -EINVAL, "%s is %llu: of this model at most %llu can be",
				fields[i].name, (unsigned long long)fields[i].value,
				(unsigned long long)fields[i].max));
	return 0;
}

static int check_sets(const struct zi_plan_model *model, const struct zi_plan_options *options,
                      struct zi_text *text)
{
	if (model->set_count > ZI_SETS_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "%u data-parallel groups: %u are allowed",
		                                model->set_count, ZI_SETS_MAX));
	for (uint32_t i = 0; i < model->set_count; i++) {
		uint64_t members = model->set_members[i];
		uint32_t count = (uint32_t)__builtin_popcountll(members);

		if (!members || (options->world_size < 64 && members >> options->world_size))
			return err_origin(zi_text_error(text, -EINVAL,
			                                "data-parallel group %u has no ranks, or "
			                                "ranks beyond the %u of the job",
			                                i, options->world_size));
		if (zi_shard_members(&options->training, count) == count &&
		    options->training.shard_size && options->training.shard_size < count)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"data-parallel group %u has %u ranks, which shard_size %u does "
				"not divide",
				i, count, options->training.shard_size));
	}
	for (uint32_t i = 0; i < model->unit_count && model->set_count; i++)
		if (model->unit_sets[i] >= model->set_count)
			return err_origin(zi_text_error(
				text, -EINVAL, "unit %u is in data-parallel group %u of %u", i,
				model->unit_sets[i], model->set_count));
	return 0;
}

/* Documented in the header. */
int zi_plan_check(const struct zi_plan_model *model, const struct zi_plan_options *options,
                  struct zi_text *text)
{
	uint64_t padded_count = 0;
	int r = zi_check_job_config(&options->config, text);

	if (r)
		return err_trace(r);
	if (!model->unit_count)
		return err_origin(zi_text_error(text, -EINVAL, "a model without units"));
	for (uint32_t i = 0; i < model->unit_count; i++) {
		uint64_t padded = model->unit_padded[i];

		if (!padded || padded % ZI_BLOCK_ELEMENTS || padded > PLAN_ELEMENTS_MAX)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"unit %u has %llu elements with padding: a multiple of %u to 2^50",
				i, (unsigned long long)padded, ZI_BLOCK_ELEMENTS));
		padded_count += padded;
		if (padded_count > PLAN_ELEMENTS_MAX)
			return err_origin(
				zi_text_error(text, -EINVAL, "a model of more than 2^50 elements"));
	}
	if (padded_count != model->padded_count)
		return err_origin(zi_text_error(
			text, -EINVAL, "units have %llu elements together, the model %llu",
			(unsigned long long)padded_count, (unsigned long long)model->padded_count));
	if (!options->local_ranks || options->local_ranks > options->world_size ||
	    options->world_size > ZI_WORLD_MAX)
		return err_origin(zi_text_error(
			text, -EINVAL, "%u ranks on a node of %u: 1 to %u are allowed",
			options->local_ranks, options->world_size, ZI_WORLD_MAX));
	if (options->here_mask &&
	    (uint32_t)__builtin_popcountll(options->here_mask) != options->local_ranks)
		return err_origin(zi_text_error(text, -EINVAL, "%u ranks on a node, %d are named",
		                                options->local_ranks,
		                                __builtin_popcountll(options->here_mask)));
	r = check_sets(model, options, text);
	if (r)
		return err_trace(r);
	return err_trace(check_beside(model, options, text));
}
