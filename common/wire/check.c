/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From untrusted bytes to checked values. Two answers: -EINVAL, a caller's mistake that its own
 * operation pays for; -EPROTO, what no libzinf would ever send, and the session ends. Floor 1,
 * pure.
 */
#include "common/wire/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"

/* Accumulating more micro-batches than this in fp32 has no meaning, and counters stay small. */
#define CHECK_MICRO_BATCHES_MAX 65536u
#define CHECK_INTERVAL_MAX      65536u

/* What an opcode's slot may carry. */
struct sqe_kind {
	bool has_unit;
	bool has_blob;     /* args[0]: its bytes */
	uint8_t arg_count; /* that are used */
};

static const struct sqe_kind sqe_kinds[_ZI_OP_COUNT] = {
	[ZI_OP_NOP] = { 0 },
	[ZI_OP_UNSHARD] = { .has_unit = true },
	[ZI_OP_RESHARD] = { .has_unit = true },
	[ZI_OP_PREFETCH] = { .has_unit = true },
	[ZI_OP_GRAD_ACQUIRE] = { .has_unit = true },
	[ZI_OP_REDUCE] = { .has_unit = true },
	[ZI_OP_STEP_BEGIN] = { 0 },
	[ZI_OP_STEP] = { .has_blob = true, .arg_count = 1 },
	[ZI_OP_COMMIT] = { .has_blob = true, .arg_count = 1 },
	[ZI_OP_BARRIER] = { 0 },
	[ZI_OP_TENSOR_ALLOC] = { .arg_count = 2 },
	[ZI_OP_TENSOR_PUT] = { .arg_count = 2 },
	[ZI_OP_TENSOR_PREFETCH] = { .arg_count = 1 },
	[ZI_OP_TENSOR_GET] = { .arg_count = 1 },
	[ZI_OP_TENSOR_RELEASE] = { .arg_count = 1 },
	[ZI_OP_TENSOR_FREE] = { .arg_count = 1 },
	[ZI_OP_CANCEL] = { .arg_count = 1 },
	[ZI_OP_GRAD_UNUSED] = { .has_unit = true, .arg_count = 6 },
	[ZI_OP_STEP_OPTIONS] = { 0 },
	[ZI_OP_GRAD_NORM] = { 0 },
	[ZI_OP_STEP_DISCARD] = { 0 },
	[ZI_OP_UNSHARD_PART] = { .has_unit = true, .arg_count = 1 + ZI_PART_WORDS },
};

static bool is_zero(const uint64_t *words, size_t words_count)
{
	uint64_t all = 0;

	for (size_t i = 0; i < words_count; i++)
		all |= words[i];
	return !all;
}

/**
 * zi_check_sqe() - a submission slot
 * @sqe: a private copy
 * @unit_count: of the job's layout, 0 before it is materialised
 * @text: says what is wrong; may be NULL
 *
 * Return: 0; -EINVAL no such unit, blob too large; -EPROTO unknown opcode, flags or unused words
 * set.
 */
int zi_check_sqe(const struct zi_sqe *sqe, uint32_t unit_count, struct zi_text *text)
{
	const struct sqe_kind *kind;

	if (sqe->opcode >= _ZI_OP_COUNT) {
		zi_text_set(text, "unknown opcode %u", sqe->opcode);
		return err_origin(-EPROTO);
	}
	kind = &sqe_kinds[sqe->opcode];
	if (sqe->flags || (!kind->has_unit && sqe->unit) ||
	    !is_zero(sqe->args + kind->arg_count, ZI_COUNT_OF(sqe->args) - kind->arg_count)) {
		zi_text_set(text, "%s: flags or unused words are set", zi_opcode_name(sqe->opcode));
		return err_origin(-EPROTO);
	}
	if (kind->has_unit && sqe->unit >= unit_count) {
		zi_text_set(text, "%s: unit %u of %u", zi_opcode_name(sqe->opcode), sqe->unit,
		            unit_count);
		return err_origin(-EINVAL);
	}
	if (kind->has_blob && sqe->args[0] > ZI_BLOB_BYTES) {
		zi_text_set(text, "%s: a blob of %llu bytes, at most %u are kept",
		            zi_opcode_name(sqe->opcode), (unsigned long long)sqe->args[0],
		            ZI_BLOB_BYTES);
		return err_origin(-EINVAL);
	}
	return 0;
}

