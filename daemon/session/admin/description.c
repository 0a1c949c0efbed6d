/* SPDX-License-Identifier: Apache-2.0 */
/* What `load describe` brings, as a record (common/wire/import.h). Floor 6, any thread. Nothing
 * here trusts it. */
#include "daemon/session/admin/description.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "common/wire/import.h"
#include "daemon/session/session.h"

/* Reads a private copy from its front. */
struct cursor {
	const uint8_t *bytes;
	uint64_t rest_bytes;
};

/* NULL: there are fewer. */
static const void *take(struct cursor *cursor, uint64_t byte_count)
{
	const void *taken = cursor->bytes;

	if (byte_count > cursor->rest_bytes)
		return NULL;
	cursor->bytes += byte_count;
	cursor->rest_bytes -= byte_count;
	return taken;
}

static int cut_short(struct zi_text *text)
{
	return err_origin(zi_text_error(text, -EPROTO, "the description ends too early"));
}

static int read_layout(struct cursor *cursor, const struct zi_import_head *head,
                       struct catalog_job *record, struct zi_text *text)
{
	uint64_t count = (uint64_t)head->unit_count + head->param_count;
	const struct zi_layout_entry *entries = take(cursor, count * sizeof(*entries));

	if (!entries)
		return cut_short(text);
	for (uint64_t i = 0; i < count; i++) {
		const struct zi_layout_entry *entry = &entries[i];
		struct catalog_param *param = &record->params[record->param_count];
		int r = zi_check_layout_entry(entry, text);

		if (!r && entry->group)
			r = err_origin(zi_text_error(text, -EPROTO,
			                             "parameter '%s' has a parameter group: "
			                             "these belong to a start of a job, and "
			                             "are not stored",
			                             entry->name));
		if (r)
			return err_trace(r);
		if (entry->kind == ZI_LAYOUT_UNIT && record->unit_count < head->unit_count) {
			memcpy(record->units[record->unit_count++].name, entry->name,
			       sizeof(entry->name));
			continue;
		}
		if (entry->kind != ZI_LAYOUT_PARAM || !record->unit_count ||
		    record->param_count == head->param_count)
			return err_origin(zi_text_error(text, -EPROTO,
			                                "entry %llu ('%s') is out of place",
			                                (unsigned long long)i, entry->name));
		param->unit = record->unit_count - 1;
		param->dim_count = entry->dim_count;
		memcpy(param->name, entry->name, sizeof(param->name));
		memcpy(param->shape, entry->shape, sizeof(param->shape));
		record->param_count++;
	}
	return 0;
}

static int read_blobs(struct cursor *cursor, const struct zi_import_head *head,
                      struct catalog_job *record, struct zi_text *text)
{
	uint64_t seen = 0;

	for (uint32_t i = 0; i < head->blob_count; i++) {
		const struct zi_import_blob *blob = take(cursor, sizeof(*blob));
		const void *bytes;

		if (!blob || blob->bytes > ZI_BLOB_BYTES || blob->rank >= head->world_size ||
		    seen >> blob->rank & 1)
			return err_origin(zi_text_error(text, -EPROTO,
			                                "blob %u is of no rank, or too large", i));
		seen |= 1ull << blob->rank;
		bytes = take(cursor, zi_align_up(blob->bytes, ZI_IMPORT_ALIGN));
		if (!bytes)
			return cut_short(text);
		record->blobs[record->blob_count++] = (struct catalog_blob){
			.rank = blob->rank, .bytes = bytes, .byte_count = blob->bytes
		};
	}
	if (cursor->rest_bytes)
		return err_origin(zi_text_error(text, -EPROTO, "%llu bytes after the description",
		                                (unsigned long long)cursor->rest_bytes));
	return 0;
}

static int head_check(const struct zi_import_head *head, uint64_t byte_count, struct zi_text *text)
{
	if (head->magic != ZI_IMPORT_MAGIC || head->reserved || head->has_state > 1)
		return err_origin(
			zi_text_error(text, -EPROTO, "the description does not begin as one"));
	if (!head->world_size || head->world_size > ZI_WORLD_MAX ||
	    head->blob_count > head->world_size)
		return err_origin(zi_text_error(text, -EPROTO, "%u blobs of %u ranks",
		                                head->blob_count, head->world_size));
	/* Before anything is allocated for them. */
	if (((uint64_t)head->unit_count + head->param_count) * sizeof(struct zi_layout_entry) >
	    byte_count)
		return cut_short(text);
	return 0;
}

/* See description.h. */
uint64_t sess_description_bytes_max(const struct sess_limits *limits)
{
	uint64_t entry_count = (uint64_t)limits->units_max + limits->params_max;
	uint64_t blob_bytes =
		sizeof(struct zi_import_blob) + zi_align_up(ZI_BLOB_BYTES, ZI_IMPORT_ALIGN);
	uint64_t bytes = sizeof(struct zi_import_head) +
	                 entry_count * sizeof(struct zi_layout_entry) + ZI_WORLD_MAX * blob_bytes;

	return ZI_MIN(bytes, (uint64_t)ZI_IMPORT_BYTES_MAX);
}

/* See description.h. */
int sess_description_check_head(const struct zi_import_head *head, uint64_t byte_count,
                                const struct sess_limits *limits, struct zi_text *text)
{
	int r = head_check(head, byte_count - sizeof(*head), text);

	if (r)
		return err_trace(r);
	if (head->unit_count <= limits->units_max && head->param_count <= limits->params_max)
		return 0;
	return err_origin(zi_text_error(
		text, -E2BIG,
		"%u units, %u parameters: %u and %u are allowed (limits.units, limits.params)",
		head->unit_count, head->param_count, limits->units_max, limits->params_max));
}

static int read_record(struct cursor *cursor, const struct zi_import_head *head,
                       struct catalog_job *record, struct zi_text *text)
{
	int r;

	*record = (struct catalog_job){
		.world_size = head->world_size,
		.config = { .param_dtype = head->param_dtype,
		            .grad_dtype = head->grad_dtype,
		            .optimizer = head->optimizer,
		            .schedule = head->schedule,
		            .durability = ZI_DURABILITY_POWER },
		.step = head->step,
		.update_count = head->update_count,
		.beta1_power = head->beta1_power,
		.beta2_power = head->beta2_power,
	};
	record->units = calloc(head->unit_count + 1ul, sizeof(*record->units));
	record->params = calloc(head->param_count + 1ul, sizeof(*record->params));
	record->blobs = calloc(head->blob_count + 1ul, sizeof(*record->blobs));
	if (!record->units || !record->params || !record->blobs)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for a description"));
	r = read_layout(cursor, head, record, text);
	return r ? err_trace(r) : err_trace(read_blobs(cursor, head, record, text));
}

int sess_description_read(struct sess_description *description, const void *bytes,
                          uint64_t byte_count, struct zi_text *text)
{
	struct cursor cursor = { .bytes = bytes, .rest_bytes = byte_count };
	const struct zi_import_head *head = take(&cursor, sizeof(*head));
	int r;

	*description = (struct sess_description){ .has_state = false };
	if (!head)
		return cut_short(text);
	r = head_check(head, cursor.rest_bytes, text);
	if (r)
		return err_trace(r);
	description->has_state = head->has_state;
	return err_trace(read_record(&cursor, head, &description->record, text));
}

/* Also one that could not be read. */
void sess_description_free(struct sess_description *description)
{
	free(description->record.units);
	free(description->record.params);
	free(description->record.blobs);
	*description = (struct sess_description){ .has_state = false };
}
