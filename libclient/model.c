/* SPDX-License-Identifier: Apache-2.0 */
/* The model: units and parameters as they are told, and found again in memory. Floor 2. */
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/wire/check.h"
#include "common/wire/geometry.h"
#include "libclient/client.h"

/* Growing arrays begin here: a small transformer. */
#define MODEL_CAPACITY_MIN 64u
/* The daemon's limits are lower; this one keeps 32-bit arithmetic right. */
#define MODEL_ENTRIES_MAX (1u << 24)

/* Room for one more in an array of @item_bytes each. */
static int grow(struct zinf *zinf, void **array, uint32_t count, uint32_t *capacity,
                size_t item_bytes)
{
	uint32_t wanted = *capacity ? *capacity * 2 : MODEL_CAPACITY_MIN;
	void *grown;

	if (count < *capacity)
		return 0;
	if (wanted > MODEL_ENTRIES_MAX)
		return zi_client_error(zinf, -E2BIG, "more than %u units or parameters",
		                       MODEL_ENTRIES_MAX / 2);
	grown = realloc(*array, wanted * item_bytes);
	if (!grown)
		return zi_client_error(zinf, -ENOMEM, "no memory for %u units or parameters",
		                       wanted);
	*array = grown;
	*capacity = wanted;
	return 0;
}

int zi_client_enter_forming(struct zinf *zinf, const char *function)
{
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (zinf->is_materialized || zinf->is_layout_sent || zinf->layout_packets)
		return zi_client_error(zinf, -EINVAL, "%s() after zinf_materialize()", function);
	return 0;
}

int zi_client_put_name(struct zinf *zinf, char *target, const char *name)
{
	if (name && zi_copy_name(target, ZI_PARAM_NAME_BYTES, name) == 0)
		return 0;
	return zi_client_error(zinf, -EINVAL, "the name '%.80s' has more than %u bytes", name,
	                       ZI_PARAM_NAME_BYTES - 1);
}

int zinf_unit_add(struct zinf *zinf, const char *name, uint32_t *ret_unit)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, name, name);
	ZI_CLIENT_NEED(zinf, ret_unit, ret_unit);
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };
	struct zi_client_unit *unit;
	int r;

	r = zi_client_enter_forming(zinf, __func__);
	if (r)
		return err_trace(r);
	r = zi_client_put_name(zinf, entry.name, name);
	if (r)
		return err_trace(r);
	r = zi_check_layout_entry(&entry, &zinf->text);
	if (r)
		return err_trace(zi_client_tell(zinf, r, &zinf->text));
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		if (strcmp(zinf->units[i].name, name) == 0)
			return zi_client_error(zinf, -EINVAL, "two units are called '%s'", name);
	r = grow(zinf, (void **)&zinf->units, zinf->unit_count, &zinf->unit_capacity,
	         sizeof(*zinf->units));
	if (r)
		return err_trace(r);
	unit = &zinf->units[zinf->unit_count];
	memset(unit, 0, sizeof(*unit));
	memcpy(unit->name, entry.name, sizeof(unit->name));
	unit->set = zinf->set;
	unit->param_first = zinf->param_count;
	*ret_unit = zinf->unit_count++;
	return 0;
}

int zinf_param_add(struct zinf *zinf, const char *name, uint32_t dim_count, const uint64_t *shape,
                   uint32_t *ret_param)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, name, name);
	ZI_CLIENT_NEED(zinf, shape, shape || !dim_count);
	ZI_CLIENT_NEED(zinf, ret_param, ret_param);
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM, .dim_count = dim_count };
	struct zi_client_unit *unit;
	uint64_t element_count;
	int r;

	r = zi_client_enter_forming(zinf, __func__);
	if (r)
		return err_trace(r);
	if (!zinf->unit_count)
		return zi_client_error(zinf, -EINVAL,
		                       "zinf_unit_add() comes before its parameters");
	if (dim_count > ZI_PARAM_DIMS_MAX || (dim_count && !shape))
		return zi_client_error(zinf, -EINVAL, "%u dimensions: at most %u, with a shape",
		                       dim_count, ZI_PARAM_DIMS_MAX);
	r = zi_client_put_name(zinf, entry.name, name);
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < dim_count; i++)
		entry.shape[i] = shape[i];
	r = zi_check_layout_entry(&entry, &zinf->text);
	if (r)
		return err_trace(zi_client_tell(zinf, r, &zinf->text));
	r = zi_geometry_elements(entry.shape, dim_count, &element_count);
	if (r)
		return err_trace(r);
	r = grow(zinf, (void **)&zinf->params, zinf->param_count, &zinf->param_capacity,
	         sizeof(*zinf->params));
	if (r)
		return err_trace(r);
	unit = &zinf->units[zinf->unit_count - 1];
	if (unit->element_count + element_count > UINT64_MAX / 64) /* bytes of any plane fit */
		return zi_client_error(zinf, -EINVAL, "unit '%s' has too many elements",
		                       unit->name);
	zinf->params[zinf->param_count] = (struct zi_client_param){
		.entry = entry,
		.unit = zinf->unit_count - 1,
		.element_offset = unit->element_count,
	};
	unit->element_count += element_count;
	unit->param_count++;
	*ret_param = zinf->param_count++;
	return 0;
}