/* @name is @value; it must be within [low, high), which a NaN is not. */
static int check_real(const char *name, double value, double low, double high, struct zi_text *text)
{
	if (value >= low && value < high)
		return 0;
	if (high >= (double)FLT_MAX)
		zi_text_set(text, "%s is %.17g: it must be finite in fp32 and at least %g", name,
		            value, low);
	else
		zi_text_set(text, "%s is %.17g: it must be at least %g and below %g", name, value,
		            low, high);
	return err_origin(-EINVAL);
}

/**
 * zi_check_step_options() - hyperparameters of a step
 * @options: a private copy
 * @text: names the field and what is allowed; may be NULL
 *
 * What depends on the job (its optimizer, its schedule) is checked where the job is known.
 * Return: 0; -EINVAL a value; -EPROTO unknown flags, reserved words.
 */
int zi_check_step_options(const struct zi_step_options *options, struct zi_text *text)
{
	const double huge = (double)FLT_MAX; /* every one of them is rounded to fp32 once */
	const struct {
		const char *name;
		double value, low, high;
	} reals[] = {
		{ "lr", options->lr, 0, huge },
		{ "beta1", options->beta1, 0, 1 },
		{ "beta2", options->beta2, 0, 1 },
		{ "eps", options->eps, 0, huge },
		{ "weight_decay", options->weight_decay, 0, huge },
		{ "max_norm", options->max_norm, 0, huge },
		/* The smallest normal number: unscaling by 0 would hide every gradient. */
		{ "unscale", options->unscale, (double)FLT_MIN, huge },
		{ "lr_decay", options->lr_decay, 0, huge },
	};

	if ((options->flags & ~ZI_STEP_FLAGS_ALL) || options->reserved0 ||
	    !is_zero(options->reserved, ZI_COUNT_OF(options->reserved))) {
		zi_text_set(text, "step options: unknown flags or reserved words are set");
		return err_origin(-EPROTO);
	}
	if ((options->flags & (ZI_STEP_JOINED | ZI_STEP_DIVIDES_BY_LIVE)) ==
	    ZI_STEP_DIVIDES_BY_LIVE) {
		zi_text_set(text, "step options: divides_by_live is joined ranks' alone");
		return err_origin(-EPROTO);
	}
	if ((options->flags & (ZI_STEP_JOINED | ZI_STEP_DEFERRED)) ==
	            (ZI_STEP_JOINED | ZI_STEP_DEFERRED) ||
	    ((options->flags & ZI_STEP_BETAS) && !options->group_count) ||
	    ((options->flags & ZI_STEP_DEFERRED) && options->group_count)) {
		zi_text_set(text, "step options: a joined rank defers none, betas need groups, and "
		                  "a deferred step has its groups later");
		return err_origin(-EPROTO);
	}
	if ((options->flags & ZI_STEP_DEFERRED) && (options->flags & ZI_STEP_UPDATE_EARLY)) {
		zi_text_set(text, "is_deferred and update_early are set: an update that begins "
		                  "during backward needs its hyperparameters in "
		                  "zinf_step_begin()");
		return err_origin(-EINVAL);
	}
	for (size_t i = 0; i < ZI_COUNT_OF(reals); i++) {
		int r = check_real(reals[i].name, reals[i].value, reals[i].low, reals[i].high,
		                   text);

		if (r)
			return err_trace(r);
	}
	if (!options->micro_batches || options->micro_batches > CHECK_MICRO_BATCHES_MAX) {
		zi_text_set(text, "micro_batches is %u: 1 to %u are allowed",
		            options->micro_batches, CHECK_MICRO_BATCHES_MAX);
		return err_origin(-EINVAL);
	}
	if (options->group_count > ZI_PARAM_GROUPS_MAX) {
		zi_text_set(text, "group_count is %u: 0 to %u are allowed", options->group_count,
		            ZI_PARAM_GROUPS_MAX);
		return err_origin(-EINVAL);
	}
	return 0;
}

