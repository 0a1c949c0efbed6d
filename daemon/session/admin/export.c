/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `export …`: a held snapshot's extents, several at once, into windows that the client maps
 * (docs/ANSWERS.md). The client writes the files, with its own rights. Floor 6, shard thread;
 * sess_export_drop() says its own.
 *
 * An export belongs to its connection: it ends with it, and with what is being read then. Each
 * window is for itself:
 *
 *            read                the disk            wait
 *      FREE ──────▶ READING ──────────────▶ HERE ──────────▶ FREE
 *                      └─ wait: answered when it is here ─────▲
 */
#include "daemon/session/admin/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/catalog/catalog.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"

enum window_state { WINDOW_FREE = 0, WINDOW_READING, WINDOW_HERE };

struct export_window {
	struct sess_export *export;
	enum window_state state;
	bool is_awaited; /* the question that is out is about it */
	struct zero_read read;
};

struct sess_export {
	struct sess_shard *shard;
	struct sess *session; /* while a question is out */
	struct zero_snapshot *held;
	struct tier_segment *segment; /* of all windows; NULL: the step is held, no more */
	int readonly_fd;              /* of the segment, until the answer to `open` is out; -1 */
	uint64_t window_bytes;        /* of one */
	struct export_window windows[SESS_WINDOWS];
	uint32_t reading_count;
	bool is_dropped; /* freed when nothing is being read */
	struct zi_post post;
	struct dev_task task; /* of `open`, and of the end */
	int build_result;
};

static void export_free(struct sess_export *export)
{
	assert(!export->reading_count);
	if (export->held)
		zero_snapshot_release(export->held);
	export->readonly_fd = zi_close(export->readonly_fd);
	export->segment = tier_segment_unref(export->segment);
	free(export);
}

/* Context: a thread of the worker. */
static void discard(struct dev_task *task)
{
	tier_segment_discard(container_of(task, struct sess_export, task)->segment);
}

static void discarded(struct dev_task *task)
{
	export_free(container_of(task, struct sess_export, task));
}

/* Nothing is being read: what is held is let go, and the worker gives back the windows. A daemon
 * that stops leaves the pages to zctl, which may still copy from them. */
static void export_end(struct sess_export *export)
{
	if (export->shard->ring_tier->is_stopping || !export->segment) {
		export_free(export);
		return;
	}
	zero_snapshot_release(zi_steal(export->held));
	export->task =
		(struct dev_task){ .run = discard, .done = discarded, .loop = export->shard->loop };
	dev_submit(export->shard->worker, &export->task);
}

static void export_drop_posted(struct zi_post *post)
{
	struct sess_export *export = container_of(post, struct sess_export, post);

	export->is_dropped = true;
	if (!export->reading_count)
		export_end(export);
}