int zinf_param_group(struct zinf *zinf, uint32_t param, uint32_t group)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	uint32_t group_count = ZI_MAX(zinf->training.group_count, 1u);
	int r = zi_client_enter_forming(zinf, __func__);

	static_assert(ZINF_GROUP_FROZEN == ZI_LAYOUT_FROZEN, "it travels as it is");
	if (r)
		return err_trace(r);
	if (param >= zinf->param_count)
		return zi_client_error(zinf, -EINVAL, "parameter %u of %u", param,
		                       zinf->param_count);
	if (group >= group_count && group != ZINF_GROUP_FROZEN)
		return zi_client_error(zinf, -EINVAL,
		                       "parameter '%s' cannot be of group %u: group_count of the "
		                       "options is %u",
		                       zinf->params[param].entry.name, group, group_count);
	if (group && !(zinf->features & ZI_FEATURE_TRAINING))
		return zi_client_error(
			zinf, -EOPNOTSUPP,
			"zinfd at %s does not support parameter groups: use a newer zinfd",
			zinf->path);
	zinf->params[param].entry.group = (uint16_t)group;
	return 0;
}

/* Whether calls on @unit make sense yet. Return: 0, -EINVAL, or how the session ended. */
int zi_client_check_unit(struct zinf *zinf, uint32_t unit)
{
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (!zinf->is_materialized)
		return zi_client_error(zinf, -EINVAL, "call zinf_materialize() first");
	if (unit >= zinf->unit_count)
		return zi_client_error(zinf, -EINVAL, "unit %u of %u", unit, zinf->unit_count);
	return 0;
}

int64_t zinf_committed_step(const struct zinf *zinf)
{
	ZI_CLIENT_NEED(NULL, zinf, zinf);
	return zinf->committed_step;
}

int64_t zinf_lost_step(const struct zinf *zinf)
{
	ZI_CLIENT_NEED(NULL, zinf, zinf);
	return zinf->lost_step;
}

int64_t zinf_update_count(const struct zinf *zinf)
{
	ZI_CLIENT_NEED(NULL, zinf, zinf);
	return zinf->update_count;
}

const void *zinf_param_data(const struct zinf *zinf, uint32_t param)
{
	if (!zinf)
		return NULL;
	const struct zi_client_param *place;

	if (!zinf->is_materialized || param >= zinf->param_count)
		return NULL;
	place = &zinf->params[param];
	return (const char *)zinf->param_base + zinf->units[place->unit].param_offset_bytes +
	       place->element_offset *
	               zi_dtype_bytes((enum zi_dtype)zinf->attach.config.param_dtype);
}

bool zinf_param_is_resident(const struct zinf *zinf, uint32_t param)
{
	const struct zi_client_unit *unit;

	if (!zinf || !zinf->is_materialized || param >= zinf->param_count)
		return false;
	unit = &zinf->units[zinf->params[param].unit];
	return (unit->unshard_count && !unit->is_part && !zinf->gpu) || unit->is_writable;
}

void *zinf_grad_data(const struct zinf *zinf, uint32_t param)
{
	if (!zinf)
		return NULL;
	const struct zi_client_param *place;

	if (!zinf->is_materialized || param >= zinf->param_count)
		return NULL;
	place = &zinf->params[param];
	if (!zi_client_trains(zinf, &zinf->units[place->unit]) ||
	    zi_training_is_forward_only(&zinf->training))
		return NULL;
	return (char *)zinf->grad_base + zinf->units[place->unit].grad_offset_bytes +
	       place->element_offset *
	               zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
}