/**
 * zi_check_step_groups() - lr and weight_decay of each group
 * @groups: (@count,) a private copy
 *
 * Return: 0; -EINVAL which one; -EPROTO reserved words.
 */
int zi_check_step_groups(const struct zi_step_group *groups, uint32_t count, struct zi_text *text)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct zi_step_group *group = &groups[i];

		if (!is_zero(group->reserved, ZI_COUNT_OF(group->reserved))) {
			zi_text_set(text, "group %u of a step: reserved words are set", i);
			return err_origin(-EPROTO);
		}
		if (group->lr >= 0 && group->lr < (double)FLT_MAX && group->weight_decay >= 0 &&
		    group->weight_decay < (double)FLT_MAX)
			continue;
		zi_text_set(text,
		            "group %u of a step has lr %.17g and weight_decay %.17g: they must be "
		            "finite in fp32 and at least 0",
		            i, group->lr, group->weight_decay);
		return err_origin(-EINVAL);
	}
	return 0;
}

/**
 * zi_check_step_betas() - betas and eps of each group
 * @betas: (@count,) a private copy
 *
 * Return: 0; -EINVAL which one.
 */
int zi_check_step_betas(const struct zi_step_betas *betas, uint32_t count, struct zi_text *text)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct zi_step_betas *group = &betas[i];

		if (group->beta1 >= 0 && group->beta1 < 1 && group->beta2 >= 0 &&
		    group->beta2 < 1 && group->eps >= 0 && group->eps < (double)FLT_MAX)
			continue;
		zi_text_set(text,
		            "group %u of a step has beta1 %.17g, beta2 %.17g and eps %.17g: betas "
		            "must be at least 0 and below 1, eps finite in fp32 and at least 0",
		            i, group->beta1, group->beta2, group->eps);
		return err_origin(-EINVAL);
	}
	return 0;
}

static int check_choice(const char *name, uint32_t value, uint32_t low, uint32_t end,
                        struct zi_text *text)
{
	if (value >= low && value < end)
		return 0;
	zi_text_set(text, "%s is %u: %u to %u are allowed", name, value, low, end - 1);
	return err_origin(-EINVAL);
}

static int check_dtypes(const struct zi_job_config *config, struct zi_text *text)
{
	if (zi_dtype_is_trained(config->param_dtype, config->grad_dtype))
		return 0;
	zi_text_set(text, "grad_dtype %s with param_dtype %s: gradients are of that type or f32",
	            zi_dtype_name((enum zi_dtype)config->grad_dtype),
	            zi_dtype_name((enum zi_dtype)config->param_dtype));
	return err_origin(-EINVAL);
}

/**
 * zi_check_job_config() - what all ranks of a job agree on
 * @text: names the field and what is allowed; may be NULL
 *
 * Return: 0; -EINVAL a value; -EOPNOTSUPP a good value that is not built yet; -EPROTO reserved
 * words.
 */