/* The connection ends; no question is out. Context: control thread. */
void sess_export_drop(struct sess *session)
{
	struct sess_export *export = session->export;

	if (!export)
		return;
	session->export = NULL;
	zi_loop_post(session->control->shard_loop, &export->post, export_drop_posted);
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

/* Of a job over several nodes: which of them this is, where its ranks were, and the name of the
 * commit, which is the same on all. */
static void answer_nodes(json_t *answer, const struct catalog_job *record)
{
	const struct catalog_placement *placement = &record->placement;
	json_t *nodes;

	if (placement->node_count <= 1)
		return;
	nodes = json_array();
	for (uint32_t i = 0; i < record->world_size; i++)
		(void)json_array_append_new(nodes, answer_integer(placement->nodes[i]));
	answer_number(answer, "node", placement->node);
	answer_number(answer, "node_count", placement->node_count);
	answer_put(answer, "nodes", nodes);
	answer_put(answer, "commit",
	           json_sprintf("%016llx-%llu", (unsigned long long)record->line,
	                        (unsigned long long)record->number));
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
	answer_nodes(answer, record);
	answer_word(answer, "param_dtype", zi_dtype_name((enum zi_dtype)config->param_dtype));
	answer_word(answer, "grad_dtype", zi_dtype_name((enum zi_dtype)config->grad_dtype));
	answer_word(answer, "optimizer", zi_optimizer_name((enum zi_optimizer)config->optimizer));
	answer_word(answer, "grad_reduction", zi_schedule_name((enum zi_schedule)config->schedule));
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
	answer_number(answer, "window_count", SESS_WINDOWS);
	return answer;
}

/* Pays for the windows; a thread of the worker makes them. */
static int charge_windows(struct sess *session, struct sess_export *export, struct zi_text *text)
{
	const struct catalog_job *record = zero_snapshot_record(export->held);
	struct sess_shard *shard = session->control->shard;
	struct tier_account *account = zero_account(shard->zero, session->uid);

	export->window_bytes = ZI_STORE_ALIGN_BYTES;
	for (uint32_t i = 0; i < record->extent_count; i++)
		export->window_bytes =
			ZI_MAX(export->window_bytes, record->extents[i].extent.bytes);
	if (!account)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for an account"));
	return err_trace(tier_segment_charge(shard->ring_tier, account, "zinf-export",
	                                     SESS_WINDOWS * export->window_bytes,
	                                     TIER_PAGES_COLLAPSED, text, &export->segment));
}

/* Windows, and the record as text. Nothing of it changes while it is held, but where its extents
 * lie, which is not told. Context: a thread of the worker. */
static void build(struct dev_task *task)
{
	struct sess_export *export = container_of(task, struct sess_export, task);
	struct sess_inquiry *inquiry = &export->session->inquiry;

	export->build_result = tier_segment_build(export->segment, &inquiry->text);
	if (export->build_result)
		return;
	inquiry->answer = answer_record(export);
	sess_write_out(export->session);
	sess_free_answer(export->session);
}

static void built(struct dev_task *task)
{
	struct sess_export *export = container_of(task, struct sess_export, task);
	struct sess *session = export->session;
	struct sess_inquiry *inquiry = &session->inquiry;
	int r = export->build_result;

	if (!r)
		r = tier_segment_readonly_fd(export->segment, &export->readonly_fd);
	if (!r)
		session->reply_fd = export->readonly_fd;
	inquiry->result = r;
	if (r) {
		zi_freep(&session->reply);
		session->export = NULL;
		export_free(export);
	}
	sess_answered(session);
}

/* Pays for the windows and has them built. */
static void build_windows(struct sess *session, struct sess_export *export)
{
	struct sess_inquiry *inquiry = &session->inquiry;

	inquiry->result = charge_windows(session, export, &inquiry->text);
	if (inquiry->result) {
		session->export = NULL;
		export_free(export);
		sess_answered(session);
		return;
	}
	export->task =
		(struct dev_task){ .run = build, .done = built, .loop = export->shard->loop };
	dev_submit(export->shard->worker, &export->task);
}

/* The record is held. Where it may have taken long, the rest waits for its turn. */
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
	export->readonly_fd = -1;
	export->shard = session->control->shard;
	export->session = session;
	session->export = export;
	if (inquiry->lane)
		build_windows(session, export);
	else
		zi_loop_post(session->control->loop, &session->post, inquiry->held);
}

/* ---- read, wait ---- */

/* What could not be read, and where it lies. */
static int read_failed(const struct sess_export *export, uint32_t index, int error,
                       struct zi_text *text)
{
	const struct catalog_job *record = zero_snapshot_record(export->held);
	const struct catalog_extent *extent = &record->extents[index];

	return zi_text_error(text, error,
	                     "job '%s': reading %s of unit '%.60s', subgroup %u, at offset %llu of "
	                     "%.60s: %s",
	                     record->name,
	                     extent->plane == ZI_PLANE_PARAM ? "parameters" : "optimizer state",
	                     record->units[extent->unit].name, extent->subgroup,
	                     (unsigned long long)extent->extent.offset_bytes,
	                     zero_snapshot_path(export->held, index), zi_err_name(error));
}

/* The window is the client's; it is free for the next read. */
static void answer_window(struct export_window *window)
{
	const struct sess_export *export = window->export;
	const struct catalog_job *record = zero_snapshot_record(export->held);
	const struct catalog_extent *extent = &record->extents[window->read.index];
	struct sess_inquiry *inquiry = &export->session->inquiry;
	json_t *answer, *hashes;

	assert(window->state == WINDOW_HERE);
	window->state = WINDOW_FREE;
	window->is_awaited = false;
	if (window->read.result) {
		inquiry->result = read_failed(export, window->read.index, window->read.result,
		                              &inquiry->text);
		sess_answered(export->session);
		return;
	}
	answer = json_object();
	hashes = json_array();
	for (uint32_t i = 0; i < extent->hash_count; i++)
		(void)json_array_append_new(
			hashes, json_sprintf("%016llx", (unsigned long long)extent->hashes[i]));
	answer_put(answer, "hashes", hashes);
	answer_word(answer, "path", zero_snapshot_path(export->held, window->read.index));
	answer_number(answer, "offset_bytes", extent->extent.offset_bytes);
	inquiry->answer = answer;
	sess_answered(export->session);
}

