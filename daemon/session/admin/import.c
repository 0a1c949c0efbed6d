/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `load …`: a client describes a snapshot and then sends its extents, one after the other, through
 * a window that it writes (docs/ADMIN.md). It reads the files, with its own rights. Floor 6, shard
 * thread, but for sess_import_drop().
 *
 *   open ──▶ describe ──▶ put, of each extent ──▶ end
 *
 * What lies in the window may change at any time: it is copied into memory of the daemon's first,
 * and only the copy is checked, hashed and written. An import belongs to its connection: what has
 * not ended with it is dropped.
 */
#include "daemon/session/admin/import.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "common/wire/import.h"
#include "daemon/catalog/catalog.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"

/* The largest extent: state of float32 moments and a remainder. */
#define EXTENT_BYTES_MAX ((uint64_t)ZI_SUBGROUP_ELEMENTS * 12)

struct sess_import {
	struct sess *session; /* while a question is out */
	char job[ZI_NAME_BYTES], name[ZI_NAME_BYTES];
	struct tier_segment *window; /* the client's to write */
	struct tier_segment *copy;   /* the daemon's alone, as large */
	uint64_t window_bytes;
	struct zero_import *import; /* NULL: not described */
	struct zi_post post;
};

static void import_free(struct sess_import *import)
{
	if (import->import)
		zero_import_drop(import->import);
	import->window = tier_segment_unref(import->window);
	import->copy = tier_segment_unref(import->copy);
	free(import);
}

static void import_free_posted(struct zi_post *post)
{
	import_free(container_of(post, struct sess_import, post));
}

/* The connection ends; nothing is out. Context: control thread. */
void sess_import_drop(struct sess *session)
{
	struct sess_import *import = session->import;

	if (!import)
		return;
	session->import = NULL;
	zi_loop_post(session->control->shard_loop, &import->post, import_free_posted);
}

/* ---- open ---- */

static int make_windows(struct sess *session, struct sess_import *import, struct zi_text *text)
{
	struct sess_shard *shard = session->control->shard;
	struct tier_account *account = zero_account(shard->zero, session->uid);
	int r;

	if (!account)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for an account"));
	r = tier_segment_new(shard->ring_tier, account, "zinf-load", import->window_bytes,
	                     TIER_PAGES_SMALL, text, &import->window);
	if (!r)
		r = tier_segment_new(shard->ring_tier, account, "zinf-load-copy",
		                     import->window_bytes, TIER_PAGES_SMALL, text, &import->copy);
	if (!r)
		r = tier_holders_add(shard->holders, session->pid, session->pidfd, import->window);
	if (!r)
		session->reply_fd = import->window->region.fd;
	return err_trace(r);
}

static int open_import(struct sess *session, struct sess_inquiry *inquiry)
{
	struct sess_import *import;
	int r;

	if (session->import)
		return err_origin(
			zi_text_error(&inquiry->text, -EBUSY, "this connection loads already"));
	if (inquiry->byte_count < sizeof(struct zi_import_head) ||
	    inquiry->byte_count > ZI_IMPORT_BYTES_MAX)
		return err_origin(zi_text_error(
			&inquiry->text, -E2BIG, "a description of %u bytes: %zu to %u are allowed",
			inquiry->byte_count, sizeof(struct zi_import_head), ZI_IMPORT_BYTES_MAX));
	import = calloc(1, sizeof(*import));
	if (!import)
		return err_origin(zi_text_error(&inquiry->text, -ENOMEM, "no memory to load"));
	(void)zi_copy_name(import->job, sizeof(import->job), inquiry->job); /* As long. */
	(void)zi_copy_name(import->name, sizeof(import->name), inquiry->name);
	import->window_bytes = ZI_MAX(EXTENT_BYTES_MAX, (uint64_t)inquiry->byte_count);
	r = make_windows(session, import, &inquiry->text);
	if (r) {
		import_free(import);
		return err_trace(r);
	}
	session->import = import;
	inquiry->answer = json_object();
	answer_number(inquiry->answer, "window_bytes", import->window_bytes);
	return 0;
}

/* ---- describe ---- */

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

/* @cursor: a private copy, which stays until the record is done with: blobs point into it. */
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

