/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of zctl estimate (show.h). */
#include "zctl/estimate/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/wire/training.h"
#include "zctl/table.h"

/* Runs of units of one size that are told, before "and so on". */
#define RUNS_MAX 6u

static bool has_nvme(const struct zi_job_config *config)
{
	return config->offload_optimizer == ZI_OFFLOAD_NVME;
}

/* ---- the model ---- */

/* "block.0", or "12 of block.0 to block.11". */
static void print_run(const struct estimate_model *model, uint32_t first, uint32_t count)
{
	const char *name = model->units[first].name;
	const char *last = model->units[first + count - 1].name;

	if (name && count > 1)
		printf("%u of %s to %s", count, name, last);
	else if (name)
		printf("%s", name);
	else
		printf("%u", count);
	printf(" with %" PRIu64, model->units[first].element_count);
}

static void print_units(const struct estimate_model *model)
{
	uint32_t run_count = 0, first = 0;

	printf("units: ");
	while (first < model->unit_count && run_count < RUNS_MAX) {
		uint64_t elements = model->units[first].element_count;
		uint32_t count = 1;

		while (first + count < model->unit_count &&
		       model->units[first + count].element_count == elements)
			count++;
		printf(run_count ? "; " : "");
		print_run(model, first, count);
		first += count;
		run_count++;
	}
	if (first < model->unit_count)
		printf("; and %u more", model->unit_count - first);
	printf("\n");
}

static void print_model(const struct estimate_model *model, uint32_t param_dtype)
{
	printf("model: %s: %" PRIu64 " elements (%" PRIu64 " padded)", model->kind.chars,
	       model->element_count, model->padded_count);
	if (model->param_count)
		printf(" in %" PRIu64 " parameters", model->param_count);
	printf(", %u units\n", model->unit_count);
	print_units(model);
	if (*model->note.chars)
		printf("note: %s\n", model->note.chars);
	if (model->dtype == ZI_DTYPE_F16 && !model->grad_dtype)
		printf("note: its file is f16; counted as %s (--dtype says otherwise)\n",
		       zi_dtype_name((enum zi_dtype)param_dtype));
}

static void print_nodes(uint32_t node_count)
{
	if (node_count > 1)
		printf(" on each of %u nodes", node_count);
	printf("\n");
}

static void print_config(const struct estimate *estimate)
{
	const struct zi_job_config *config = &estimate->wish.config;

	if (zi_training_is_forward_only(&estimate->wish.training)) {
		printf("job: forward only, param %s, strategy %s, %u rank%s",
		       zi_dtype_name((enum zi_dtype)config->param_dtype),
		       zi_strategy_name(estimate->wish.training.strategy),
		       estimate->options->rank_count, estimate->options->rank_count > 1 ? "s" : "");
		print_nodes(estimate->options->node_count);
		return;
	}
	printf("job: param %s, grad %s, %s, grad_reduction %s, strategy %s, %u rank%s",
	       zi_dtype_name((enum zi_dtype)config->param_dtype),
	       zi_dtype_name((enum zi_dtype)config->grad_dtype),
	       zi_optimizer_name((enum zi_optimizer)config->optimizer),
	       zi_schedule_name((enum zi_schedule)config->schedule),
	       zi_strategy_name(estimate->wish.training.strategy), estimate->options->rank_count,
	       estimate->options->rank_count > 1 ? "s" : "");
	print_nodes(estimate->options->node_count);
}

/* ---- the planes ---- */

static void row(struct table *table, const char *tier, const char *plane, uint64_t logical_bytes,
                uint64_t held_bytes)
{
	if (!logical_bytes && !held_bytes)
		return;
	table_cell(table, "%s", tier);
	table_cell(table, "%s", plane);
	if (logical_bytes)
		table_cell(table, "%s", zi_format_bytes(logical_bytes).chars);
	else
		table_cell(table, "%s", "");
	table_cell(table, "%s", zi_format_bytes(held_bytes).chars);
}

