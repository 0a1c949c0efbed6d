/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot whose bytes come from a client (zctl load), not from a job: space for all of it is
 * reserved and paid for first, each extent is compared with the checksums that its sender says it
 * has and written, and in the end one transaction makes it a snapshot like any other
 * (import_write.c). Until then nothing of it is in the catalog, so whatever ends an import leaves
 * nothing. Here: how one begins. Floor 5, shard thread.
 */
#include "daemon/zero/snapshot/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/commit.h"

static int config_check(const struct catalog_job *record, struct zi_text *text)
{
	const struct catalog_job_config *config = &record->config;

	if (!zi_dtype_is_trained(config->param_dtype, ZI_DTYPE_F32))
		return err_origin(zi_text_error(text, -EINVAL, "param_dtype %u is not known",
		                                config->param_dtype));
	if (!zi_dtype_is_trained(config->param_dtype, config->grad_dtype))
		return err_origin(zi_text_error(text, -EINVAL,
		                                "grad_dtype %u with param_dtype %s: it must be "
		                                "param_dtype or f32",
		                                config->grad_dtype,
		                                zi_dtype_name((enum zi_dtype)config->param_dtype)));
	if (!config->optimizer || config->optimizer >= _ZI_OPTIMIZER_COUNT)
		return err_origin(zi_text_error(text, -EINVAL, "optimizer %u is not known",
		                                config->optimizer));
	if (!config->schedule || config->schedule >= _ZI_SCHEDULE_COUNT)
		return err_origin(zi_text_error(text, -EINVAL, "grad_reduction %u is not known",
		                                config->schedule));
	if (record->step < 0 || !(record->beta1_power >= 0.0 && record->beta1_power <= 1.0) ||
	    !(record->beta2_power >= 0.0 && record->beta2_power <= 1.0) || !record->world_size ||
	    record->world_size > ZI_WORLD_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "step %lld of %u ranks, with powers %g and %g, "
		                                "cannot be",
		                                (long long)record->step, record->world_size,
		                                record->beta1_power, record->beta2_power));
	return 0;
}

/* By a job, or by snapshots that outlived it. @job: of that name, or NULL. */
static bool name_is_taken(const struct zero *zero, const struct zero_import_options *options,
                          const struct zero_job *job)
{
	if (job && job->uid != options->uid)
		return true;
	zi_list_for_each(link, &zero->snapshots) {
		const struct zero_snapshot *other =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (other->uid != options->uid && strcmp(other->job_name, options->job) == 0)
			return true;
	}
	return false;
}

/* Whose it is, under what name, and whether there is a place for it. */
static int name_check(struct zero *zero, const struct zero_import_options *options,
                      const char *name, struct zi_text *text)
{
	const struct zero_job *job = job_find(zero, options->job);
	int r = change_check(zero, text);

	if (r)
		return err_trace(r);
	if (!zero->options.nvme_tier_count)
		return err_origin(zi_text_error(text, -EOPNOTSUPP,
		                                "the daemon has no nvme tier to load to: configure "
		                                "one"));
	/* First: which snapshots another user has is not told. */
	if (!options->is_admin && name_is_taken(zero, options, job))
		return err_origin(zi_text_error(
			text, -EACCES,
			"job name '%s' is taken by another user: load under another name",
			options->job));
	if (snapshot_find(zero, options->job, name))
		return err_origin(zi_text_error(text, -EEXIST,
		                                "snapshot '%s/%s' exists, or is being loaded; "
		                                "nothing was overwritten",
		                                options->job, name));
	return 0;
}

static int model_check(const struct zero *zero, const struct catalog_job *record,
                       struct zi_text *text)
{
	const struct zero_layout layout = { .units = record->units,
		                            .params = record->params,
		                            .unit_count = record->unit_count,
		                            .param_count = record->param_count };

	if (record->unit_count > zero->options.units_max ||
	    record->param_count > zero->options.params_max)
		return err_origin(zi_text_error(
			text, -E2BIG, "%u units, %u parameters: %u and %u are allowed (limits)",
			record->unit_count, record->param_count, zero->options.units_max,
			zero->options.params_max));
	return err_trace(layout_check(&layout, text));
}

static int room_check(const struct tier *tier, const struct zero_import_options *options,
                      struct zi_text *text)
{
	const struct catalog_job *record = options->record;
	const struct zero_layout layout = { .units = record->units,
		                            .params = record->params,
		                            .unit_count = record->unit_count,
		                            .param_count = record->param_count };
	uint64_t width =
		import_plane_width(&record->config, ZERO_PLANE_PARAM) +
		(options->has_state ? import_plane_width(&record->config, ZERO_PLANE_STATE) : 0);
	uint64_t bytes = layout_padded_count(&layout) * width; /* Below 2^48 × 16. */

	if (bytes <= tier_extent_free_bytes(tier))
		return 0;
	return err_origin(zi_text_error(
		text, -ENOSPC, "loading '%.63s' needs %s on %s, %s are free (%s)", options->job,
		zi_format_bytes(bytes).chars, tier->name,
		zi_format_bytes(tier_extent_free_bytes(tier)).chars, tier_paths(tier).chars));
}

/* Rows of subgroup after subgroup. @rows: (2 × their count,); NULL: they are counted. */
static uint32_t describe_rows(const struct zero_import_options *options, struct zero_import *import,
                              struct catalog_extent *rows)
{
	const struct catalog_job *record = options->record;
	uint32_t index = 0, hash_count = 0, param = 0;

