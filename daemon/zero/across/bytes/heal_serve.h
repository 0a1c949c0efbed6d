/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this node held of the commit that was chosen, for nodes that shall hold it now: read from
 * the store and verified into a few buffers, and kept there until others need the room. Floor 5,
 * shard thread.
 *
 * A subgroup's plane goes with the number of the step that wrote it and its checksums in front, as
 * one record in pieces of a slot; a rank's blob as it is.
 */
#pragma once

#include "daemon/zero/param/stored.h"

struct across;
struct across_serve;
struct heal_serve;
struct talk_entry;
struct zero_subgroup;

/* A disk's depth. */
#define HEAL_BUFFERS 4u

/* What of: `leaf` of the pull. */
enum heal_what { HEAL_PARAM, HEAL_STATE, HEAL_BLOB, _HEAL_WHAT_COUNT };

/* In front of a plane's bytes; (tile_count,) of its checksums go with it. */
struct heal_record {
	uint64_t step;
	uint64_t hashes[STORED_TILES];
};

enum heal_buffer_state { HEAL_FREE, HEAL_READING, HEAL_NEW, HEAL_GIVEN };

struct heal_buffer {
	struct heal_serve *serve;
	struct stored stored;
	struct heal_record record;
	enum heal_buffer_state state;
	uint32_t use_count; /* who is given it now */
	uint64_t turn;      /* of its newest use */
};

struct heal_serve {
	struct across *across;
	struct heal_buffer buffers[HEAL_BUFFERS];
	uint64_t turn;
};

/* Bytes in front of its plane's. */
uint64_t heal_record_bytes(const struct zero_subgroup *subgroup);
/* From @begin on: @bytes between a slot, and a record with what is behind it. */
void heal_record_copy(struct heal_record *record, uint64_t record_bytes, char *data, uint64_t begin,
                      char *slot, uint64_t bytes, bool is_out);

/* (HEAL_BUFFERS × buffer_bytes,) at @memory. */
void heal_serve_begin(struct heal_serve *serve, struct across *across, char *memory,
                      uint64_t buffer_bytes);
/* Nothing is read for others, or given to them. */
bool heal_serve_is_idle(const struct heal_serve *serve);

/* ---- what serve.c asks ---- */

bool heal_asked(const struct across *across, const struct talk_entry *entry);
/* false: it is being read, or will be; serve_more() follows. */
bool heal_is_there(struct across *across, const struct talk_entry *entry);
void heal_describe(struct across_serve *serve);
void heal_give_back(struct heal_buffer *buffer);
