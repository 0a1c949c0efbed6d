/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `export …`: a held snapshot's extents, one after the other, into windows that the client maps
 * (docs/ADMIN.md). The client writes the files, with its own rights. Floor 6, shard thread, but for
 * sess_export_drop().
 *
 * An export belongs to its connection: it ends with it. Two windows, so that the client writes one
 * out while the other is being filled.
 */
#include "daemon/session/admin/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"

struct sess_export {
	struct sess *session; /* while a question is out */
	struct zero_snapshot *held;
	struct tier_segment *window;
	uint64_t window_bytes; /* of one */
	struct zero_read read;
	struct zi_post post;
};

static void export_free(struct sess_export *export)
{
	zero_snapshot_release(export->held);
	export->window = tier_segment_unref(export->window);
	free(export);
}

static void export_free_posted(struct zi_post *post)
{
	export_free(container_of(post, struct sess_export, post));
}

/* The connection ends; nothing is out. Context: control thread. */
void sess_export_drop(struct sess *session)
{
	struct sess_export *export = session->export;

	if (!export)
		return;
	session->export = NULL;
	zi_loop_post(session->control->shard_loop, &export->post, export_free_posted);
}

/* ---- open ---- */

static json_t *answer_hex(const void *bytes, uint64_t byte_count)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *source = bytes;
	char *text = malloc(2 * byte_count + 1);
	json_t *word;

	if (!text)
		return NULL;
	for (uint64_t i = 0; i < byte_count; i++) {
		text[2 * i] = digits[source[i] >> 4];
		text[2 * i + 1] = digits[source[i] & 15];
	}
	word = json_stringn(text, 2 * byte_count);
	free(text);
	return word;
}

static json_t *answer_params(const struct catalog_job *record)
{
	json_t *params = json_array();

	for (uint32_t i = 0; i < record->param_count; i++) {
		const struct catalog_param *param = &record->params[i];
		json_t *object = json_object(), *shape = json_array();

		for (uint32_t k = 0; k < param->dim_count; k++)
			(void)json_array_append_new(shape, answer_integer(param->shape[k]));
		answer_word(object, "name", param->name);
		answer_number(object, "unit", param->unit);
		answer_put(object, "shape", shape);
		(void)json_array_append_new(params, object);
	}
	return params;
}

/* [plane, unit, subgroup, bytes, step] each. */
static json_t *answer_extents(const struct catalog_job *record)
{
	json_t *extents = json_array();

	for (uint32_t i = 0; i < record->extent_count; i++) {
		const struct catalog_extent *extent = &record->extents[i];
		const uint64_t words[] = { extent->plane, extent->unit, extent->subgroup,
			                   extent->extent.bytes, extent->step };
		json_t *row = json_array();

		for (size_t k = 0; k < ZI_COUNT_OF(words); k++)
			(void)json_array_append_new(row, answer_integer(words[k]));
		(void)json_array_append_new(extents, row);
	}
	return extents;
}

static json_t *answer_record(const struct sess_export *export)
{
	const struct catalog_job *record = zero_snapshot_record(export->held);
	const struct catalog_job_config *config = &record->config;
	json_t *answer = json_object(), *units = json_array(), *blobs = json_array();

	answer_word(answer, "job", record->name);
	answer_word(answer, "snapshot", record->snapshot);
	answer_put(answer, "step", json_integer(record->step));
	answer_number(answer, "update_count", record->update_count);
	/* Real numbers bit by bit. */
	answer_put(answer, "beta1_power", json_sprintf("%a", record->beta1_power));
	answer_put(answer, "beta2_power", json_sprintf("%a", record->beta2_power));
	answer_number(answer, "world_size", record->world_size);
	answer_word(answer, "param_dtype", zi_dtype_name((enum zi_dtype)config->param_dtype));
	answer_word(answer, "grad_dtype", zi_dtype_name((enum zi_dtype)config->grad_dtype));
	answer_word(answer, "optimizer", zi_optimizer_name((enum zi_optimizer)config->optimizer));
	answer_word(answer, "schedule", zi_schedule_name((enum zi_schedule)config->schedule));
	for (uint32_t i = 0; i < record->unit_count; i++)
		(void)json_array_append_new(units, json_string(record->units[i].name));
	for (uint32_t i = 0; i < record->blob_count; i++) {
		json_t *blob = json_object();

		answer_number(blob, "rank", record->blobs[i].rank);
		answer_put(blob, "bytes",
		           answer_hex(record->blobs[i].bytes, record->blobs[i].byte_count));
		(void)json_array_append_new(blobs, blob);
	}
	answer_put(answer, "units", units);
	answer_put(answer, "params", answer_params(record));
	answer_put(answer, "extents", answer_extents(record));
	answer_put(answer, "blobs", blobs);
	answer_number(answer, "window_bytes", export->window_bytes);
	return answer;
}

static int make_window(struct sess *session, struct sess_export *export, struct zi_text *text)
{
	const struct catalog_job *record = zero_snapshot_record(export->held);
	struct sess_shard *shard = session->control->shard;
	struct tier_account *account = zero_account(shard->zero, session->uid);
	int r;

	export->window_bytes = ZI_STORE_ALIGN_BYTES;
	for (uint32_t i = 0; i < record->extent_count; i++)
		export->window_bytes =
			ZI_MAX(export->window_bytes, record->extents[i].extent.bytes);
	if (!account)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for an account"));
	r = tier_segment_new(shard->ring_tier, account, "zinf-export", 2 * export->window_bytes,
	                     TIER_PAGES_SMALL, text, &export->window);
	if (!r)
		r = tier_holders_add(shard->holders, session->pid, session->pidfd, export->window);
	if (!r)
		r = tier_segment_readonly_fd(export->window, &session->reply_fd);
	return err_trace(r);
}