int zi_check_job_config(const struct zi_job_config *config, struct zi_text *text)
{
	const struct {
		const char *name;
		uint32_t value, low, end;
	} choices[] = {
		{ "param_dtype", config->param_dtype, 1, _ZI_DTYPE_FLOAT_COUNT },
		{ "grad_dtype", config->grad_dtype, 1, _ZI_DTYPE_FLOAT_COUNT },
		{ "optimizer", config->optimizer, 1, _ZI_OPTIMIZER_COUNT },
		{ "grad_reduction", config->schedule, 1, _ZI_SCHEDULE_COUNT },
		{ "offload_optimizer", config->offload_optimizer, 0, _ZI_OFFLOAD_COUNT },
		{ "offload_param", config->offload_param, 0, _ZI_OFFLOAD_COUNT },
		{ "durability", config->durability, 0, _ZI_DURABILITY_COUNT },
	};

	if (config->reserved0 || !is_zero(config->reserved, ZI_COUNT_OF(config->reserved))) {
		zi_text_set(text, "job configuration: reserved words are set");
		return err_origin(-EPROTO);
	}
	for (size_t i = 0; i < ZI_COUNT_OF(choices); i++) {
		int r = check_choice(choices[i].name, choices[i].value, choices[i].low,
		                     choices[i].end, text);

		if (r)
			return err_trace(r);
	}
	if (config->io_weight > ZI_IO_WEIGHT_MAX) {
		zi_text_set(text, "io_weight is %u: 1 to %u are allowed, 0 is %u",
		            config->io_weight, ZI_IO_WEIGHT_MAX, ZI_IO_WEIGHT_DEFAULT);
		return err_origin(-EINVAL);
	}
	if (config->resident_bytes > INT64_MAX || config->staging_bytes > INT64_MAX ||
	    config->param_budget_bytes > INT64_MAX) {
		zi_text_set(text, "resident_bytes, staging_bytes and param_budget_bytes must be "
		                  "below 2^63");
		return err_origin(-EINVAL);
	}
	if (config->offload_param == ZI_OFFLOAD_NVME &&
	    config->offload_optimizer != ZI_OFFLOAD_NVME) {
		zi_text_set(text, "offload_param nvme needs offload_optimizer nvme (resident_bytes "
		                  "may keep all of that state in memory)");
		return err_origin(-EINVAL);
	}
	if (config->commit_interval > CHECK_INTERVAL_MAX) {
		zi_text_set(text, "commit_interval is %u: 1 to %u are allowed",
		            config->commit_interval, CHECK_INTERVAL_MAX);
		return err_origin(-EINVAL);
	}
	if (config->snapshot_keep && !config->snapshot_interval) {
		zi_text_set(text,
		            "snapshot_keep is %u, but nothing is kept without "
		            "snapshot_interval",
		            config->snapshot_keep);
		return err_origin(-EINVAL);
	}
	return err_trace(check_dtypes(config, text));
}

static int check_attach_names(const struct zi_attach *attach, struct zi_text *text)
{
	const char *const rule = "1 to 63 of A-Z a-z 0-9 . _ : + - are allowed, not beginning with "
				 ". or -";

	if (zi_check_name(attach->job, sizeof(attach->job))) {
		zi_text_set(text, "job name '%.63s': %s", attach->job, rule);
		return err_origin(-EINVAL);
	}
	if (attach->incarnation[0] &&
	    zi_check_name(attach->incarnation, sizeof(attach->incarnation))) {
		zi_text_set(text, "incarnation '%.63s': %s", attach->incarnation, rule);
		return err_origin(-EINVAL);
	}
	return 0;
}

/**
 * zi_check_attach() - a rank that wants to join
 * @attach: passed zi_message_check()
 * @text: names the field and what is allowed; may be NULL
 *
 * Return: 0; -EINVAL a value; -EOPNOTSUPP as zi_check_job_config(); -EPROTO unknown flags, reserved
 * words.
 */
int zi_check_attach(const struct zi_attach *attach, struct zi_text *text)
{
	int r;

	if ((attach->flags & ~ZI_ATTACH_FLAGS_ALL) || attach->reserved0 ||
	    !is_zero(attach->reserved, ZI_COUNT_OF(attach->reserved))) {
		zi_text_set(text, "ATTACH: unknown flags or reserved words are set");
		return err_origin(-EPROTO);
	}
	r = check_attach_names(attach, text);
	if (r)
		return err_trace(r);
	if (!attach->world_size || attach->world_size > ZI_WORLD_MAX) {
		zi_text_set(text, "world size %u: 1 to %u are allowed", attach->world_size,
		            ZI_WORLD_MAX);
		return err_origin(-EINVAL);
	}
	if (attach->rank >= attach->world_size) {
		zi_text_set(text, "rank %u of a world of %u: ranks count from 0", attach->rank,
		            attach->world_size);
		return err_origin(-EINVAL);
	}
	if (attach->local_world_size > attach->world_size) {
		zi_text_set(text, "%u ranks of this node in a world of %u",
		            attach->local_world_size, attach->world_size);
		return err_origin(-EINVAL);
	}
	if (!attach->timeout_ms) {
		zi_text_set(text, "timeout_ms is 0: a deadline is needed");
		return err_origin(-EINVAL);
	}
	return err_trace(zi_check_job_config(&attach->config, text));
}

