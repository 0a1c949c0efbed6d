/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `load …`: a client describes a snapshot and then sends its extents, several at once, through
 * windows that it writes (docs/ANSWERS.md). It reads the files, with its own rights. Floor 6, shard
 * thread, but for sess_import_drop().
 *
 *   open ──▶ describe ──▶ put and wait, of each extent ──▶ end
 *
 * What lies in a window may change at any time: it is copied into memory of the daemon's first,
 * and only the copy is checked, hashed and written. An import belongs to its connection: what has
 * not ended with it is dropped, once nothing of it is being written any more.
 */
#include "daemon/session/admin/import.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/import.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/admin/description.h"
#include "daemon/session/sess.h"

/* The largest extent: state of float32 moments and a remainder. */
#define EXTENT_BYTES_MAX ((uint64_t)ZI_SUBGROUP_ELEMENTS * 12)

enum window_state { WINDOW_FREE = 0, WINDOW_WRITING, WINDOW_WRITTEN };

struct import_window {
	struct sess_import *import;
	enum window_state state;
	bool is_awaited; /* the question that is out is about it */
	struct zero_put put;
};

struct sess_import {
	struct sess_shard *shard;
	struct sess *session; /* while a question is out */
	char job[ZI_NAME_BYTES], name[ZI_NAME_BYTES];
	struct tier_segment *segment; /* of all windows, the client's to write */
	struct tier_segment *copy;    /* the daemon's alone, as large */
	struct zero_import *import;   /* NULL: not described */
	struct import_window windows[SESS_WINDOWS];
	uint32_t writing_count;
	bool is_dropped; /* freed when nothing is being written */
	struct zi_post post;
	/* Of `open` and `describe`: a thread of the worker has them meanwhile. */
	struct dev_task task;
	int task_result;
	uint64_t byte_count; /* of the description */
	struct sess_description description;
};

static void import_free(struct sess_import *import)
{
	assert(!import->writing_count);
	if (import->import)
		zero_import_drop(import->import);
	import->segment = tier_segment_unref(import->segment);
	import->copy = tier_segment_unref(import->copy);
	free(import);
}

/* Context: a thread of the worker. */
static void discard(struct dev_task *task)
{
	struct sess_import *import = container_of(task, struct sess_import, task);

	tier_segment_discard(import->segment);
	tier_segment_discard(import->copy);
}

static void discarded(struct dev_task *task)
{
	import_free(container_of(task, struct sess_import, task));
}

/* The rest of a question, or the end, is for a thread of the worker, then for @done. */
static void work(struct sess_import *import, dev_task_fn run, dev_task_fn done)
{
	import->task = (struct dev_task){ .run = run, .done = done, .loop = import->shard->loop };
	dev_submit(import->shard->worker, &import->task);
}

/* Nothing is being written: what was not ended is dropped; the worker gives back the windows. */
static void import_end(struct sess_import *import)
{
	if (import->import)
		zero_import_drop(zi_steal(import->import));
	work(import, discard, discarded);
}

static void import_drop_posted(struct zi_post *post)
{
	struct sess_import *import = container_of(post, struct sess_import, post);

	import->is_dropped = true;
	if (!import->writing_count)
		import_end(import);
}

/* The connection ends; no question is out. Context: control thread. */
void sess_import_drop(struct sess *session)
{
	struct sess_import *import = session->import;

	if (!import)
		return;
	session->import = NULL;
	zi_loop_post(session->control->shard_loop, &import->post, import_drop_posted);
}

/* ---- open ---- */

/* Pays for the windows, and for the copy. @byte_count: of the description, which lies across the
 * windows. */
static int charge_windows(struct sess *session, struct sess_import *import, uint64_t byte_count,
                          struct zi_text *text)
{
	struct sess_shard *shard = session->control->shard;
	struct tier_account *account = zero_account(shard->zero, session->uid);
	uint64_t bytes = ZI_MAX(SESS_WINDOWS * EXTENT_BYTES_MAX, byte_count);
	int r;

	if (!account)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for an account"));
	r = tier_segment_charge(shard->ring_tier, account, "zinf-load", bytes, TIER_PAGES_SMALL,
	                        text, &import->segment);
	if (!r)
		r = tier_segment_charge(shard->ring_tier, account, "zinf-load-copy", bytes,
		                        TIER_PAGES_COLLAPSED, text, &import->copy);
	return err_trace(r);
}

/* Context: a thread of the worker. */
static void build(struct dev_task *task)
{
	struct sess_import *import = container_of(task, struct sess_import, task);
	struct zi_text *text = &import->session->inquiry.text;
	int r;

	r = tier_segment_build(import->segment, text);
	if (!r)
		r = tier_segment_build(import->copy, text);
	import->task_result = r;
}

