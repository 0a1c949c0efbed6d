/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending a snapshot to the daemon: its description, then its extents, several at once, each
 * through a window that the two share. The daemon compares each with the digest that goes along, so
 * that what reaches the store is what was read and checked here.
 */
#include "zctl/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/wire/geometry.h"
#include "common/wire/import.h"
#include "common/wire/region.h"
#include "kernels/hash.h"
#include "zctl/get.h"

/* The disk may be busy with others' steps. */
#define PUT_WORK_S 60u
#define END_WORK_S 600u
/* No daemon of ours has larger windows, or more. */
#define WINDOW_BYTES_MAX (64u << 20)
#define WINDOWS_MAX      64u

/* ---- the description ---- */

struct description {
	uint8_t *bytes;
	uint64_t byte_count, capacity;
};

/* Zeroed room at its end; NULL: no memory. */
static void *append(struct description *description, uint64_t byte_count)
{
	uint64_t wanted = description->byte_count + byte_count;
	uint8_t *grown;

	if (wanted > description->capacity) {
		grown = realloc(description->bytes, 2 * wanted);
		if (!grown)
			return NULL;
		description->bytes = grown;
		description->capacity = 2 * wanted;
	}
	grown = description->bytes + description->byte_count;
	memset(grown, 0, byte_count);
	description->byte_count = wanted;
	return grown;
}

static int describe_layout(struct description *description, const struct model *model)
{
	struct zi_layout_entry *entry;

	for (uint32_t i = 0; i < model->unit_count; i++) {
		const struct model_unit *unit = &model->units[i];

		entry = append(description, sizeof *entry);
		if (!entry)
			return 1;
		entry->kind = ZI_LAYOUT_UNIT;
		(void)zi_copy_name(entry->name, sizeof entry->name, unit->name); /* Checked. */
		for (uint32_t k = 0; k < unit->param_count; k++) {
			const struct model_param *param = &model->params[unit->param_first + k];

			entry = append(description, sizeof *entry);
			if (!entry)
				return 1;
			entry->kind = ZI_LAYOUT_PARAM;
			entry->dim_count = param->dim_count;
			(void)zi_copy_name(entry->name, sizeof entry->name, param->name);
			memcpy(entry->shape, param->shape, sizeof entry->shape);
		}
	}
	return 0;
}

static int nibble(char digit)
{
	const char *digits = "0123456789abcdef";
	const char *place = digit ? strchr(digits, digit) : NULL;

	return place ? (int)(place - digits) : -1;
}

