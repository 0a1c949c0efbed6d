/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is true: jobs, their layouts, the step each stands at, and the extents of that step
 * (SQLite). One transaction per commit, on the commit thread; the file's connection belongs to that
 * thread after catalog_start(). Exists without NVMe too. Floor 2.
 *
 * Before catalog_start() (daemon start, recovery) functions marked "start-up" run on the caller's
 * thread. After it everything goes through struct catalog_request, completed on the submitter's
 * loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/loop.h"
#include "common/base/text.h"
#include "common/base/types.h"

struct catalog;

#define CATALOG_VERSION 4u
/* Starts of a job whose names are remembered, the newest ones: who still carries an older name was
 * fenced long ago. 64 KiB of names a job. */
#define CATALOG_INCARNATIONS_MAX 1024u
/* A job's strategy as it was asked for (a tail of ATTACH): carried, not looked at. */
#define CATALOG_TRAINING_BYTES 128u
/* What else of a job never changes, and the state of its loss scale: carried as well. */
#define CATALOG_EXTRA_BYTES_MAX 65536u
#define CATALOG_SCALER_BYTES    64u

/* Configuration of a job as stored; equal on every attach (struct zi_job_config's fields). */
struct catalog_job_config {
	uint32_t param_dtype, grad_dtype, optimizer, schedule;
	uint32_t offload_optimizer, offload_param, durability;
};

struct catalog_param {
	char name[ZI_PARAM_NAME_BYTES];
	uint32_t unit;
	uint32_t dim_count;
	uint64_t shape[ZI_PARAM_DIMS_MAX];
	uint32_t group; /* of those who train it now (zero/job/stretches.h): not stored */
};

struct catalog_unit {
	char name[ZI_PARAM_NAME_BYTES];
	uint32_t member_set; /* 0 also where the job names none: of all ranks */
};

/* Ranks that train the same units. */
struct catalog_set {
	char name[ZI_PARAM_NAME_BYTES];
	uint64_t members; /* a bit per rank */
};

/* A start of the job that had a name. */
struct catalog_incarnation {
	uint64_t number;
	char name[ZI_NAME_BYTES];
};

/* One extent of the committed step. STATE with bytes 0: all zero, never written. */
struct catalog_extent {
	uint32_t unit, subgroup;
	enum zi_plane plane; /* PARAM or STATE */
	uint8_t store_uuid[16];
	struct zi_extent extent;
	uint64_t step;          /* that wrote it */
	uint32_t hash_count;    /* tiles */
	const uint64_t *hashes; /* (hash_count,) XXH3 per tile; owned by whoever made the struct */
};

struct catalog_blob {
	uint32_t rank;
	const void *bytes;
	uint64_t byte_count;
};

/*
 * Under which division a commit was made: which node held which part of it follows from that. Zero:
 * all in one node.
 */
struct catalog_placement {
	uint32_t strategy, shard_size;
	uint32_t node_count;
	/* With several nodes: where each rank was, (world_size,); and which of them this one is. */
	uint8_t nodes[ZI_WORLD_MAX];
	uint8_t node;
	uint8_t reserved[3]; /* 0: two are compared byte by byte */
};
static_assert(sizeof(struct catalog_placement) == 16 + ZI_WORLD_MAX, "no padding");

/* A job, or a snapshot of one: a job's rows as they stood at a commit, kept under a second name.
 * As recovered: everything owned by it, freed by catalog_job_free(). */
struct catalog_job {
	char name[ZI_NAME_BYTES];
	char snapshot[ZI_NAME_BYTES]; /* "" the job itself */
	bool is_automatic;            /* snapshot: counts for retention */
	uint64_t created_s;           /* snapshot: since 1970 */
	uint32_t uid;
	uint32_t world_size;
	struct catalog_job_config config;
	const void *extra; /* (extra_bytes,) at most CATALOG_EXTRA_BYTES_MAX */
	uint32_t extra_bytes;
	uint64_t incarnation_number; /* newest */
	char incarnation[ZI_NAME_BYTES];
	uint8_t training[CATALOG_TRAINING_BYTES]; /* as its ranks asked for it */
	int64_t step;                             /* committed; -1 none */
	uint64_t update_count;                    /* steps that updated (skipped ones do not) */
	double beta1_power, beta2_power;
	/* A commit's name, for a step may be committed more than once: how many the job has made,
	 * counted alike on all its nodes, and which group of them it was (random). Moving what is
	 * committed makes no new one. */
	uint64_t number, line;
	/* Loaded: what was written later has a larger one, whichever job it is of. */
	uint64_t stamp;
	struct catalog_placement placement;
	uint32_t scaler_bytes;
	uint8_t scaler[CATALOG_SCALER_BYTES];
	uint32_t set_count, unit_count, param_count, extent_count, blob_count;
	struct catalog_set *sets;
	struct catalog_unit *units;
	struct catalog_param *params;
	struct catalog_extent *extents;
	struct catalog_blob *blobs;
	/* Oldest first, numbers at most incarnation_number. A request names those that the catalog
	 * does not have; loaded are all that it remembers. */
	uint32_t incarnation_count;
	struct catalog_incarnation *incarnations;
	/* Loaded: what is wrong with its rows, "" nothing. Whoever makes a job leaves it alone. */
	struct zi_text damage;
	/* Loaded: the commit before, if it was kept (keeps_former), without the job's sets, units,
	 * parameters and incarnations; NULL none. Its damage is its own; whatever makes it doubtful
	 * which of the two is the newer one is damage of the job. Owned by the job. */
	struct catalog_job *former;
};

