/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An export: what the daemon says a snapshot is, its extents one after the other, and the files
 * that become of them. cmd_export.c is the command, export.c fetches, export_file.c writes,
 * export_manifest.c says what was written, export_part.c is one node's part of a job.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/types.h"
#include "zctl/checkpoint.h"
#include "zctl/model.h"
#include "zctl/mover.h"
#include "zctl/zctl.h"

/* Where a subgroup's planes are: indices of the daemon's extents; -1: all zero, which it says. */
#define EXPORT_ZEROS  (-1)
#define EXPORT_ABSENT (-2) /* it says nothing: another node has it */
struct export_place {
	int64_t param, state;
};

struct export_cursor {
	uint32_t unit, subgroup;
	enum zi_plane plane;
};

struct export
{
	const struct zctl_context *context;
	struct zctl_link *link;
	struct model model;          /* the daemon's answer to `export open` */
	struct export_place *places; /* (model.subgroup_count,) */
	uint32_t node, node_count;   /* of a job over several nodes; 0 and 1 */
	uint32_t here_count;         /* subgroups that this node has, */
	uint32_t param_count;        /* and those of which it has parameters */
	struct model part;           /* of them, when it is they that are written; else zero */
	const struct model *written; /* as the files have it: the model, or the part */
	uint32_t part_count;         /* subgroups that are written */
	const uint8_t *windows;      /* (window_count × window_bytes,) mapped, read-only */
	uint64_t window_bytes;
	uint32_t window_count;
	uint8_t *zeros; /* as many as the longest extent has */
	/* Extents in the order in which they are fetched; those that have bytes are counted, and
	 * the n-th of them goes to window n % window_count. */
	struct export_cursor ahead; /* the next one to be read */
	uint64_t read_count;        /* the daemon was told to read */
	uint64_t wait_count;        /* fetched, so in a window */
	uint64_t free_count;        /* released, so their windows are free again */
	uint32_t told_count;        /* questions whose answers were not heard */
	bool has_state;             /* optimizer state is fetched too */
	bool is_progress;
	uint64_t done_bytes, total_bytes;
};

/* Opens @source ("JOB" or "JOB/SNAPSHOT"). 0, or 1 after saying why. */
int export_open(struct export *export, const struct zctl_context *context, const char *source);
void export_close(struct export *export);
/* Where everything lies, by the daemon's answer. 0, or 1 after saying what makes no sense. */
int export_read_extents(struct export *export);
/* Whether parameters of the subgroup are exported: always, where all of them are here. */
bool export_is_here(const struct export *export, uint32_t unit, uint32_t subgroup);
/* The bytes of one extent, compared with their checksums, until it is released; those after it are
 * read meanwhile. All that are here have their turn: subgroup by subgroup, parameters and then,
 * with `has_state`, optimizer state. 0, or 1 after saying why. */
int export_fetch(struct export *export, uint32_t unit, uint32_t subgroup, enum zi_plane plane,
                 const uint8_t **ret_bytes);
/* Nothing that was fetched is looked at any more. */
void export_release(struct export *export);

/* ---- export_file.c: one safetensors file ---- */

/* One block that is being filled, others under way to the disk. */
#define EXPORT_BLOCKS      3u
#define EXPORT_BLOCK_BYTES (2u << 20)

struct export_file {
	char *path;
	struct mover *mover; /* borrowed */
	struct mover_file file;
	bool is_made;
	uint32_t width;
	uint64_t data_offset, bytes;
	uint64_t done_bytes; /* written, or in a block */
	uint8_t *memory;     /* (EXPORT_BLOCKS × EXPORT_BLOCK_BYTES,) */
	struct mover_move blocks[EXPORT_BLOCKS];
	uint32_t block_index; /* that is being filled */
	json_t *hashes;       /* per subgroup; NULL: not wanted */
};

/* Made anew, as long as it will be, its header written. @dtype: of every tensor. 0, or 1 after
 * saying why. */
int export_file_make(struct export_file *file, const char *path, struct mover *mover,
                     const struct export *export, enum zi_dtype dtype, bool has_hashes);
/* Elements of a subgroup, packed, after those of the one before. Padding is left out. @model: as
 * written; @unit, @subgroup: of it. */
int export_file_put(struct export_file *file, const struct model *model, uint32_t unit,
                    uint32_t subgroup, const void *bytes);
/* All of it, down to the disk. */
int export_file_end(struct export_file *file);
/* Waits for what is out; removes it, unless it ended well; frees. */
void export_file_drop(struct export_file *file, bool is_kept);

/* The finished file, or directory, gets its name; what has that name is never overwritten. Return:
 * 0; -1 with errno. */
int export_rename(const char *partial, const char *path, bool is_directory);
/* Nothing has the name, or an empty claim that an export left which was killed before its rename.
 * export_rename() replaces such a claim. */
bool export_name_is_free(const char *path, bool is_directory);

/* ---- export_manifest.c ---- */

/* @files: (_PLANE_COUNT,), those without a path are left out. 0, or 1 after saying why; @path may
 * have been made then. */
int export_manifest_write(const struct export *export, const struct export_file *files,
                          const char *path);

/* ---- export_part.c: one node's part ---- */

/* What this node has is what is written. 0, or 1 after saying why. */
int export_part_choose(struct export *export);
/* The directory that nodes share is there, and takes the part: @path is made where it is not.
 * @ret_part: "PATH/part-N", the caller's. 0, or 1 after saying why. */
int export_part_make(const struct export *export, const char *path, bool *ret_is_made,
                     char **ret_part);
/* How many of the nodes' parts are there. */
uint32_t export_part_count(const struct export *export, const char *path);