static void built(struct dev_task *task)
{
	struct sess_import *import = container_of(task, struct sess_import, task);
	struct sess *session = import->session;
	struct sess_inquiry *inquiry = &session->inquiry;
	int r = import->task_result;

	inquiry->result = r;
	if (r) {
		import_free(import);
		sess_answered(session);
		return;
	}
	session->import = import;
	session->reply_fd = import->segment->region.fd;
	inquiry->answer = json_object();
	answer_number(inquiry->answer, "window_bytes", EXTENT_BYTES_MAX);
	answer_number(inquiry->answer, "window_count", SESS_WINDOWS);
	sess_answered(session);
}

/* 0: built() follows. */
static int open_import(struct sess *session, struct sess_inquiry *inquiry)
{
	uint64_t bytes_max = sess_description_bytes_max(&session->control->limits);
	struct sess_import *import;
	int r;

	if (session->import)
		return err_origin(
			zi_text_error(&inquiry->text, -EBUSY, "this connection loads already"));
	if (inquiry->byte_count < sizeof(struct zi_import_head) || inquiry->byte_count > bytes_max)
		return err_origin(zi_text_error(
			&inquiry->text, -E2BIG,
			"a description of %u bytes: %zu to %llu are allowed (limits.units, "
			"limits.params)",
			inquiry->byte_count, sizeof(struct zi_import_head),
			(unsigned long long)bytes_max));
	import = calloc(1, sizeof(*import));
	if (!import)
		return err_origin(zi_text_error(&inquiry->text, -ENOMEM, "no memory to load"));
	import->shard = session->control->shard;
	import->session = session;
	(void)zi_copy_name(import->job, sizeof(import->job), inquiry->job); /* As long. */
	(void)zi_copy_name(import->name, sizeof(import->name), inquiry->name);
	r = charge_windows(session, import, inquiry->byte_count, &inquiry->text);
	if (r) {
		import_free(import);
		return err_trace(r);
	}
	work(import, build, built);
	return 0;
}

/* ---- describe ---- */

/* What the windows hold becomes the daemon's own, and only that is read. Context: a thread of the
 * worker. */
static void read_description(struct dev_task *task)
{
	struct sess_import *import = container_of(task, struct sess_import, task);

	memcpy(import->copy->region.base, import->segment->region.base, import->byte_count);
	import->task_result =
		sess_description_read(&import->description, import->copy->region.base,
	                              import->byte_count, &import->session->inquiry.text);
}

/* Context: the worker's thread that made it, as in sess_free_answer(). */
static void forget_description(struct dev_task *task)
{
	sess_description_free(&container_of(task, struct sess_import, task)->description);
}

static void description_forgotten(struct dev_task *task)
{
	sess_answered(container_of(task, struct sess_import, task)->session);
}

static void described(struct dev_task *task)
{
	struct sess_import *import = container_of(task, struct sess_import, task);
	struct sess *session = import->session;
	struct sess_inquiry *inquiry = &session->inquiry;
	int r = import->task_result;

	if (!r)
		r = zero_import_new(
			session->control->shard->zero,
			&(struct zero_import_options){
				.job = import->job,
				.name = import->name,
				.uid = session->uid,
				.is_admin = session->uid == 0 || session->uid == geteuid(),
				.record = &import->description.record,
				.has_state = import->description.has_state,
			},
			&inquiry->text, &import->import);
	inquiry->result = r;
	if (!r) {
		inquiry->answer = json_object();
		answer_word(inquiry->answer, "job", import->job);
	}
	work(import, forget_description, description_forgotten);
}

/* 0: described() follows. */
static int describe(struct sess *session, struct sess_inquiry *inquiry)
{
	struct sess_import *import = session->import;
	uint64_t window_bytes = import->segment->region.bytes;
	struct zi_import_head head;
	int r;

	if (import->import)
		return err_origin(
			zi_text_error(&inquiry->text, -EBUSY, "this connection loads already"));
	if (inquiry->byte_count < sizeof(head) || inquiry->byte_count > window_bytes)
		return err_origin(zi_text_error(
			&inquiry->text, -EPROTO,
			"a description of %u bytes: the head has %zu, the windows have %llu",
			inquiry->byte_count, sizeof(head), (unsigned long long)window_bytes));
	/* What the head says too much is refused before the rest is copied. The head of the copy
	 * is checked again: the client may write it meanwhile. */
	memcpy(&head, import->segment->region.base, sizeof(head));
	__asm__ volatile("" ::: "memory");
	r = sess_description_check_head(&head, inquiry->byte_count, &session->control->limits,
	                                &inquiry->text);
	if (r)
		return err_trace(r);
	import->session = session;
	import->byte_count = inquiry->byte_count;
	work(import, read_description, described);
	return 0;
}

/* ---- put, wait, end ---- */

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

/* What became of it; the window is free for the next put. */
static void answer_window(struct import_window *window)
{
	const struct sess_import *import = window->import;
	const struct zero_put *put = &window->put;
	struct sess_inquiry *inquiry = &import->session->inquiry;

	assert(window->state == WINDOW_WRITTEN);
	window->state = WINDOW_FREE;
	window->is_awaited = false;
	inquiry->result = put->result;
	if (put->text.chars[0])
		inquiry->text = put->text;
	else if (put->result)
		(void)put_failed(import, put->index, put->result, &inquiry->text);
	else
		inquiry->answer = json_object();
	sess_answered(import->session);
}