static int describe(struct sess *session, struct sess_inquiry *inquiry)
{
	struct sess_import *import = session->import;
	struct catalog_job record = { 0 };
	struct cursor cursor = { .rest_bytes = inquiry->byte_count };
	const struct zi_import_head *head;
	int r;

	if (import->import)
		return err_origin(
			zi_text_error(&inquiry->text, -EBUSY, "this connection loads already"));
	if (inquiry->byte_count > import->window_bytes)
		return cut_short(&inquiry->text);
	memcpy(import->copy->region.base, import->window->region.base, inquiry->byte_count);
	cursor.bytes = import->copy->region.base;
	head = take(&cursor, sizeof(*head));
	if (!head)
		return cut_short(&inquiry->text);
	r = head_check(head, cursor.rest_bytes, &inquiry->text);
	if (!r)
		r = read_record(&cursor, head, &record, &inquiry->text);
	if (!r)
		r = zero_import_new(
			session->control->shard->zero,
			&(struct zero_import_options){
				.job = import->job,
				.name = import->name,
				.uid = session->uid,
				.is_admin = session->uid == 0 || session->uid == geteuid(),
				.record = &record,
				.has_state = head->has_state,
			},
			&inquiry->text, &import->import);
	free(record.units);
	free(record.params);
	free(record.blobs);
	if (r)
		return err_trace(r);
	inquiry->answer = json_object();
	answer_word(inquiry->answer, "job", import->job);
	return 0;
}

/* ---- put, end ---- */

static int put_failed(const struct sess_import *import, uint32_t index, int error,
                      struct zi_text *text)
{
	return zi_text_error(text, error, "%s extent %u of '%s': %s",
	                     error == -EBADMSG || error == -EALREADY ? "taking" : "writing", index,
	                     import->job,
	                     error == -EBADMSG    ? "it does not match its checksums"
	                     : error == -EALREADY ? "it was sent before"
	                                          : zi_err_name(error));
}

static void put_done(void *arg, int result, const struct zi_text *text)
{
	struct sess_import *import = arg;
	struct sess_inquiry *inquiry = &import->session->inquiry;

	inquiry->result = result;
	if (text->chars[0])
		inquiry->text = *text;
	else if (result)
		(void)put_failed(import, inquiry->index, result, &inquiry->text);
	else
		inquiry->answer = json_object();
	sess_answered(import->session);
}

/* 0: put_done() follows. */
static int put(struct sess *session, struct sess_inquiry *inquiry)
{
	struct sess_import *import = session->import;
	uint64_t bytes =
		import->import ? zero_import_extent_bytes(import->import, inquiry->index) : 0;
	int r;

	if (!bytes)
		return err_origin(zi_text_error(&inquiry->text, -EINVAL, "extent %u is not awaited",
		                                inquiry->index));
	assert(bytes <= import->window_bytes);
	import->session = session;
	r = zero_import_write(import->import,
	                      &(struct zero_put){ .index = inquiry->index,
	                                          .source = import->window->region.base,
	                                          .buffer = import->copy->region.base,
	                                          .digest = inquiry->digest },
	                      put_done, import);
	return r ? err_trace(put_failed(import, inquiry->index, r, &inquiry->text)) : 0;
}

static void ended(struct zero_snapshot_op *op)
{
	struct sess_inquiry *inquiry = container_of(op, struct sess_inquiry, snapshot_op);

	inquiry->result = op->result;
	inquiry->text = op->text;
	if (!op->result) {
		inquiry->answer = json_object();
		answer_word(inquiry->answer, "job", op->job);
		answer_word(inquiry->answer, "name", op->name);
		answer_put(inquiry->answer, "step", json_integer(op->step));
		answer_number(inquiry->answer, "held_bytes", op->held_bytes);
	}
	sess_answered(container_of(inquiry, struct sess, inquiry));
}

/* 0: ended() follows, or has run. */
static int end(struct sess *session, struct sess_inquiry *inquiry)
{
	struct sess_import *import = session->import;
	struct zero_snapshot_op *op = &inquiry->snapshot_op;

	if (!import->import)
		return err_origin(zi_text_error(&inquiry->text, -EINVAL,
		                                "'load end' without 'load describe'"));
	*op = (struct zero_snapshot_op){ .done = ended, .uid = session->uid };
	(void)zi_copy_name(op->job, sizeof(op->job), import->job); /* As long. */
	zero_import_end(zi_steal(import->import), op);
	return 0;
}

/* Answered by sess_answered(), possibly before this returns. */
void sess_answer_import(struct sess_shard *shard, struct sess *session)
{
	struct sess_inquiry *inquiry = &session->inquiry;
	bool is_later = false;

	if (shard->is_stopping)
		inquiry->result = zi_text_error(&inquiry->text, err_origin(-ESHUTDOWN), "%s",
		                                shard->stop_reason);
	else if (inquiry->question == SESS_ASK_LOAD_OPEN)
		inquiry->result = open_import(session, inquiry);
	else if (!session->import)
		inquiry->result = zi_text_error(&inquiry->text, err_origin(-EINVAL),
		                                "'load' begins with 'load open'");
	else if (inquiry->question == SESS_ASK_LOAD_DESCRIBE)
		inquiry->result = describe(session, inquiry);
	else if (inquiry->question == SESS_ASK_LOAD_PUT)
		is_later = !(inquiry->result = put(session, inquiry));
	else
		is_later = !(inquiry->result = end(session, inquiry));
	if (!is_later)
		sess_answered(session);
}
