/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load: files that export wrote become a snapshot. cmd_load.c is the command, load_source.c what
 * is loaded, load_parts.c where that is several nodes' parts, load.c knows the daemon, load_file.c
 * reads, fold.c makes optimizer state of planes.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire/geometry.h"
#include "zctl/checkpoint.h"
#include "zctl/model.h"
#include "zctl/mover.h"
#include "zctl/zctl.h"

/* ---- load_file.c: one safetensors file ---- */

/* Subgroups that are read before they are asked for, with the one that is in hand. */
#define LOAD_SLOTS 4u
/* Of float32, with whole blocks around it. */
#define LOAD_SLOT_BYTES ((uint64_t)ZI_SUBGROUP_ELEMENTS * sizeof(float) + 2ull * MOVER_ALIGN_BYTES)

struct load_slot {
	struct mover_move move;
	uint64_t skip_bytes; /* in its buffer, before the subgroup */
	bool is_begun;       /* else it is read when it is asked for */
};

struct load_file {
	char *path;
	struct mover *mover; /* borrowed */
	struct mover_file file;
	uint8_t *memory;                    /* (LOAD_SLOTS × LOAD_SLOT_BYTES,) */
	struct load_slot slots[LOAD_SLOTS]; /* the model's n-th subgroup: n % LOAD_SLOTS */
	uint64_t ahead_number;              /* the next one to be read */
	uint32_t ahead_unit;                /* its unit */
	uint32_t width;
	uint64_t bytes, data_offset;
	uint64_t *begins;     /* (param_count,) of each parameter, in the data */
	json_t *header;       /* owned */
	const json_t *hashes; /* per subgroup; NULL: none are known */
};

/* Opens and reads the header. 0, or 1 after saying why; load_file_close() in both cases. */
int load_file_open(struct load_file *file, const char *path, struct mover *mover);
/* Its tensors are the model's, all of them, as @dtype. @entry: of the manifest's files, or NULL. */
int load_file_match(struct load_file *file, const struct model *model, enum zi_dtype dtype,
                    const json_t *entry);
/* Elements of a subgroup, its padding zero, compared with their checksum; until the next one is
 * got. All have their turn, in order. 0, or 1 after saying why. */
int load_file_get(struct load_file *file, const struct model *model, uint32_t unit,
                  uint32_t subgroup, const void **ret_bytes);
/* Waits for what is being read. */
void load_file_close(struct load_file *file);

/* ---- load_planes.c: a directory of planes ---- */

struct load_planes {
	struct load_file files[_PLANE_COUNT]; /* path NULL: not there */
};

/* PATH/manifest.json, in a version that is known and of @format. NULL after saying why not. */
json_t *load_manifest_read(const char *path, const char *format);
/* Opens what @manifest names of the model as it is written. 0, or 1 after saying why;
 * load_planes_close() in both cases. */
int load_planes_open(struct load_planes *planes, const char *path, const json_t *manifest,
                     const struct model *model, struct mover *mover);
/* load_file_get() of all. @ret_planes: (_PLANE_COUNT,); NULL: not there. */
int load_planes_get(struct load_planes *planes, const struct model *model, uint32_t unit,
                    uint32_t subgroup, const void **ret_planes);
void load_planes_close(struct load_planes *planes);

/* ---- load_parts.c: parts of several nodes ---- */

struct load_part {
	char *path;
	json_t *manifest;   /* NULL: the part is missing */
	struct model model; /* of its subgroups */
	struct load_planes planes;
};

struct load_parts {
	uint32_t count;
	struct load_part *parts;      /* (count,) of each node */
	struct load_place {           /* of a subgroup: whose part, and its place there */
		uint32_t node, index; /* node: count: nobody's */
	} * places;                   /* (subgroup_count,) of the whole model */
	json_t *blobs;                /* of all ranks */
};

/* Whether @path is a directory of parts. */
bool load_parts_are(const char *path);
/* The first of them that there is; NULL after saying why not. */
json_t *load_parts_first(const char *path);
/* All of them: the same commit of @model, and every subgroup in one of them at least.
 * @allows_missing: ranks of nodes whose part is not there have no blob then. 0, or 1 after saying
 * why; load_parts_close() in both cases. */
int load_parts_open(struct load_parts *parts, const char *path, const struct model *model,
                    bool allows_missing, struct mover *mover);
/* @ret_path: of its parameters. */
int load_parts_get(struct load_parts *parts, const struct model *model, uint32_t unit,
                   uint32_t subgroup, const void **ret_planes, const char **ret_path);
void load_parts_close(struct load_parts *parts);

/* ---- fold.c ---- */

/* Optimizer state of a subgroup, [remainder | exp_avg | exp_avg_sq] of each tile. @total: elements
 * with padding. @master: float32, NULL in fp32 jobs; @exp_avg_sq: NULL with one moment. Return:
 * @total, or the first element whose @param is not what its master rounds to. */
uint64_t fold_state(const struct model *model, uint64_t total, const uint16_t *param,
                    const float *master, const float *exp_avg, const float *exp_avg_sq,
                    uint8_t *state);

/* ---- load.c: the daemon's side ---- */

struct load {
	const struct zctl_context *context;
	struct zctl_link *link;
	/* The n-th extent that is sent lies in window n % window_count. */
	uint8_t *windows; /* (mapped_bytes,) shared with the daemon */
	uint64_t mapped_bytes, window_bytes;
	uint32_t window_count;
	uint64_t put_count, wait_count;
	uint32_t told_count; /* questions whose answers were not heard */
	bool is_progress;
	uint64_t done_bytes, total_bytes;
};

/* What is not in struct model. */
struct load_marks {
	int64_t step;
	uint64_t update_count;
	double beta1_power, beta2_power;
	uint32_t world_size;
	bool has_state;
	const json_t *blobs; /* as in the manifest; NULL: none */
};

/* ---- load_source.c: what is loaded ---- */

struct load_source {
	const char *path;
	bool allows_missing; /* parts of nodes */
	struct model model;
	struct load_marks marks;
	struct load_planes planes;
	struct load_parts parts;
	struct mover *mover; /* reads them */
};

/* @like: whose model it is, for a file that does not say; NULL. 0, or 1 after saying why;
 * load_source_close() in both cases. */
int load_source_open(struct load_source *source, const struct zctl_context *context,
                     const char *like);
/* The planes of a subgroup, until the next one is got. All have their turn, in order. @ret_path:
 * of its parameters. */
int load_source_get(struct load_source *source, uint32_t unit, uint32_t subgroup,
                    const void **ret_planes, const char **ret_path);
void load_source_close(struct load_source *source);

/* ---- load.c ---- */

/* The snapshot @target, "JOB" or "JOB/NAME", begins: all its space is reserved. 0, or 1 after
 * saying why; load_close() in both cases. */
int load_open(struct load *load, const struct zctl_context *context, const char *target,
              const struct model *model, const struct load_marks *marks);
/* Room for the next extent, once the daemon has written what lay there. NULL after saying why not.
 */
uint8_t *load_window(struct load *load);
/* The extent lies there: the daemon compares, and writes it while the next ones are made. */
int load_put(struct load *load, const struct model *model, uint32_t unit, uint32_t subgroup,
             enum zi_plane plane);
/* It is a snapshot now. @ret_answer: the caller's. */
int load_end(struct load *load, json_t **ret_answer);
/* What has not ended leaves nothing. */
void load_close(struct load *load);
