/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of zctl estimate (show.h): what `jobs` answers too has the same keys (docs/ADMIN.md). */
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "zctl/estimate/show.h"

/* A short answer is still an answer: without memory keys are missing. */
static void number(json_t *object, const char *key, uint64_t value)
{
	(void)json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void word(json_t *object, const char *key, const char *value)
{
	(void)json_object_set_new(object, key, json_string(value));
}

static json_t *answer_held(const struct zi_plan *plan)
{
	const struct {
		const char *name;
		uint64_t cpu_bytes, nvme_bytes;
	} planes[] = {
		{ "param", plan->param_cpu_bytes, plan->param_nvme_bytes },
		{ "grad", plan->grad_cpu_bytes, 0 },
		{ "reduced_grad", plan->accum_cpu_bytes, 0 },
		{ "state", plan->state_cpu_bytes, plan->state_nvme_bytes },
		{ "staging", plan->staging_cpu_bytes, 0 },
		{ "collectives", plan->coll_cpu_bytes, 0 },
	};
	json_t *held = json_object();

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		json_t *plane = json_object();

		number(plane, "cpu_bytes", planes[i].cpu_bytes);
		number(plane, "nvme_bytes", planes[i].nvme_bytes);
		(void)json_object_set_new(held, planes[i].name, plane);
	}
	return held;
}

static json_t *answer_logical(const struct estimate *estimate)
{
	json_t *logical = json_array();

	for (uint32_t i = 0; i < estimate->wish.world_size; i++) {
		const struct zi_plane_bytes *bytes = &estimate->logical.ranks[i];
		json_t *rank = json_object();

		number(rank, "rank", i);
		number(rank, "param", bytes->param);
		number(rank, "param_live", bytes->param_live);
		number(rank, "grad", bytes->grad);
		number(rank, "grad_buckets", bytes->grad_buckets);
		number(rank, "reduced_grad", bytes->accum);
		number(rank, "state", bytes->state);
		(void)json_array_append_new(logical, rank);
	}
	return logical;
}

static json_t *answer_config(const struct zi_job_config *config)
{
	json_t *object = json_object();

	word(object, "param_dtype", zi_dtype_name((enum zi_dtype)config->param_dtype));
	word(object, "grad_dtype", zi_dtype_name((enum zi_dtype)config->grad_dtype));
	word(object, "optimizer", zi_optimizer_name((enum zi_optimizer)config->optimizer));
	word(object, "grad_reduction", zi_schedule_name((enum zi_schedule)config->schedule));
	word(object, "offload_optimizer",
	     zi_offload_name((enum zi_offload)config->offload_optimizer));
	word(object, "offload_param", zi_offload_name((enum zi_offload)config->offload_param));
	number(object, "resident_bytes", config->resident_bytes);
	number(object, "staging_bytes", config->staging_bytes);
	number(object, "param_budget_bytes", config->param_budget_bytes);
	number(object, "commit_interval", ZI_MAX(config->commit_interval, 1u));
	return object;
}

static json_t *answer_model(const struct estimate_model *model)
{
	json_t *object = json_object(), *units = json_array();

	word(object, "kind", model->kind.chars);
	(void)json_object_set_new(
		object, "note", *model->note.chars ? json_string(model->note.chars) : json_null());
	for (uint32_t i = 0; i < model->unit_count; i++) {
		json_t *unit = json_object();

		(void)json_object_set_new(unit, "name",
		                          model->units[i].name ? json_string(model->units[i].name)
		                                               : json_null());
		number(unit, "elements", model->units[i].element_count);
		(void)json_array_append_new(units, unit);
	}
	(void)json_object_set_new(object, "units", units);
	return object;
}

static void put_plan(json_t *object, const struct zi_plan *plan)
{
	(void)json_object_set_new(object, "held", answer_held(plan));
	number(object, "write_buffer_bytes", plan->copy_cpu_bytes);
	number(object, "tensor_bytes", plan->tensor_cpu_bytes);
	number(object, "cpu_bytes", plan->cpu_bytes);
	number(object, "nvme_bytes", plan->param_nvme_bytes + plan->state_nvme_bytes);
	number(object, "reserved_nvme_bytes", plan->reserved_nvme_bytes);
	number(object, "read_bytes_per_step", plan->read_bytes_per_step);
	number(object, "write_bytes_per_step", plan->write_bytes_per_step);
}

static json_t *answer_fit(const struct estimate *estimate)
{
	const struct estimate_fit *fit = &estimate->fit;
	json_t *object;

	if (!fit->is_wanted)
		return json_null();
	object = json_object();
	(void)json_object_set_new(object, "is_found", json_boolean(fit->is_found));
	word(object, "text", fit->text.chars);
	if (!fit->is_found)
		return object;
	word(object, "strategy", zi_strategy_name(fit->strategy));
	(void)json_object_set_new(object, "config", answer_config(&fit->config));
	put_plan(object, &fit->plan);
	return object;
}

static json_t *answer_ring(const struct estimate_ring *ring, bool has_chosen)
{
	json_t *object = json_object();

	number(object, "least_bytes", ring->least_bytes);
	number(object, "all_bytes", ring->all_bytes);
	if (has_chosen)
		number(object, "taken_bytes", ring->chosen_bytes);
	else
		(void)json_object_set_new(object, "taken_bytes", json_null());
	return object;
}

static json_t *answer_gpu(const struct estimate_gpu *gpu)
{
	bool has_room = gpu->room_bytes != ESTIMATE_GPU_NO_ROOM;
	json_t *object;

	if (!gpu->is_wanted)
		return json_null();
	object = json_object();
	(void)json_object_set_new(object, "uuid",
	                          gpu->name[0] ? json_string(gpu->name) : json_null());
	(void)json_object_set_new(object, "free_bytes",
	                          has_room ? json_integer((json_int_t)gpu->room_bytes)
	                                   : json_null());
	number(object, "chunk_bytes", gpu->chunk_bytes);
	(void)json_object_set_new(object, "is_enough", json_boolean(gpu->fits));
	(void)json_object_set_new(object, "text",
	                          gpu->fits ? json_null() : json_string(gpu->text.chars));
	(void)json_object_set_new(object, "param", answer_ring(&gpu->params, gpu->fits));
	(void)json_object_set_new(object, "grad", answer_ring(&gpu->grads, gpu->fits));
	return object;
}

/* See show.h. */
json_t *estimate_answer(const struct estimate *estimate)
{
	const struct estimate_model *model = estimate->model;
	json_t *object = json_object();

	(void)json_object_set_new(object, "model", answer_model(model));
	number(object, "elements", model->element_count);
	number(object, "padded_elements", model->padded_count);
	number(object, "units", model->unit_count);
	(void)json_object_set_new(object, "params",
	                          model->param_count ? json_integer((json_int_t)model->param_count)
	                                             : json_null());
	(void)json_object_set_new(object, "config", answer_config(&estimate->wish.config));
	word(object, "strategy", zi_strategy_name(estimate->wish.training.strategy));
	number(object, "shard_size", estimate->wish.training.shard_size);
	(void)json_object_set_new(
		object, "is_forward_only",
		json_boolean(zi_training_is_forward_only(&estimate->wish.training)));
	number(object, "ranks", estimate->options->rank_count);
	number(object, "nodes", estimate->options->node_count);
	number(object, "world_size", estimate->wish.world_size);
	(void)json_object_set_new(object, "logical", answer_logical(estimate));
	put_plan(object, &estimate->plan);
	(void)json_object_set_new(object, "fit", answer_fit(estimate));
	(void)json_object_set_new(object, "gpu", answer_gpu(&estimate->gpu));
	return object;
}