/* ---- start-up ---- */

/* Opens or makes the catalog in @directory ("catalog.db"), WAL. -EUCLEAN damaged (quick_check),
 * -EPROTONOSUPPORT another version, -EBUSY another daemon has it: nothing is overwritten. */
int catalog_open(const char *directory, struct zi_text *text, struct catalog **ret_catalog);
struct catalog *catalog_close(struct catalog *catalog);
ZI_DEFINE_CLEANUP(struct catalog *, catalog_close)
/* Store identities: records a store that was just made; -EUCLEAN when the catalog knows the name
 * with another uuid (unless the store was just made and nothing lies on the one it knows), or does
 * not know a store that was not just made. */
int catalog_adopt_store(struct catalog *catalog, const char *name, const uint8_t uuid[16],
                        bool is_created, struct zi_text *text);
/* How many extents lie in the store that the catalog knows by @name, and its identity; 0 also when
 * it knows none. Such a store is opened, and never made anew. */
int catalog_store_extents(struct catalog *catalog, const char *name, struct zi_text *text,
                          uint8_t ret_uuid[16], uint64_t *ret_count);
/* Every job and snapshot, one call each; the callback owns it. Jobs whose optimizer state or
 * parameters lived in memory alone have no extents: the caller decides. One whose rows are damaged
 * says so. */
typedef int (*catalog_job_fn)(void *arg, struct catalog_job *job);
int catalog_load_jobs(struct catalog *catalog, catalog_job_fn each, void *arg,
                      struct zi_text *text);
/* A deep copy without incarnations and the former commit. -ENOMEM. Any thread. */
int catalog_job_copy(const struct catalog_job *source, struct catalog_job **ret_job);
struct catalog_job *catalog_job_free(struct catalog_job *job);
ZI_DEFINE_CLEANUP(struct catalog_job *, catalog_job_free)

/* What was read and written on behalf of somebody: "store:UUID", "uid:N", "job:NAME". */
#define CATALOG_SUBJECT_BYTES 80u
struct catalog_traffic {
	char subject[CATALOG_SUBJECT_BYTES];
	uint64_t read_bytes, write_bytes; /* in all its life */
	uint64_t day, day_write_bytes;    /* since 1970, UTC, and written in it */
};
/* Every row; NULL: one that is damaged. */
typedef void (*catalog_traffic_fn)(void *arg, const struct catalog_traffic *traffic);
int catalog_load_traffic(struct catalog *catalog, catalog_traffic_fn each, void *arg,
                         struct zi_text *text);

/* ---- service ---- */

/* Starts the commit thread. catalog_close() drains and joins it; the loops of its requests are
 * freed after that. */
int catalog_start(struct catalog *catalog);

enum catalog_request_kind {
	CATALOG_JOB_CREATE = 1,  /* the whole job or snapshot; extents and blobs only
				  * with a step. -EEXIST */
	CATALOG_JOB_DELETE,      /* name, snapshot: all its rows; a job's snapshots stay.
				  * -ENOENT, here and below */
	CATALOG_JOB_INCARNATION, /* name, incarnation, incarnation_number, training,
				  * incarnations; forgets what is older than
				  * CATALOG_INCARNATIONS_MAX numbers */
	CATALOG_COMMIT,          /* name, world_size, step, update_count, powers, number, line,
				  * placement, scaler; extents (replace those of the same unit,
				  * subgroup, plane); blobs (replace all of the job) */
	CATALOG_STEP_BACK,       /* name; number and line of the commit that stays, which is in
				  * force then: the other one's rows go, if there is one. -ENODATA
				  * no such commit, and none goes */
};

struct catalog_request;
typedef void (*catalog_request_fn)(struct catalog_request *request);

/* Embedded in its owner; everything it points to stays untouched until `done`. One transaction
 * each, in order of submission. A failed COMMIT leaves the former commit in force, and what was
 * kept beside it. */
struct catalog_request {
	enum catalog_request_kind kind;
	const struct catalog_job *job; /* the fields its kind names */
	/* COMMIT: and these, in the same transaction; (other_count,) */
	const struct catalog_job *const *others;
	uint32_t other_count;
	/* COMMIT: goes into the same transaction; (traffic_count,) */
	const struct catalog_traffic *traffic;
	uint32_t traffic_count;
	/* COMMIT without others: the commit in force so far stays beside this one, in place of the
	 * one before it; this one's number is larger. */
	bool keeps_former;
	/* With it: the extents that are named are all of this one's, none of the former's is. */
	bool is_whole;
	bool is_durable; /* power: this transaction is synced, and all before it are then */
	catalog_request_fn done;
	struct zi_loop *loop;
	int result; /* 0 or -errno */
	struct zi_text text;
	/* The request failed, and this or an earlier one may be in force all the same after a
	 * restart, until which the catalog takes nothing more: neither the extents that it would
	 * have named nor those that it would have replaced may be written. */
	bool is_uncertain;
	uint64_t started_ns, finished_ns;
	/* private */
	struct zi_post post;
	struct catalog_request *next;
};

/* Any thread. */
void catalog_submit(struct catalog *catalog, struct catalog_request *request);