static void put_done(struct zero_put *put)
{
	struct import_window *window = container_of(put, struct import_window, put);
	struct sess_import *import = window->import;

	window->state = WINDOW_WRITTEN;
	import->writing_count--;
	if (window->is_awaited)
		answer_window(window);
	else if (import->is_dropped && !import->writing_count)
		import_end(import);
}

static int window_check(struct sess_inquiry *inquiry)
{
	if (inquiry->window < SESS_WINDOWS)
		return 0;
	return err_origin(zi_text_error(&inquiry->text, -EINVAL, "window %u: there are %u",
	                                inquiry->window, SESS_WINDOWS));
}

/* What lies in the window is under way. */
static int put(struct sess *session, struct sess_inquiry *inquiry)
{
	struct sess_import *import = session->import;
	struct import_window *window = &import->windows[inquiry->window];
	uint64_t offset_bytes = inquiry->window * EXTENT_BYTES_MAX;
	uint64_t bytes =
		import->import ? zero_import_extent_bytes(import->import, inquiry->index) : 0;
	int r;

	if (!bytes)
		return err_origin(zi_text_error(&inquiry->text, -EINVAL, "extent %u is not awaited",
		                                inquiry->index));
	if (window->state != WINDOW_FREE)
		return err_origin(zi_text_error(&inquiry->text, -EBUSY,
		                                "window %u holds extent %u, which was not waited "
		                                "for",
		                                inquiry->window, window->put.index));
	assert(bytes <= EXTENT_BYTES_MAX);
	window->import = import;
	window->put = (struct zero_put){
		.import = import->import,
		.index = inquiry->index,
		.source = (char *)import->segment->region.base + offset_bytes,
		.buffer = (char *)import->copy->region.base + offset_bytes,
		.digest = inquiry->digest,
		.done = put_done,
	};
	r = zero_import_write(&window->put);
	if (r)
		return err_trace(put_failed(import, inquiry->index, r, &inquiry->text));
	window->state = WINDOW_WRITING;
	import->writing_count++;
	inquiry->answer = json_object();
	return 0;
}

/* 0: answer_window() follows, or has run. */
static int wait_for(struct sess *session, struct sess_inquiry *inquiry)
{
	struct import_window *window = &session->import->windows[inquiry->window];

	if (window->state == WINDOW_FREE)
		return err_origin(zi_text_error(&inquiry->text, -EINVAL,
		                                "window %u: nothing is being written from it",
		                                inquiry->window));
	session->import->session = session;
	window->is_awaited = true;
	if (window->state == WINDOW_WRITTEN)
		answer_window(window);
	return 0;
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
	if (import->writing_count)
		return err_origin(zi_text_error(&inquiry->text, -EBUSY,
		                                "%u extents are still being written: 'load end' "
		                                "comes when all were waited for",
		                                import->writing_count));
	*op = (struct zero_snapshot_op){ .done = ended, .uid = session->uid };
	(void)zi_copy_name(op->job, sizeof(op->job), import->job); /* As long. */
	zero_import_end(zi_steal(import->import), op);
	return 0;
}

/* 0: it will be answered, or has been. */
static int ask_later(struct sess *session, struct sess_inquiry *inquiry)
{
	int r;

	if (inquiry->question == SESS_ASK_LOAD_OPEN)
		return err_trace(open_import(session, inquiry));
	if (inquiry->question == SESS_ASK_LOAD_DESCRIBE)
		return err_trace(describe(session, inquiry));
	if (inquiry->question == SESS_ASK_LOAD_END)
		return err_trace(end(session, inquiry));
	r = window_check(inquiry);
	return r ? err_trace(r) : err_trace(wait_for(session, inquiry));
}

static int ask_now(struct sess *session, struct sess_inquiry *inquiry)
{
	int r = window_check(inquiry);

	return r ? err_trace(r) : err_trace(put(session, inquiry));
}

/* Answered by sess_answered(), possibly before this returns. */
void sess_answer_import(struct sess_shard *shard, struct sess *session)
{
	struct sess_inquiry *inquiry = &session->inquiry;
	bool is_later = inquiry->question != SESS_ASK_LOAD_PUT;
	int r;

	if (shard->is_stopping)
		r = zi_text_error(&inquiry->text, err_origin(-ESHUTDOWN), "%s", shard->stop_reason);
	else if (inquiry->question != SESS_ASK_LOAD_OPEN && !session->import)
		r = zi_text_error(&inquiry->text, err_origin(-EINVAL),
		                  "'load' begins with 'load open'");
	else
		r = is_later ? ask_later(session, inquiry) : ask_now(session, inquiry);
	if (!r && is_later)
		return;
	inquiry->result = r; /* Nobody else has it while there is no answer. */
	sess_answered(session);
}
