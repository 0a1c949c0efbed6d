/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An export: what the daemon says a snapshot is, its extents one after the other, and the files
 * that become of them. cmd_export.c is the command, export.c fetches, export_file.c writes.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/types.h"
#include "zctl/model.h"
#include "zctl/zctl.h"

/* Where a subgroup's planes are: indices of the daemon's extents; -1: all zero. */
struct export_place {
	int64_t param, state;
};

struct export
{
	const struct zctl_context *context;
	struct zctl_link *link;
	struct model model;          /* the daemon's answer to `export open` */
	struct export_place *places; /* (model.subgroup_count,) */
	const uint8_t *windows;      /* (2 × window_bytes,) mapped, read-only */
	uint64_t window_bytes;
	uint8_t *zeros; /* (window_bytes,) */
	bool is_progress;
	uint64_t done_bytes, total_bytes;
};

/* Opens @source ("JOB" or "JOB/SNAPSHOT"). 0, or 1 after saying why. */
int export_open(struct export *export, const struct zctl_context *context, const char *source);
void export_close(struct export *export);
/* The bytes of one extent, compared with their checksums: in @window (0 or 1) until it is used
 * again. 0, or 1 after saying why. */
int export_fetch(struct export *export, uint32_t unit, uint32_t subgroup, enum zi_plane plane,
                 uint32_t window, const uint8_t **ret_bytes);

/* ---- export_file.c: one safetensors file ---- */

struct export_file {
	char *path;
	int fd; /* -1: not open */
	bool is_made;
	uint32_t width;
	uint64_t data_offset, bytes;
	json_t *hashes; /* per subgroup; NULL: not wanted */
};

/* Made anew, as long as it will be, its header written. @dtype: of every tensor. 0, or 1 after
 * saying why. */
int export_file_make(struct export_file *file, const char *path, const struct export *export,
                     enum zi_dtype dtype, bool has_hashes);
/* Elements of a subgroup, packed. Padding is left out. */
int export_file_put(struct export_file *file, const struct export *export, uint32_t unit,
                    uint32_t subgroup, const void *bytes);
/* Down to the disk. */
int export_file_end(struct export_file *file);
/* Removes it, unless it ended well; frees. */
void export_file_drop(struct export_file *file, bool is_kept);