/* Names of units, parameters and sets are the model's own: any visible ASCII. */
static int check_entry_name(const char *name, struct zi_text *text)
{
	size_t bytes = strnlen(name, ZI_PARAM_NAME_BYTES);

	if (bytes == ZI_PARAM_NAME_BYTES) {
		zi_text_set(text, "a name of the LAYOUT stream without end");
		return err_origin(-EPROTO);
	}
	for (size_t i = 0; i < bytes; i++)
		if (name[i] <= ' ' || name[i] > '~') {
			zi_text_set(text,
			            "name of a unit, parameter or data-parallel group: "
			            "byte 0x%02x at %zu is not "
			            "visible ASCII",
			            (unsigned char)name[i], i);
			return err_origin(-EINVAL);
		}
	if (!bytes) {
		zi_text_set(text, "a unit, parameter or data-parallel group without a name");
		return err_origin(-EINVAL);
	}
	return 0;
}

static int check_entry_shape(const struct zi_layout_entry *entry, struct zi_text *text)
{
	uint64_t element_count;
	int r = zi_geometry_elements(entry->shape, entry->dim_count, &element_count);

	if (r == -EINVAL)
		zi_text_set(text, "parameter '%s': a dimension of 0 elements", entry->name);
	else if (r)
		zi_text_set(text, "parameter '%s': more than 2^48 elements", entry->name);
	return err_trace(r ? -EINVAL : 0);
}

/* The words of @entry that its kind gives no meaning, and those that it must have. */
static int check_entry_kind(const struct zi_layout_entry *entry, struct zi_text *text)
{
	static const struct {
		uint32_t dim_min, dim_max;
	} kinds[] = {
		[ZI_LAYOUT_UNIT] = { 0, 0 },
		[ZI_LAYOUT_PARAM] = { 0, ZI_PARAM_DIMS_MAX },
		[ZI_LAYOUT_SET] = { 1, 1 },
	};

	if (!entry->kind || entry->kind >= ZI_COUNT_OF(kinds)) {
		zi_text_set(text, "LAYOUT entry of unknown kind %u", entry->kind);
		return err_origin(-EPROTO);
	}
	if (entry->dim_count < kinds[entry->kind].dim_min ||
	    entry->dim_count > kinds[entry->kind].dim_max ||
	    !is_zero(entry->shape + entry->dim_count, ZI_PARAM_DIMS_MAX - entry->dim_count)) {
		zi_text_set(text,
		            "LAYOUT entry with %u dimensions, %u to %u expected, or unused ones "
		            "set",
		            entry->dim_count, kinds[entry->kind].dim_min,
		            kinds[entry->kind].dim_max);
		return err_origin(-EPROTO);
	}
	if (entry->group && entry->kind != ZI_LAYOUT_PARAM) {
		zi_text_set(text, "LAYOUT entry with a group, which parameters alone have");
		return err_origin(-EPROTO);
	}
	return 0;
}

/**
 * zi_check_layout_entry() - a unit, a parameter or a set of the LAYOUT stream
 * @entry: a private copy
 * @text: says what is wrong; may be NULL
 *
 * Return: 0; -EINVAL a name, a shape, a group, a set of nobody; -EPROTO unknown kind, too many
 * dimensions, unused words set, a name without end.
 */
int zi_check_layout_entry(const struct zi_layout_entry *entry, struct zi_text *text)
{
	int r = check_entry_kind(entry, text);

	if (!r)
		r = check_entry_name(entry->name, text);
	if (r)
		return err_trace(r);
	if (entry->group >= ZI_PARAM_GROUPS_MAX && entry->group != ZI_LAYOUT_FROZEN) {
		zi_text_set(text,
		            "parameter '%s' is of group %u: 0 to %u are allowed, or %u (frozen)",
		            entry->name, entry->group, ZI_PARAM_GROUPS_MAX - 1, ZI_LAYOUT_FROZEN);
		return err_origin(-EINVAL);
	}
	if (entry->kind == ZI_LAYOUT_SET && !entry->shape[0]) {
		zi_text_set(text, "data-parallel group '%s' has no ranks", entry->name);
		return err_origin(-EINVAL);
	}
	return entry->kind == ZI_LAYOUT_PARAM ? err_trace(check_entry_shape(entry, text)) : 0;
}