static void print_planes(const struct estimate *estimate, bool is_colour)
{
	static const char *const headings[] = { "tier", "plane", ">logical, a rank",
		                                ">held, a node", NULL };
	const struct zi_plan *plan = &estimate->plan;
	const struct zi_job_config *config = &estimate->wish.config;
	const struct zi_plane_bytes *logical = &estimate->logical.most;
	uint64_t param_bytes = logical->param + logical->param_live;
	bool is_nvme = has_nvme(config), has_pool = config->offload_param == ZI_OFFLOAD_NVME;
	struct table *table = table_new(headings);

	row(table, "cpu", has_pool ? "param (pool)" : "param", has_pool ? 0 : param_bytes,
	    plan->param_cpu_bytes);
	row(table, "cpu", "grad", logical->grad + logical->grad_buckets, plan->grad_cpu_bytes);
	row(table, "cpu", "reduced_grad", logical->accum, plan->accum_cpu_bytes);
	row(table, "cpu", is_nvme ? "state (resident)" : "state", is_nvme ? 0 : logical->state,
	    plan->state_cpu_bytes);
	row(table, "cpu", "staging", 0, plan->staging_cpu_bytes);
	row(table, "cpu", "tensors", 0, plan->tensor_cpu_bytes);
	row(table, "cpu", "collectives", 0, plan->coll_cpu_bytes);
	row(table, "cpu", "write buffer", 0, plan->copy_cpu_bytes);
	row(table, "cpu", "in all", 0, plan->cpu_bytes);
	row(table, "nvme", "param", has_pool ? param_bytes : 0, plan->param_nvme_bytes);
	row(table, "nvme", "state", is_nvme ? logical->state : 0, plan->state_nvme_bytes);
	row(table, "nvme", "grad, in a step", 0, plan->grad_nvme_bytes);
	row(table, "nvme", "reserved", 0, plan->reserved_nvme_bytes);
	table_print(table, is_colour);
	(void)table_free(table);
}

static void print_step(const struct estimate *estimate)
{
	const struct zi_plan *plan = &estimate->plan;
	double count = (double)estimate->model->padded_count;

	if (zi_training_is_forward_only(&estimate->wish.training)) {
		if (plan->read_bytes_per_step)
			printf("a pass over all units reads at most %s from NVMe\n",
			       zi_format_bytes(plan->read_bytes_per_step).chars);
		return;
	}
	if (!plan->write_bytes_per_step) {
		printf("a step moves nothing to or from NVMe\n");
		return;
	}
	printf("a step that is committed writes %s (%.2f B per element) to NVMe and reads at most "
	       "%s (%.2f B)\n",
	       zi_format_bytes(plan->write_bytes_per_step).chars,
	       (double)plan->write_bytes_per_step / count,
	       zi_format_bytes(plan->read_bytes_per_step).chars,
	       (double)plan->read_bytes_per_step / count);
}

/* What does not fit is the caller's to say. */
static void print_fit(const struct estimate *estimate)
{
	const struct estimate_fit *fit = &estimate->fit;

	if (fit->is_found)
		printf("%s: %s of memory and %s of NVMe then\n", fit->text.chars,
		       zi_format_bytes(fit->plan.cpu_bytes).chars,
		       zi_format_bytes(fit->plan.reserved_nvme_bytes).chars);
}

/* ---- GPU memory ---- */

static void ring_row(struct table *table, const char *name, const struct estimate_ring *ring,
                     bool has_chosen)
{
	table_cell(table, "%s", name);
	table_cell(table, "%s", zi_format_bytes(ring->least_bytes).chars);
	table_cell(table, "%s", zi_format_bytes(ring->all_bytes).chars);
	if (has_chosen)
		table_cell(table, "%s", zi_format_bytes(ring->chosen_bytes).chars);
	else
		table_cell(table, "-");
}

/* What does not fit is the caller's to say. */
static void print_gpu(const struct estimate *estimate, bool is_colour)
{
	static const char *const headings[] = { "GPU memory, a rank", ">least", ">all units",
		                                ">it takes", NULL };
	const struct estimate_gpu *gpu = &estimate->gpu;
	const struct estimate_ring sum = {
		.least_bytes = gpu->params.least_bytes + gpu->grads.least_bytes,
		.all_bytes = gpu->params.all_bytes + gpu->grads.all_bytes,
		.chosen_bytes = gpu->params.chosen_bytes + gpu->grads.chosen_bytes,
	};
	struct table *table;

	if (!gpu->is_wanted)
		return;
	table = table_new(headings);
	ring_row(table, "parameters", &gpu->params, gpu->fits);
	if (gpu->grads.all_bytes)
		ring_row(table, "gradients", &gpu->grads, gpu->fits);
	ring_row(table, "in all", &sum, gpu->fits);
	table_print(table, is_colour);
	(void)table_free(table);
	printf("in chunks of %s", zi_format_bytes(gpu->chunk_bytes).chars);
	if (gpu->room_bytes == ESTIMATE_GPU_NO_ROOM)
		printf("; no GPU of a zinfd is known (--gpu-memory)\n");
	else
		printf("; %s%s%s free\n", gpu->name, gpu->name[0] ? " has " : "",
		       zi_format_bytes(gpu->room_bytes).chars);
}

/* See show.h. */
void estimate_show(const struct estimate *estimate, bool is_colour)
{
	print_model(estimate->model, estimate->wish.config.param_dtype);
	print_config(estimate);
	print_planes(estimate, is_colour);
	print_gpu(estimate, is_colour);
	print_step(estimate);
	print_fit(estimate);
}
