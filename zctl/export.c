/* SPDX-License-Identifier: Apache-2.0 */
/* Fetching a snapshot from the daemon: its record, then its extents through windows that the daemon
 * fills. Every tile is compared with its checksum. */
#include "zctl/export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/text.h"
#include "common/wire/control.h"
#include "common/wire/geometry.h"
#include "kernels/hash.h"
#include "zctl/get.h"

/* A held step may have to be written first, when the state is in memory alone. */
#define OPEN_WORK_S 600u
#define READ_WORK_S 60u
/* No daemon of ours has larger ones, or more. */
#define WINDOW_BYTES_MAX (64u << 20)
#define WINDOWS_MAX      64u

static int refuse(const char *what)
{
	zctl_complain("the daemon sent an invalid answer: %s", what);
	return 1;
}

static int64_t *place_of(struct export_place *place, enum zi_plane plane)
{
	return plane == ZI_PLANE_PARAM ? &place->param : &place->state;
}

/* What the daemon does not name is never taken for zeros: of a job over several nodes another one
 * may have it, both planes of it or the state alone (zero1 and zero2 with parameters on NVMe). */
static int check_whole(struct export *export)
{
	export->here_count = 0;
	export->param_count = 0;
	for (uint32_t i = 0; i < export->model.unit_count; i++) {
		const struct model_unit *unit = &export->model.units[i];

		for (uint32_t k = 0; k < unit->subgroup_count; k++) {
			const struct export_place *place =
				&export->places[unit->subgroup_first + k];
			bool has_param = place->param != EXPORT_ABSENT;
			bool has_state = place->state != EXPORT_ABSENT;

			export->here_count += has_state;
			export->param_count += has_param;
			if ((has_param && has_state) || (!has_state && export->node_count > 1))
				continue;
			zctl_complain("job '%s': the daemon does not have %s of unit '%s', "
			              "subgroup %u; nothing was exported",
			              export->model.job,
			              !has_param ? "parameters" : "optimizer state", unit->name, k);
			return 1;
		}
	}
	return 0;
}

/* Documented in the header. */
int export_read_extents(struct export *export)
{
	const json_t *extents = json_object_get(export->model.record, "extents");
	size_t index;
	json_t *row;

	/* A daemon that does not say has no job over several nodes that could be exported. */
	export->node_count =
		(uint32_t)ZI_MAX(get_count(export->model.record, "node_count"), (uint64_t)1);
	export->node = (uint32_t)get_count(export->model.record, "node");
	if (export->node >= export->node_count || export->node_count > ZI_WORLD_MAX)
		return refuse("a node that does not exist");
	export->places = calloc(export->model.subgroup_count + 1ul, sizeof *export->places);
	if (!export->places)
		return refuse("no memory");
	for (uint32_t i = 0; i < export->model.subgroup_count; i++)
		export->places[i] = (struct export_place){ EXPORT_ABSENT, EXPORT_ABSENT };
	json_array_foreach(extents, index, row)
	{
		uint64_t words[4];
		const struct model_unit *unit;
		struct export_place *place;

		for (size_t i = 0; i < ZI_COUNT_OF(words); i++)
			words[i] = (uint64_t)json_integer_value(json_array_get(row, i));
		if (words[0] > ZI_PLANE_STATE || words[1] >= export->model.unit_count)
			return refuse("an extent of no unit");
		unit = &export->model.units[words[1]];
		if (words[2] >= unit->subgroup_count)
			return refuse("an extent of no subgroup");
		place = &export->places[unit->subgroup_first + words[2]];
		if (!words[3]) {
			*place_of(place, (enum zi_plane)words[0]) = EXPORT_ZEROS;
			continue;
		}
		if (words[3] != model_extent_bytes(&export->model,
		                                   zi_geometry_subgroup_elements(
							   unit->padded_count, (uint32_t)words[2]),
		                                   (enum zi_plane)words[0]) ||
		    words[3] > export->window_bytes)
			return refuse("an extent of the wrong length");
		*place_of(place, (enum zi_plane)words[0]) = (int64_t)index;
	}
	return check_whole(export);
}

static uint64_t longest_extent(const struct model *model)
{
	return ZI_MAX(model_extent_bytes(model, ZI_SUBGROUP_ELEMENTS, ZI_PLANE_PARAM),
	              model_extent_bytes(model, ZI_SUBGROUP_ELEMENTS, ZI_PLANE_STATE));
}

int export_open(struct export *export, const struct zctl_context *context, const char *source)
{
	char command[ZI_ADMIN_COMMAND_BYTES];
	json_t *record;
	void *windows;
	int fd = -1;

	*export = (struct export){ .context = context };
	if (snprintf(command, sizeof command, "export open %s", source) >= (int)sizeof command)
		return refuse("a name too long");
	zctl_catch_cancel();
	export->link = zctl_link_open(context);
	if (!export->link)
		return 1;
	record = zctl_link_ask(export->link, command, OPEN_WORK_S, &fd);
	if (!record)
		return 1;
	export->model.record = record; /* Owned from here on. */
	export->window_bytes = get_count(export->model.record, "window_bytes");
	export->window_count = (uint32_t)get_count(export->model.record, "window_count");
	if (fd < 0 || !export->window_bytes || export->window_bytes > WINDOW_BYTES_MAX ||
	    export->window_count < 2 || export->window_count > WINDOWS_MAX)
		return refuse("no window");
	windows = mmap(NULL, export->window_count * export->window_bytes, PROT_READ, MAP_SHARED, fd,
	               0);
	(void)close(fd); /* Mapped. */
	if (windows == MAP_FAILED)
		return refuse("a window that cannot be mapped");
	export->windows = windows;
	if (model_read(&export->model, record, "the daemon's answer"))
		return 1;
	/* For what is not there, so maybe longer than all that is. */
	export->zeros = calloc(1, longest_extent(&export->model));
	if (!export->zeros)
		return refuse("no memory");
	return export_read_extents(export);
}

