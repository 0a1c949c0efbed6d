/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What zero holds beside its jobs: accounts, extents with several holders, snapshots, a job that is
 * moved off a path. Floor 5; shard thread.
 *
 * How the parts call each other. Public functions and whatever comes back to the loop (device
 * tasks, moves, catalog requests) change state, and end in zero_drain(). Nobody else is called in
 * between: a finished op is only put into zero->completed, and a rank whose group broke into
 * zero->notices, and zero_drain() calls their callbacks when nothing is half-changed. A callback
 * may call any public function, free its rank, even end the job; so zero_drain() is the last thing
 * a function does.
 *
 * What is in flight (a device task, a move, a request) is counted in busy_count. Memory is given
 * back, and a group materialised, only at busy_count 0 (job_settle()): drain before free.
 */
#pragma once

#include "common/wire/geometry.h"
#include "daemon/catalog/catalog.h"
#include "daemon/device/device.h"
#include "daemon/tier/account.h"
#include "daemon/tier/flush.h"
#include "daemon/tier/member.h"
#include "daemon/tier/move.h"
#include "daemon/tier/staging.h"
#include "daemon/tier/tier.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_subgroup;

/* A request that waits until the data it names is on its media (flush.c). */
struct zero_flush {
	struct tier_flush flush;
	struct catalog_request *request;
	struct catalog *catalog;
	void (*ready)(struct zero_flush *flush); /* instead of the request; NULL: that goes out */
	struct zi_timer timer;                   /* of the path that is the first to be late */
	bool is_late;                            /* it was, and that was told */
};

/* Of a uid, kept for good; or of a job, kept while processes hold what it paid for. */
struct zero_account {
	struct zi_list accounts_link;
	uint32_t uid;
	struct tier_account account;
	struct tier_tally tally; /* a job's is below its uid's */
	struct nvme_flow *flow;  /* a gone job's: tensors of its ranks may be in flight; or NULL */
};

/* An extent that is held more than once (share.c). */
struct zero_share {
	const struct tier_member *member;
	uint64_t offset_bytes, bytes;
	uint64_t digest;     /* while recovering: of what a row says about it */
	uint32_t hold_count; /* 0: a free slot */
};

struct zero_shares {
	struct zero_share *slots; /* (capacity,) a power of two */
	uint32_t capacity, count;
	bool is_recovering;
};

/*
 * A committed step whose extents are kept (snapshot.c).
 *
 *   WAITING ──▶ WRITING ──▶ STORING ──▶ KEPT ──▶ DELETING
 *   the job's   state in    the catalog          the catalog forgets it; its space is
 *   step ends   memory      is told              given back then; import.c: from IMPORTING
 */
enum zero_snapshot_phase {
	ZERO_SNAPSHOT_WAITING,
	ZERO_SNAPSHOT_WRITING,
	ZERO_SNAPSHOT_IMPORTING, /* a client sends it */
	ZERO_SNAPSHOT_STORING,
	ZERO_SNAPSHOT_STORED, /* here; other nodes have yet to say that they have it (keep.h) */
	ZERO_SNAPSHOT_KEPT,
	ZERO_SNAPSHOT_DELETING
};

struct zero_snapshot {
	struct zero *zero;
	struct zi_list snapshots_link;
	enum zero_snapshot_phase phase;
	struct zero_job *job;       /* WAITING, WRITING: whose; NULL later: it may be gone */
	struct catalog_job *record; /* from STORING (IMPORTING) on; owned */
	char job_name[ZI_NAME_BYTES];
	char name[ZI_NAME_BYTES]; /* "": held by somebody who reads it, and by no catalog */
	uint32_t uid;
	bool is_automatic;
	bool is_periodic; /* snapshot_interval: nobody asked */
	bool is_hold;     /* zero_snapshot_hold() */
	bool is_unpaid;   /* a hold of a job at rest, beyond a limit: snapshot_pay() */
	bool is_import;   /* import.c: since this start of the daemon */
	uint64_t created_s;
	uint32_t keep_count;         /* automatic ones to keep, once this is; 0: all */
	uint32_t use_count;          /* readers, and ranks that will load it */
	struct tier_extent *extents; /* (record->extent_count,) held */
	uint64_t held_bytes;
	struct tier_charge charge;
	int refusal; /* not 0: damaged, or its store is not here */
	struct zi_text refusal_text;
	bool is_stuck;              /* could not be moved off a path, and that was told */
	struct catalog_job *moving; /* evacuate_commit.c: what the catalog is told; or NULL */
	struct catalog_request request;
	struct zero_flush flush;     /* an import's, before it */
	struct zero_snapshot_op *op; /* who waits for it; NULL: nobody */
	/* not 0: one that all nodes of its job keep, or none (across/agree/keep.h), of this commit
	 */
	uint64_t keep_id;
	uint64_t keep_number, keep_line;
};