	for (uint32_t unit = 0; unit < record->unit_count; unit++) {
		uint64_t count = 0, padded;

		for (; param < record->param_count && record->params[param].unit == unit; param++) {
			uint64_t one = 0;

			(void)zi_geometry_elements(record->params[param].shape,
			                           record->params[param].dim_count,
			                           &one); /* Checked. */
			count += one;
		}
		padded = zi_geometry_padded(count);
		for (uint32_t i = 0; i < 2 * zi_geometry_subgroup_count(padded); i++, index++) {
			uint64_t elements = zi_geometry_subgroup_elements(padded, i / 2);
			uint32_t plane = i % 2;

			if (!rows)
				continue;
			rows[index] = (struct catalog_extent){
				.unit = unit,
				.subgroup = i / 2,
				.plane =
					plane == ZERO_PLANE_STATE ? ZI_PLANE_STATE : ZI_PLANE_PARAM,
				.step = (uint64_t)record->step,
			};
			import->hash_firsts[index] = hash_count;
			hash_count += zi_geometry_tile_count(elements);
			if (plane == ZERO_PLANE_PARAM || options->has_state)
				import->extent_bytes[index] =
					elements * import_plane_width(&record->config, plane);
		}
	}
	return index;
}

/* Tables, and the record with rows that hold nothing yet. */
static int make_tables(struct zero_import *import, const struct zero_import_options *options)
{
	struct zero_snapshot *snapshot = import->snapshot;
	_cleanup_(zi_freep) struct catalog_extent *rows = NULL;
	struct catalog_job record = *options->record;
	uint32_t count = describe_rows(options, import, NULL);
	uint64_t tiles_max = (uint64_t)count * (ZI_SUBGROUP_ELEMENTS / ZI_TILE_ELEMENTS);

	rows = calloc(count, sizeof(*rows));
	import->hash_firsts = calloc(count, sizeof(*import->hash_firsts));
	import->extent_bytes = calloc(count, sizeof(*import->extent_bytes));
	import->hashes = calloc(tiles_max, sizeof(*import->hashes));
	if (!rows || !import->hash_firsts || !import->extent_bytes || !import->hashes)
		return err_origin(-ENOMEM);
	(void)describe_rows(options, import, rows);
	import->extent_count = count;
	(void)zi_copy_name(record.name, sizeof(record.name), snapshot->job_name); /* As long. */
	(void)zi_copy_name(record.snapshot, sizeof(record.snapshot), snapshot->name);
	record.uid = snapshot->uid;
	record.created_s = snapshot->created_s;
	record.config.offload_optimizer = ZI_OFFLOAD_NVME;
	record.config.offload_param = ZI_OFFLOAD_NONE;
	record.extents = rows;
	record.extent_count = count;
	if (catalog_job_copy(&record, &snapshot->record))
		return err_origin(-ENOMEM);
	snapshot->extents = calloc(count, sizeof(*snapshot->extents));
	return snapshot->extents ? 0 : err_origin(-ENOMEM);
}

static int reserve_all(struct zero_import *import, struct tier *tier, struct zi_text *text)
{
	struct zero_snapshot *snapshot = import->snapshot;
	int r;

	for (uint32_t i = 0; i < import->extent_count; i++)
		snapshot->held_bytes += import->extent_bytes[i];
	/* Space that is not paid for may be what another job's next step needs. */
	r = snapshot_charge(snapshot, snapshot->held_bytes ? tier : NULL, text);
	if (r)
		return err_trace(r);
	tier_stripe_weigh(tier);
	for (uint32_t i = 0; i < import->extent_count; i++) {
		if (!import->extent_bytes[i])
			continue;
		r = tier_extent_reserve(tier, i % 2, import->extent_bytes[i],
		                        &snapshot->extents[i]);
		if (r)
			return err_origin(zi_text_error(text, r == TIER_E_FULL ? -ENOSPC : r,
			                                "loading '%.63s': no room on %s (%s)",
			                                snapshot->job_name, tier->name,
			                                tier_paths(tier).chars));
		import->missing_count++;
	}
	return 0;
}

/* See zero.h. Context: shard thread. */
int zero_import_new(struct zero *zero, const struct zero_import_options *options,
                    struct zi_text *text, struct zero_import **ret_import)
{
	const struct zero_job *job = job_find(zero, options->job);
	struct zero_import *import;
	char name[ZI_NAME_BYTES];
	struct tier *tier;
	int r;

	(void)snprintf(name, sizeof(name), "step-%lld",
	               (long long)options->record->step); /* Fits. */
	if (options->name[0])
		(void)zi_copy_name(name, sizeof(name), options->name); /* Checked. */
	r = name_check(zero, options, name, text);
	if (!r)
		r = config_check(options->record, text);
	if (!r)
		r = model_check(zero, options->record, text);
	if (r)
		return err_trace(r);
	tier = &zero->options.nvme_tiers[job_roomiest(zero->options.nvme_tiers,
	                                              zero->options.nvme_tier_count)];
	r = room_check(tier, options, text);
	if (r)
		return err_trace(r);
	import = calloc(1, sizeof(*import));
	if (import)
		import->snapshot =
			snapshot_new(zero, options->job, name, job ? job->uid : options->uid);
	if (!import || !import->snapshot) {
		free(import);
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for a snapshot"));
	}
	import->snapshot->is_import = true;
	import->snapshot->phase = ZERO_SNAPSHOT_IMPORTING;
	zi_text_set(text, "no memory for a snapshot");
	r = make_tables(import, options);
	if (!r)
		r = reserve_all(import, tier, text);
	if (r) {
		zero_import_drop(import);
		return err_trace(r);
	}
	*ret_import = import;
	return 0;
}

/* See zero.h. */
void zero_import_drop(struct zero_import *import)
{
	assert(!import->put_count);
	if (import->snapshot)
		import->snapshot = snapshot_free(import->snapshot);
	free(import->hashes);
	free(import->hash_firsts);
	free(import->extent_bytes);
	free(import);
}
