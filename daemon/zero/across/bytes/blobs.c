/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs of ranks that are elsewhere; see blobs.h. Floor 5; shard thread, but for what runs on
 * device threads: blobs_fill(), take_run(). */
#include "daemon/zero/across/bytes/blobs.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/pieces.h"
#include "daemon/zero/job/job.h"

/* Of a node's, in front: how long each rank's is; 0 of a rank that is not there. */
#define TABLE_BYTES (ZI_WORLD_MAX * sizeof(uint32_t))

/* One other node's. */
struct blobs_take {
	struct blobs *blobs;
	uint32_t node;
	bool is_bad; /* what came makes no sense */
	uint32_t table[ZI_WORLD_MAX];
	struct pieces pieces;
};

struct blobs {
	struct across *across;
	struct zero_job *job;
	uint32_t number; /* STEPs and COMMITs that all nodes have come to, which all count alike */
	uint32_t index;  /* of job->blobs: those of the last one */
	uint32_t table[ZI_WORLD_MAX]; /* this node's part of them */
	uint32_t said_bytes[SUBTREE_NODES_MAX];
	/* while they are pulled */
	blobs_done_fn done;
	uint32_t active_count;
	int error;
	struct zi_text text;
	struct zi_post post;
	struct blobs_take takes[]; /* (node_count,) */
};

static bool is_at(const struct across *across, uint32_t rank, uint32_t node)
{
	return rank < across->job->world && across->nodes[rank] == node;
}

/* Documented in the header, as are all that are not static. */
int blobs_open(struct zero_job *job, struct zi_text *text)
{
	struct across *across = job->across;
	struct blobs *blobs;

	across->blobs = blobs_free(across->blobs);
	if (!job_is_nvme(job) || job->is_stateless)
		return 0;
	blobs = calloc(1, sizeof(*blobs) + across->node_count * sizeof(blobs->takes[0]));
	if (!blobs)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	blobs->across = across;
	blobs->job = job;
	across->blobs = blobs;
	return 0;
}

struct blobs *blobs_free(struct blobs *blobs)
{
	assert(!blobs || !blobs->active_count);
	free(blobs);
	return NULL;
}

/* ---- what they are ---- */

static uint64_t bytes_of(const uint32_t *table)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		bytes += table[i];
	return bytes ? TABLE_BYTES + bytes : 0;
}

/* Of the ranks here, as they have given them for the step or commit to come. */
static void make_table(const struct zero_job *job, uint32_t *table)
{
	uint32_t index = blob_next(job);

	memset(table, 0, TABLE_BYTES);
	for_each_rank_here(job, rank)
		table[rank] = (uint32_t)job->blobs[index][rank].byte_count;
}

uint32_t blobs_said_bytes(const struct zero_job *job)
{
	uint32_t table[ZI_WORLD_MAX];

	if (!job->across->blobs)
		return 0;
	make_table(job, table);
	return (uint32_t)bytes_of(table);
}

int blobs_agreed(struct zero_job *job, const uint32_t *said_bytes, struct zi_text *text,
                 uint32_t *ret_node)
{
	struct across *across = job->across;
	struct blobs *blobs = across->blobs;

	if (!blobs)
		return 0;
	for (uint32_t i = 0; i < across->node_count; i++) {
		uint64_t most_bytes = 0;

		for (uint32_t rank = 0; rank < job->world; rank++)
			most_bytes += is_at(across, rank, i) ? ZI_BLOB_BYTES : 0;
		if (!said_bytes[i] ||
		    (said_bytes[i] > TABLE_BYTES && said_bytes[i] <= TABLE_BYTES + most_bytes))
			continue;
		*ret_node = i;
		return err_origin(zi_text_error(text, -EPROTO,
		                                "resume blobs of %u bytes in all: at most %u of a "
		                                "rank are kept",
		                                said_bytes[i], ZI_BLOB_BYTES));
	}
	blobs->number++;
	blobs->index = blob_next(job);
	make_table(job, blobs->table);
	memcpy(blobs->said_bytes, said_bytes, across->node_count * sizeof(*said_bytes));
	serve_more(across); /* Others may have come here before. */
	return 0;
}

/* The part of [@begin, @begin + @bytes) of it that is at @at, between there and the slot. */
static void copy_part(void *mine, uint64_t mine_bytes, uint64_t at, uint64_t begin, char *slot,
                      uint64_t bytes, bool is_out)
{
	uint64_t from = ZI_MAX(at, begin), to = ZI_MIN(at + mine_bytes, begin + bytes);

	if (from >= to)
		return;
	if (is_out)
		memcpy(slot + (from - begin), (char *)mine + (from - at), to - from);
	else
		memcpy((char *)mine + (from - at), slot + (from - begin), to - from);
}

/* Blobs that @table tells of. */
static void copy_blobs(struct zero_blob *blobs, const uint32_t *table, uint64_t begin, char *slot,
                       uint64_t bytes, bool is_out)
{
	uint64_t at = TABLE_BYTES;

	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++) {
		if (table[i])
			copy_part(blobs[i].bytes, table[i], at, begin, slot, bytes, is_out);
		at += table[i];
	}
}

/* ---- what others pull ---- */

/* Numbers wrap around, as all nodes' do. */
bool blobs_asked(const struct across *across, const struct talk_entry *entry)
{
	const struct blobs *blobs = across->blobs;
	uint64_t begin = entry->piece * across->slot_bytes, bytes;

	if (!blobs)
		return false;
	if (entry->micro == blobs->number + 1)
		return true; /* It is looked at again when that is there. */
	bytes = bytes_of(blobs->table);
	return blobs->number && entry->micro == blobs->number && begin < bytes &&
	       entry->bytes == ZI_MIN(bytes - begin, across->slot_bytes);
}