#define ZERO_EVACUEES       4u
#define ZERO_EVACUATE_ROUND 256u /* extents of a commit */

/* An extent on its way to another path. */
struct zero_evacuee {
	struct zero *zero;           /* NULL: free */
	struct tier_extent from, to; /* held by it, and its own */
	uint32_t plane;
	uint32_t element_bytes;
	uint32_t hash_count;
	uint64_t hashes[ZI_SUBGROUP_ELEMENTS / ZI_TILE_ELEMENTS];
	void *slot;
	struct tier_move move;
	struct dev_task task;
	int error;
	struct zi_text what, text;
};

/* One that lies at both places, until the catalog says where its holders look for it. */
struct zero_moved {
	struct tier_extent from, to;
	bool is_taken; /* `to` has a holder */
};

/* A job at rest, or a snapshot, that is moved off a path: evacuate.c, evacuate_commit.c. */
struct zero_evacuation {
	bool is_on;
	struct zero_job *job;           /* whose turn it is */
	struct zero_snapshot *snapshot; /* or; NULL both: a snapshot's that is gone */
	struct tier *tier;
	struct dev *device;
	struct tier_staging *staging;
	struct zero_evacuee evacuees[ZERO_EVACUEES];
	uint32_t active_count;    /* of them */
	struct zero_moved *moved; /* (ZERO_EVACUATE_ROUND,) in this round */
	uint32_t moved_count;
	uint32_t cursor; /* next one of the owner's extents */
	bool has_more;   /* rounds */
	bool is_stuck;   /* it had an error, and that was told */
	bool is_filling, is_posted;
	struct zi_post post;
	/* the round's transaction */
	struct catalog_request request;
	const struct catalog_job **records; /* of all holders that follow */
	uint32_t members;                   /* paths of `to` */
	struct zero_flush flush;
	bool is_durable;
};

struct zero {
	struct zero_options options;
	struct zero_shares shares;
	struct zi_list snapshots;      /* struct zero_snapshot, oldest first */
	struct zi_list snapshots_done; /* struct zero_snapshot_op, by link */
	uint32_t snapshot_busy_count;  /* whose request is out */
	struct zi_list jobs;           /* struct zero_job, by jobs_link */
	struct zi_list lost;           /* jobs without their state (job/lost.h), by jobs_link */
	struct zi_list ghosts; /* jobs that nobody can find any more, whose deletion is under way */
	struct zi_list accounts;        /* of uids */
	struct zi_timer midnight_timer; /* budget.c */
	struct zi_list retired;   /* of jobs that are gone, until nothing is charged to them */
	struct zi_list completed; /* struct zero_op, by link */
	struct zi_list notices;   /* struct zero_rank, by notice_link */
	struct zi_list acrosses;  /* struct across whose ranks have left, while others' have not */
	struct zi_list fars; /* struct far that nobody has any more: they still tell other nodes */
	uint32_t job_count, lost_count;
	uint32_t tensor_busy_count; /* moves and tasks of tensors, also of ranks that have left */
	bool is_draining;
	bool is_stopping;
	/* Not 0: the catalog takes nothing more, and what it was given last may be in force after a
	 * restart. No extent is given back from then on, and nothing begins that would commit. */
	int frozen;
	struct zi_text frozen_text;
	void (*quiesced)(void *arg); /* NULL: nobody waits */
	void *quiesced_arg;
	bool is_quiet_posted; /* it is about to be called, if nothing begins before */
	struct zi_post quiet_post;
	struct zero_evacuation evacuation;
};

void zero_drain(struct zero *zero);
struct zero_account *zero_account_of(struct zero *zero, uint32_t uid); /* NULL: -ENOMEM */
/* Descriptors of a zinf-net: its socket and its pidfd. */
#define ZERO_WORKER_FDS 2u
void zero_account_retire(struct zero *zero, struct zero_account *account);