static void read_done(struct zero_read *read)
{
	struct export_window *window = container_of(read, struct export_window, read);
	struct sess_export *export = window->export;

	window->state = WINDOW_HERE;
	export->reading_count--;
	if (window->is_awaited)
		answer_window(window);
	else if (export->is_dropped && !export->reading_count)
		export_end(export);
}

static int read_start(struct sess_export *export, struct sess_inquiry *inquiry)
{
	const struct catalog_job *record = zero_snapshot_record(export->held);
	struct export_window *window = &export->windows[inquiry->window];
	int r;

	if (inquiry->index >= record->extent_count || !record->extents[inquiry->index].extent.bytes)
		return zi_text_error(&inquiry->text, err_origin(-EINVAL),
		                     "extent %u of %u: no such, or without bytes", inquiry->index,
		                     record->extent_count);
	if (window->state != WINDOW_FREE)
		return zi_text_error(&inquiry->text, err_origin(-EBUSY),
		                     "window %u holds extent %u, which was not waited for",
		                     inquiry->window, window->read.index);
	window->export = export;
	window->read = (struct zero_read){
		.held = export->held,
		.index = inquiry->index,
		.buffer = (char *)export->segment->region.base +
		          inquiry->window * export->window_bytes,
		.done = read_done,
	};
	r = zero_snapshot_read(&window->read);
	if (r)
		return err_trace(read_failed(export, inquiry->index, r, &inquiry->text));
	window->state = WINDOW_READING;
	export->reading_count++;
	inquiry->answer = json_object();
	return 0;
}

/* 0: answer_window() follows, or has run. */
static int wait_for(struct sess_export *export, struct sess_inquiry *inquiry)
{
	struct export_window *window = &export->windows[inquiry->window];

	if (window->state == WINDOW_FREE)
		return zi_text_error(&inquiry->text, err_origin(-EINVAL),
		                     "window %u: nothing is being read into it", inquiry->window);
	window->is_awaited = true;
	if (window->state == WINDOW_HERE)
		answer_window(window);
	return 0;
}

/* Whether the question makes sense here. */
static int window_check(const struct sess *session, struct sess_inquiry *inquiry)
{
	const struct sess_shard *shard = session->control->shard;

	if (shard->is_stopping)
		return zi_text_error(&inquiry->text, err_origin(-ESHUTDOWN), "%s",
		                     shard->stop_reason);
	if (!session->export)
		return zi_text_error(&inquiry->text, err_origin(-EINVAL),
		                     "an export begins with 'export open'");
	if (inquiry->window >= SESS_WINDOWS)
		return zi_text_error(&inquiry->text, err_origin(-EINVAL), "window %u: there are %u",
		                     inquiry->window, SESS_WINDOWS);
	return 0;
}

/* 0: answered, or to be answered. */
static int ask_window(struct sess *session, struct sess_inquiry *inquiry)
{
	int r = window_check(session, inquiry);

	if (r)
		return err_trace(r);
	/* The client has the answer to `open`, and with it the descriptor. */
	session->export->readonly_fd = zi_close(session->export->readonly_fd);
	session->export->session = session;
	if (inquiry->question == SESS_ASK_EXPORT_WAIT)
		return err_trace(wait_for(session->export, inquiry));
	r = read_start(session->export, inquiry);
	if (!r)
		sess_answered(session);
	return err_trace(r);
}

/* Answered by sess_answered(), possibly before this returns. */
void sess_answer_export(struct sess_shard *shard, struct sess *session)
{
	struct sess_inquiry *inquiry = &session->inquiry;
	struct zero_snapshot_op *op = &inquiry->snapshot_op;
	int r;

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
	if (inquiry->question == SESS_ASK_EXPORT_OPEN && !session->export->segment) {
		build_windows(session, session->export);
		return;
	}
	if (inquiry->question == SESS_ASK_EXPORT_OPEN)
		r = zi_text_error(&inquiry->text, err_origin(-EBUSY),
		                  "this connection exports already");
	else
		r = ask_window(session, inquiry);
	if (!r)
		return;
	inquiry->result = r; /* Nobody else has it while there is no answer. */
	sess_answered(session);
}
