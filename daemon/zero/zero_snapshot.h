/* SPDX-License-Identifier: Apache-2.0 */
/* Of zero.h: what is asked of a job, or of what is kept of it, by whoever is none of its ranks.
 * Floor 5, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"

struct catalog_job;
struct zero;
struct zero_snapshot;

/* ---- snapshots: committed steps that are kept, without copying; and the end of a job ---- */

struct zero_snapshot_op;
typedef void (*zero_snapshot_fn)(struct zero_snapshot_op *op);

/* Embedded in whoever asks, and left alone until `done`, which runs exactly once, on the shard
 * thread, possibly before the submitting call returns. */
struct zero_snapshot_op {
	zero_snapshot_fn done;
	char job[ZI_NAME_BYTES];
	char name[ZI_NAME_BYTES]; /* create: "" is "step-N", and the name that it got */
	uint32_t uid;             /* who asks: the owner, or */
	bool is_admin;            /* root or the daemon's own uid */
	bool is_automatic;        /* create: counts for retention */
	uint32_t keep_count;      /* create: automatic ones of the job to keep, with this; 0: all */
	char as[ZI_NAME_BYTES];   /* restore: a new job of that name; "": the job itself */
	bool is_hold;             /* private: zero_snapshot_hold() */
	/* results */
	int result; /* 0 or -errno */
	struct zi_text text;
	int64_t step;
	uint64_t held_bytes; /* delete: given back */
	bool is_space_kept;  /* delete: of a damaged job, until the next start */
	/* create: nodes of the job, and of those that keep it: all, or this one where they do not
	 * talk */
	uint32_t node_count, kept_count;
	struct zero_snapshot *held; /* hold: the caller's until zero_snapshot_release() */
	/* private */
	struct zi_list link;
};

/* Keeps the job's committed step; while one is being committed, that one. State in memory alone is
 * written once, and updates wait for it. -ENOENT no such job, or
 * another uid's; -ENODATA nothing committed; -EEXIST the name; -EDQUOT, -ENOSPC with figures;
 * -EOPNOTSUPP state in memory and no store. */
void zero_snapshot_create(struct zero *zero, struct zero_snapshot_op *op);
/* Forgets one; space that nobody else holds is free. -ENOENT also another uid's; -EBUSY it is being
 * read. */
void zero_snapshot_remove(struct zero *zero, struct zero_snapshot_op *op);

/* The job, which nobody uses, stands at its snapshot again; what it had committed since is gone.
 * -ENOENT no such job or snapshot, or another uid's; -EBUSY it is in use, by whom; -EINVAL another
 * model; -EXDEV on another tier; -EOPNOTSUPP state in memory.
 * With `as` a new job, which belongs to the snapshot's uid and pays as every job does, stands
 * there, and the one it was taken of is left alone: also -EEXIST; -EMFILE, -EDQUOT, -ENOSPC with
 * figures. */
void zero_snapshot_restore(struct zero *zero, struct zero_snapshot_op *op);

/* The job, which nobody uses, is no more; its snapshots stay. Also one that is refused or damaged.
 * -ENOENT also another uid's; -EBUSY it is in use, by whom. */
void zero_job_delete(struct zero *zero, struct zero_snapshot_op *op);
/* To read: the snapshot of that name, or (with "") the committed step, which is then held by nobody
 * else and not in the catalog. It stays until it is released. Errors as above; a job at rest whose
 * quota or tier is full can be held all the same. */
void zero_snapshot_hold(struct zero *zero, struct zero_snapshot_op *op);
/* Nobody wants to read it any more: while it still waits for the job's step, @op completes with
 * -ECANCELED. No-op for any other @op. */
void zero_snapshot_withdraw(struct zero *zero, struct zero_snapshot_op *op);
void zero_snapshot_release(struct zero_snapshot *held);
/* What it is: extents in no particular order. */
const struct catalog_job *zero_snapshot_record(const struct zero_snapshot *held);

/* One extent into memory. Embedded in its owner, which leaves it alone until `done`. */
struct zero_read {
	struct zero_snapshot *held;
	uint32_t index; /* of the record's extents; one that has bytes */
	void *buffer;   /* of the extent's bytes, aligned to ZI_STORE_ALIGN_BYTES */
	void (*done)(struct zero_read *read);
	int result; /* of the disk: what was read is not compared with its checksums */
	/* private */
	struct tier_move move;
	struct tier_extent extent; /* held */
};
/* 0: `done` will run, never before this returns. */
int zero_snapshot_read(struct zero_read *read);
/* Where it lies, for people: the store's path. */
const char *zero_snapshot_path(const struct zero_snapshot *held, uint32_t index);

struct zero_snapshot_report {
	const char *job, *name;
	uint32_t uid;
	int64_t step;
	uint64_t created_s;
	uint64_t held_bytes; /* of extents; shared ones too */
	uint64_t charged_bytes;
	bool is_automatic, is_in_use;
	const char *refusal; /* NULL: it can be loaded */
};
/* Calls @each for every snapshot that is kept, oldest first, or for those of @job. */
void zero_snapshot_each(struct zero *zero, const char *job,
                        void (*each)(void *arg, const struct zero_snapshot_report *report),
                        void *arg);

/* ---- imports: a snapshot that a client sends ---- */

struct zero_import;
struct zero_import_options {
	const char *job;
	const char *name; /* "": "step-N" */
	uint32_t uid;     /* who asks, and owns it then */
	bool is_admin;
	const struct catalog_job *record; /* borrowed: layout, configuration, step, blobs */
	bool has_state;                   /* else the optimizer state is all zero */
};
/* All space is reserved and paid for; until it ends nobody else finds it. -EEXIST; -EACCES;
 * -EINVAL no model; -E2BIG; -ENOSPC, -EDQUOT with figures; -EOPNOTSUPP no store; -ENOMEM. */
int zero_import_new(struct zero *zero, const struct zero_import_options *options,
                    struct zi_text *text, struct zero_import **ret_import);
/* Bytes of extent @index: of the subgroups in order, parameters (even), state (odd). 0: it is not
 * sent. */
uint64_t zero_import_extent_bytes(const struct zero_import *import, uint32_t index);
/* One extent into the store. Embedded in its owner, which leaves it alone until `done`. */
struct zero_put {
	struct zero_import *import;
	uint32_t index;
	const void *source; /* whoever sends it may change it at any time */
	void *buffer;       /* of the extent's bytes, page-aligned, the daemon's alone */
	uint64_t digest;    /* XXH3 of the XXH3s of its tiles, as its sender says */
	void (*done)(struct zero_put *put);
	int result;          /* 0; the disk's error; -EBADMSG it is not what was sent */
	struct zi_text text; /* where a write failed; "" else */
	/* private */
	int error; /* of the device task */
	struct dev_task task;
	struct tier_move move;
};
/* Copied to the buffer, compared and hashed on a pool thread, written; several at once. 0: `done`
 * will run, never before this returns; source and buffer stay until then. -EALREADY it was sent
 * before. */
int zero_import_write(struct zero_put *put);
/* With all extents, and none out: it is kept from now on, when @op (its `done`; the results)
 * completes with 0. The import is over, whatever it says. -ENODATA extents are missing. */
void zero_import_end(struct zero_import *import, struct zero_snapshot_op *op);
/* Nothing is left. No write may be out. */
void zero_import_drop(struct zero_import *import);