static int describe_blob(struct description *description, const json_t *json)
{
	const char *word = get_word(json, "bytes");
	size_t byte_count = strlen(word) / 2;
	struct zi_import_blob *blob =
		append(description, sizeof *blob + zi_align_up(byte_count, ZI_IMPORT_ALIGN));
	uint8_t *bytes = (uint8_t *)(blob + 1);

	if (!blob)
		return 1;
	blob->rank = (uint32_t)get_count(json, "rank");
	blob->bytes = (uint32_t)byte_count;
	for (size_t i = 0; i < byte_count; i++) {
		int high = nibble(word[2 * i]), low = nibble(word[2 * i + 1]);

		if (high < 0 || low < 0)
			return 1;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return strlen(word) % 2 != 0;
}

static int describe(struct description *description, const struct model *model,
                    const struct load_marks *marks)
{
	struct zi_import_head *head = append(description, sizeof *head);
	size_t index;
	json_t *blob;

	if (!head)
		return 1;
	*head = (struct zi_import_head){
		.magic = ZI_IMPORT_MAGIC,
		.step = marks->step,
		.update_count = marks->update_count,
		.beta1_power = marks->beta1_power,
		.beta2_power = marks->beta2_power,
		.world_size = marks->world_size,
		.param_dtype = model->dtype,
		.grad_dtype = model->grad_dtype,
		.optimizer = model->optimizer,
		.schedule = model->schedule,
		.has_state = marks->has_state,
		.unit_count = model->unit_count,
		.param_count = model->param_count,
		.blob_count = (uint32_t)json_array_size(marks->blobs),
	};
	if (describe_layout(description, model))
		return 1;
	json_array_foreach(marks->blobs, index, blob)
	{
		if (describe_blob(description, blob))
			return 1;
	}
	return 0;
}

/* ---- the link ---- */

static int refuse(const char *what)
{
	zctl_complain("%s; nothing was loaded", what);
	return 1;
}

/* An answer that says no more than that it went well. */
static int ask(struct load *load, const char *command, unsigned work_s)
{
	json_t *answer = zctl_link_ask(load->link, command, work_s, NULL);

	if (!answer)
		return refuse("the daemon did not take it");
	json_decref(answer);
	return 0;
}

static int open_windows(struct load *load, const char *target, uint64_t byte_count)
{
	char command[ZI_ADMIN_COMMAND_BYTES];
	void *windows = NULL;
	json_t *answer;
	int fd = -1, r;

	if (snprintf(command, sizeof command, "load open %s %llu", target,
	             (unsigned long long)byte_count) >= (int)sizeof command)
		return refuse("a name too long");
	answer = zctl_link_ask(load->link, command, 0, &fd);
	if (!answer)
		return refuse("the daemon did not take it");
	load->window_bytes = get_count(answer, "window_bytes");
	load->window_count = (uint32_t)get_count(answer, "window_count");
	json_decref(answer);
	/* The description lies across the windows. */
	load->mapped_bytes =
		ZI_MAX(load->window_count * load->window_bytes, zi_align_up(byte_count, 4096));
	r = fd < 0 || !load->window_count || load->window_count > WINDOWS_MAX ||
	    load->window_bytes > WINDOW_BYTES_MAX ||
	    zi_region_map(fd, load->mapped_bytes, true, &windows);
	if (fd >= 0)
		(void)close(fd); /* Mapped, or not. */
	if (r)
		return refuse("the daemon gave no windows to write into");
	load->windows = windows;
	return 0;
}

int load_open(struct load *load, const struct zctl_context *context, const char *target,
              const struct model *model, const struct load_marks *marks)
{
	struct description description = { 0 };
	uint64_t width = zi_dtype_bytes(model->dtype) + (marks->has_state ? model->state_width : 0);
	char command[64];
	int r;

	*load = (struct load){ .context = context };
	for (uint32_t i = 0; i < model->unit_count; i++)
		load->total_bytes += model->units[i].padded_count * width;
	if (describe(&description, model, marks)) {
		free(description.bytes);
		return refuse(
			"it cannot be described: no memory, or a blob that is not hexadecimal");
	}
	load->link = zctl_link_open(context);
	r = load->link ? open_windows(load, target, description.byte_count) : 1;
	if (!r) {
		memcpy(load->windows, description.bytes, description.byte_count);
		(void)snprintf(command, sizeof command, "load describe %llu",
		               (unsigned long long)description.byte_count);
		r = ask(load, command, 0);
	}
	free(description.bytes);
	return r;
}

/* What was sent first is in the store. */
static int wait_for_window(struct load *load)
{
	char command[64];

	(void)snprintf(command, sizeof command, "load wait %u",
	               (uint32_t)(load->wait_count++ % load->window_count));
	if (zctl_link_tell(load->link, command))
		return refuse("the daemon did not take it");
	for (load->told_count++; load->told_count; load->told_count--) {
		json_t *answer = zctl_link_hear(load->link, PUT_WORK_S, NULL);

		if (!answer)
			return refuse("the daemon did not take it");
		json_decref(answer);
	}
	return 0;
}

uint8_t *load_window(struct load *load)
{
	if (load->put_count - load->wait_count == load->window_count && wait_for_window(load))
		return NULL;
	return load->windows + load->put_count % load->window_count * load->window_bytes;
}

int load_put(struct load *load, const struct model *model, uint32_t unit, uint32_t subgroup,
             enum zi_plane plane)
{
	uint64_t total = zi_geometry_subgroup_elements(model->units[unit].padded_count, subgroup);
	uint64_t hashes[ZI_SUBGROUP_ELEMENTS / ZI_TILE_ELEMENTS];
	uint64_t tile_bytes = model_extent_bytes(model, ZI_TILE_ELEMENTS, plane);
	uint64_t bytes = model_extent_bytes(model, total, plane);
	uint32_t window = (uint32_t)(load->put_count % load->window_count);
	const uint8_t *source = load->windows + window * load->window_bytes;
	uint32_t count = 0;
	char command[64];

	if (zctl_is_cancelled())
		return refuse("cancelled");
	for (uint64_t first = 0; first < bytes; first += tile_bytes)
		hashes[count++] = kern_hash_tile(source + first, ZI_MIN(tile_bytes, bytes - first),
		                                 (uint32_t)(tile_bytes / ZI_TILE_ELEMENTS));
	(void)snprintf(command, sizeof command, "load put %u %u %016llx",
	               2 * (model->units[unit].subgroup_first + subgroup) +
	                       (plane == ZI_PLANE_STATE),
	               window, (unsigned long long)kern_hash(hashes, count * sizeof hashes[0]));
	if (zctl_link_tell(load->link, command))
		return refuse("the daemon did not take it");
	load->put_count++;
	load->told_count++;
	load->done_bytes += bytes;
	if (load->is_progress)
		zctl_show_progress("loading", load->done_bytes, load->total_bytes);
	return 0;
}

int load_end(struct load *load, json_t **ret_answer)
{
	while (load->wait_count < load->put_count)
		if (wait_for_window(load))
			return 1;
	*ret_answer = zctl_link_ask(load->link, "load end", END_WORK_S, NULL);
	return *ret_answer ? 0 : refuse("the daemon did not take it");
}

void load_close(struct load *load)
{
	if (load->windows)
		(void)zi_region_unmap(load->windows, load->mapped_bytes);
	load->link = zctl_link_close(load->link);
}