bool blobs_is_there(const struct across *across, const struct talk_entry *entry)
{
	return entry->micro == across->blobs->number && blobs_asked(across, entry);
}

void blobs_fill(struct across_serve *serve)
{
	struct blobs *blobs = serve->across->blobs;
	uint64_t begin = serve->entry.piece * serve->across->slot_bytes;
	uint64_t bytes = serve->entry.bytes;

	copy_part(blobs->table, TABLE_BYTES, 0, begin, serve->memory, bytes, true);
	copy_blobs(serve->job->blobs[blobs->index], blobs->table, begin, serve->memory, bytes,
	           true);
}

/* ---- what is pulled ---- */

/* Another node's word. */
static bool is_sane(const struct blobs_take *take)
{
	const struct blobs *blobs = take->blobs;

	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		if (take->table[i] > (is_at(blobs->across, i, take->node) ? ZI_BLOB_BYTES : 0))
			return false;
	return bytes_of(take->table) == blobs->said_bytes[take->node];
}

static void take_run(struct fetch *fetch)
{
	struct blobs_take *take = container_of(fetch, struct blobs_take, pieces.fetch);
	const struct pull *pull = &take->pieces.pull;
	struct blobs *blobs = take->blobs;

	/* The first piece has all of it: it is copied, looked at, and then used. */
	if (!take->pieces.at_bytes) {
		copy_part(take->table, TABLE_BYTES, 0, 0, pull->memory, pull->bytes, false);
		take->is_bad = !is_sane(take);
	}
	if (!take->is_bad)
		copy_blobs(blobs->job->blobs[blobs->index], take->table, take->pieces.at_bytes,
		           pull->memory, pull->bytes, false);
}

static void told(struct zi_post *post)
{
	struct blobs *blobs = container_of(post, struct blobs, post);
	struct across *across = blobs->across;
	struct zero_job *job = blobs->job;
	struct zero *zero = job->zero;
	struct zi_text text = blobs->text;

	across->task_count--;
	job_unbusy(job);
	if (across->error || across->is_detached)
		across_go_on(across); /* It may wait for this. */
	blobs->done(job, blobs->error, &text);
	zero_drain(zero);
}

/* An error is told from the loop: the job may end with it, and whoever is under way here knows it
 * yet. */
static void over(struct blobs *blobs)
{
	if (!blobs->error) {
		blobs->done(blobs->job, 0, NULL);
		return;
	}
	blobs->across->task_count++;
	job_busy(blobs->job);
	zi_loop_post(blobs->job->zero->options.loop, &blobs->post, told);
}

static void fail(struct blobs *blobs, int error, const struct zi_text *text)
{
	if (blobs->error)
		return;
	blobs->error = error;
	blobs->text = *text;
}

static void take_next(struct blobs_take *take)
{
	pieces_ask(&take->pieces, &(struct pull){ .node = take->node,
	                                          .what = PULL_BLOBS,
	                                          .number = take->blobs->number });
}

static void take_ended(struct fetch *fetch, bool is_whole)
{
	struct blobs_take *take = container_of(fetch, struct blobs_take, pieces.fetch);
	struct blobs *blobs = take->blobs;
	struct across *across = blobs->across;
	struct zi_text text = across->text;

	if (!is_whole) {
		fail(blobs, across->error ? across->error : -ECANCELED, &text);
	} else if (take->is_bad) {
		zi_text_set(&text, "%.80s gives resume blobs that are none",
		            across_name(blobs->job, take->node).chars);
		fail(blobs, err_origin(-EPROTO), &text);
	} else if (pieces_advance(&take->pieces) && !blobs->error) {
		take_next(take);
		return;
	}
	for (uint32_t i = 0; i < ZI_WORLD_MAX && !blobs->error; i++)
		if (take->table[i])
			blobs->job->blobs[blobs->index][i].byte_count = take->table[i];
	if (!--blobs->active_count)
		over(blobs);
}

void blobs_pull(struct zero_job *job, blobs_done_fn done)
{
	struct across *across = job->across;
	struct blobs *blobs = across ? across->blobs : NULL;

	if (!blobs || !across_talks(job) || !blobs->number ||
	    blobs->index != job->step.blob_index) {
		done(job, 0, NULL);
		return;
	}
	assert(!blobs->active_count);
	assert(across->slot_bytes >= TABLE_BYTES);
	blobs->done = done;
	blobs->error = 0;
	blobs->active_count = 1; /* All are asked for before one is there. */
	for (uint32_t i = 0; i < across->node_count; i++) {
		struct blobs_take *take = &blobs->takes[i];

		if (i == across->node || !blobs->said_bytes[i])
			continue;
		*take = (struct blobs_take){ .blobs = blobs,
			                     .node = i,
			                     .pieces = { .across = across,
			                                 .run = take_run,
			                                 .ended = take_ended,
			                                 .bytes = blobs->said_bytes[i] } };
		blobs->active_count++;
		take_next(take);
	}
	if (!--blobs->active_count)
		over(blobs);
}

bool blobs_say_late(const struct zero_job *job, struct zi_text *ret_text)
{
	const struct blobs *blobs = job->across ? job->across->blobs : NULL;

	for (uint32_t i = 0; blobs && blobs->active_count && i < job->across->node_count; i++) {
		if (!pieces_are_active(&blobs->takes[i].pieces))
			continue;
		zi_text_set(ret_text, "%.160s has not given the resume blobs of its ranks",
		            across_name(job, i).chars);
		return true;
	}
	return false;
}