static void opened(struct zero_snapshot_op *op)
{
	struct sess_inquiry *inquiry = container_of(op, struct sess_inquiry, snapshot_op);
	struct sess *session = container_of(inquiry, struct sess, inquiry);
	struct sess_export *export;

	inquiry->result = op->result;
	inquiry->text = op->text;
	if (op->result) {
		sess_answered(session);
		return;
	}
	export = calloc(1, sizeof(*export));
	if (!export) {
		zero_snapshot_release(op->held);
		inquiry->result = zi_text_error(&inquiry->text, err_origin(-ENOMEM),
		                                "no memory for an export");
		sess_answered(session);
		return;
	}
	export->held = op->held;
	inquiry->result = make_window(session, export, &inquiry->text);
	if (inquiry->result) {
		session->reply_fd = -1;
		export_free(export);
	} else {
		inquiry->answer = answer_record(export);
		session->export = export;
	}
	sess_answered(session);
}

/* ---- read ---- */

/* What could not be read, and where it lies. */
static int read_failed(const struct sess_export *export, int error, struct zi_text *text)
{
	const struct catalog_job *record = zero_snapshot_record(export->held);
	const struct catalog_extent *extent = &record->extents[export->read.index];

	return zi_text_error(
		text, error,
		"job '%s': reading %s of unit '%.60s', subgroup %u, at offset %llu of "
		"%.60s: %s",
		record->name, extent->plane == ZI_PLANE_PARAM ? "parameters" : "optimizer state",
		record->units[extent->unit].name, extent->subgroup,
		(unsigned long long)extent->extent.offset_bytes,
		zero_snapshot_path(export->held, export->read.index), zi_err_name(error));
}

static void answer_read(struct sess_export *export)
{
	const struct catalog_job *record = zero_snapshot_record(export->held);
	const struct catalog_extent *extent = &record->extents[export->read.index];
	struct sess_inquiry *inquiry = &export->session->inquiry;
	json_t *answer, *hashes;

	if (export->read.result) {
		inquiry->result = read_failed(export, export->read.result, &inquiry->text);
		sess_answered(export->session);
		return;
	}
	answer = json_object();
	hashes = json_array();
	for (uint32_t i = 0; i < extent->hash_count; i++)
		(void)json_array_append_new(
			hashes, json_sprintf("%016llx", (unsigned long long)extent->hashes[i]));
	answer_put(answer, "hashes", hashes);
	answer_word(answer, "path", zero_snapshot_path(export->held, export->read.index));
	answer_number(answer, "offset_bytes", extent->extent.offset_bytes);
	inquiry->answer = answer;
	sess_answered(export->session);
}

static void read_done(struct zero_read *read)
{
	answer_read(container_of(read, struct sess_export, read));
}

static int read_start(struct sess *session, struct sess_inquiry *inquiry)
{
	struct sess_export *export = session->export;
	const struct catalog_job *record;
	int r;

	if (session->control->shard->is_stopping)
		return zi_text_error(&inquiry->text, err_origin(-ESHUTDOWN), "%s",
		                     session->control->shard->stop_reason);
	if (!export)
		return zi_text_error(&inquiry->text, err_origin(-EINVAL),
		                     "'export read' without 'export open'");
	record = zero_snapshot_record(export->held);
	if (inquiry->index >= record->extent_count || inquiry->window > 1 ||
	    !record->extents[inquiry->index].extent.bytes)
		return zi_text_error(&inquiry->text, err_origin(-EINVAL),
		                     "extent %u of %u, window %u of 2: no such, or without bytes",
		                     inquiry->index, record->extent_count, inquiry->window);
	export->session = session;
	export->read = (struct zero_read){
		.held = export->held,
		.index = inquiry->index,
		.buffer = (char *)export->window->region.base +
		          inquiry->window * export->window_bytes,
		.done = read_done,
	};
	r = zero_snapshot_read(&export->read);
	return r ? err_trace(read_failed(export, r, &inquiry->text)) : 0;
}

/* Answered by sess_answered(), possibly before this returns. */
void sess_answer_export(struct sess_shard *shard, struct sess *session)
{
	struct sess_inquiry *inquiry = &session->inquiry;
	struct zero_snapshot_op *op = &inquiry->snapshot_op;

	if (inquiry->question == SESS_ASK_EXPORT_OPEN && !session->export) {
		*op = (struct zero_snapshot_op){
			.done = opened,
			.uid = session->uid,
			.is_admin = session->uid == 0 || session->uid == geteuid(),
		};
		(void)zi_copy_name(op->job, sizeof(op->job), inquiry->job); /* As long. */
		(void)zi_copy_name(op->name, sizeof(op->name), inquiry->name);
		zero_snapshot_hold(shard->zero, op);
		return;
	}
	if (inquiry->question == SESS_ASK_EXPORT_OPEN)
		inquiry->result = zi_text_error(&inquiry->text, err_origin(-EBUSY),
		                                "this connection exports already");
	else
		inquiry->result = read_start(session, inquiry);
	if (inquiry->result)
		sess_answered(session);
}