void export_close(struct export *export)
{
	if (export->windows)
		(void)munmap((void *)(uintptr_t) export->windows,
		             export->window_count * export->window_bytes);
	free(export->zeros);
	free(export->places);
	model_free(&export->part);
	model_free(&export->model);
	export->link = zctl_link_close(export->link);
}

/* Every tile of an extent against its checksum. */
static int verify(const struct export *export, const json_t *answer, const uint8_t *bytes,
                  uint32_t unit, uint32_t subgroup, enum zi_plane plane)
{
	uint64_t total =
		zi_geometry_subgroup_elements(export->model.units[unit].padded_count, subgroup);
	uint32_t width = (uint32_t)model_extent_bytes(&export->model, 1, plane);
	const json_t *hashes = json_object_get(answer, "hashes");
	size_t tile = 0;

	for (uint64_t first = 0; first < total; first += ZI_TILE_ELEMENTS, tile++) {
		uint64_t begin = model_extent_bytes(&export->model, first, plane);
		uint64_t count = ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, total - first);
		uint64_t byte_count = model_extent_bytes(&export->model, count, plane);
		const char *word = json_string_value(json_array_get(hashes, tile));
		char got[20];

		(void)snprintf(
			got, sizeof got, "%016llx",
			(unsigned long long)kern_hash_tile(bytes + begin, byte_count, width));
		if (word && !strcmp(word, got))
			continue;
		zctl_complain("job '%s': %s of unit '%s', subgroup %u, is damaged: %llu bytes at "
		              "offset %llu of %s do not match their checksum; nothing was exported",
		              export->model.job,
		              plane == ZI_PLANE_PARAM ? "parameters" : "optimizer state",
		              export->model.units[unit].name, subgroup,
		              (unsigned long long)byte_count,
		              (unsigned long long)(get_count(answer, "offset_bytes") + begin),
		              get_word(answer, "path"));
		return 1;
	}
	return 0;
}

bool export_is_here(const struct export *export, uint32_t unit, uint32_t subgroup)
{
	uint32_t number = export->model.units[unit].subgroup_first + subgroup;

	return export->places[number].param != EXPORT_ABSENT;
}

static int64_t index_of(const struct export *export, const struct export_cursor *at)
{
	const struct export_place *place =
		&export->places[export->model.units[at->unit].subgroup_first + at->subgroup];

	return at->plane == ZI_PLANE_PARAM ? place->param : place->state;
}

/* Behind the last one: unit == unit_count. */
static void advance(const struct export *export, struct export_cursor *at)
{
	if (export->has_state && at->plane == ZI_PLANE_PARAM) {
		at->plane = ZI_PLANE_STATE;
		return;
	}
	at->plane = ZI_PLANE_PARAM;
	if (++at->subgroup < export->model.units[at->unit].subgroup_count)
		return;
	at->subgroup = 0;
	at->unit++;
}

/* The daemon reads on, as far as windows are free. */
static int read_ahead(struct export *export)
{
	while (export->ahead.unit < export->model.unit_count) {
		int64_t index = index_of(export, &export->ahead);
		char command[64];

		if (index >= 0) {
			if (export->read_count - export->free_count >= export->window_count)
				return 0;
			(void)snprintf(command, sizeof command, "export read %lld %u",
			               (long long)index,
			               (uint32_t)(export->read_count % export->window_count));
			if (zctl_link_tell(export->link, command))
				return 1;
			export->read_count++;
			export->told_count++;
		}
		advance(export, &export->ahead);
	}
	return 0;
}

/* What the next window holds, once it is here; NULL after saying why not. */
static json_t *wait_for_window(struct export *export, uint32_t *ret_window)
{
	uint32_t window = (uint32_t)(export->wait_count++ % export->window_count);
	char command[64];

	(void)snprintf(command, sizeof command, "export wait %u", window);
	if (zctl_link_tell(export->link, command))
		return NULL;
	for (; export->told_count; export->told_count--) {
		json_t *answer = zctl_link_hear(export->link, READ_WORK_S, NULL);

		if (!answer)
			return NULL;
		json_decref(answer);
	}
	*ret_window = window;
	return zctl_link_hear(export->link, READ_WORK_S, NULL);
}

int export_fetch(struct export *export, uint32_t unit, uint32_t subgroup, enum zi_plane plane,
                 const uint8_t **ret_bytes)
{
	const struct export_cursor at = { .unit = unit, .subgroup = subgroup, .plane = plane };
	const uint8_t *bytes;
	uint32_t window = 0;
	json_t *answer;
	int r;

	if (zctl_is_cancelled()) {
		zctl_complain("cancelled, nothing was exported");
		return 1;
	}
	export->done_bytes += model_extent_bytes(
		&export->model,
		zi_geometry_subgroup_elements(export->model.units[unit].padded_count, subgroup),
		plane);
	if (export->is_progress)
		zctl_show_progress(export->model.job, export->done_bytes, export->total_bytes);
	if (read_ahead(export))
		return 1;
	if (index_of(export, &at) < 0) {
		*ret_bytes = export->zeros;
		return 0;
	}
	answer = wait_for_window(export, &window);
	if (!answer)
		return 1;
	bytes = export->windows + window * export->window_bytes;
	r = verify(export, answer, bytes, unit, subgroup, plane);
	json_decref(answer);
	if (!r)
		*ret_bytes = bytes;
	return r;
}

void export_release(struct export *export)
{
	export->free_count = export->wait_count;
}
