/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stores of an NVMe tier: how each of them fares, and what it is seen to move. Floor 4, shard
 * thread.
 *
 * A member's state is the gravest of its conditions:
 *
 *   HEALTHY
 *   SLOW      moves less than half of what its weight says, beside the best one: its weight falls
 *             to what it moves, until it keeps up again
 *   FULL      had no room for an extent: takes none until some was freed
 *   DRAINING  an administrator wants it empty: takes no extent; what lies there is moved away
 *   FAILED    a write or a flush failed, a read found nobody there, or reads met bad sectors at
 *             several places (damage.h): the same, until an administrator says that it is
 *             repaired (drain.h), or the daemon starts anew
 *   MISSING   was not there when the daemon started; extents on it are out of reach
 *
 * A tier's only member is used whatever happened to it, since there is no other: its errors are
 * those of its jobs, and it counts as healthy again as soon as a write succeeds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/tier/damage.h"
#include "daemon/tier/flusher.h"
#include "daemon/tier/tally.h"
#include "daemon/tier/tier.h"
#include "nvme/nvme.h"
#include "nvme/smart.h"

#define TIER_MEMBERS_MAX 16u
/* Extents of a lane are spread by themselves: what is read each step must not all lie on one
 * member because something as large always comes in between. */
#define TIER_LANES 3u

enum tier_member_state {
	TIER_MEMBER_HEALTHY,
	TIER_MEMBER_SLOW,
	TIER_MEMBER_FULL,
	TIER_MEMBER_DRAINING,
	TIER_MEMBER_FAILED,
	TIER_MEMBER_MISSING,
	_TIER_MEMBER_STATE_COUNT
};

/* What a member is seen to move: bytes per second during which anything was in flight there. */
struct tier_pace {
	uint32_t inflight_count;
	uint64_t begin_ns;       /* of the present busy time */
	uint64_t busy_ns, bytes; /* not yet in the figure */
	uint64_t bytes_per_s;    /* moving figure; 0: not yet known */
	uint32_t behind_count;   /* figures in a row that were too low; SLOW: high enough */
};

/* What its drive said of its health, or why it did not. */
struct tier_wear {
	bool is_known;
	struct nvme_smart smart;
	struct zi_text why; /* not known; "": not asked yet */
	bool is_told;       /* that it wears out */
};

/* Stays at its address as long as the tier: extents name it. */
struct tier_member {
	struct tier *tier;
	struct nvme_store *store;     /* not owned; NULL: missing */
	struct nvme_space *space;     /* owned; NULL: missing */
	struct tier_flusher *flusher; /* owned; NULL: missing */
	char name[ZI_NAME_BYTES];
	const char *path; /* not owned */
	uint8_t uuid[16];
	/* conditions */
	bool is_draining;
	bool is_full;
	uint64_t full_bytes, full_free_bytes; /* asked for, and free then, in pieces */
	bool is_slow;
	uint64_t expected_bytes_per_s; /* SLOW: of a path of its weight */
	int error;                     /* FAILED: not 0 */
	const char *error_doing;
	struct tier_damage damage;    /* what reads met; alone no condition */
	enum tier_member_state state; /* the gravest of them, as told last */
	struct zi_text reason;        /* of the state; "" healthy */
	/* choice */
	double weight;              /* of the sum of all; 0: takes nothing */
	double credits[TIER_LANES]; /* bytes that it is behind (above 0) its share */
	struct tier_pace pace;
	struct tier_tally tally; /* and its budget */
	struct tier_wear wear;
	/* counters since start */
	uint64_t read_bytes, write_bytes;
	uint64_t error_count; /* of any kind, reads that met damage among them */
};

struct tier_member_options {
	const char *name;
	const char *path;         /* outlives the tier */
	struct nvme_store *store; /* outlives the tier; NULL: missing */
	const uint8_t *uuid;      /* (16,) */
	bool is_draining;
	struct tier_budget write_budget;
};

/* -ENOMEM; -EAGAIN: no thread; -ENOSPC: TIER_MEMBERS_MAX are there; -EINVAL: a store too small for
 * an extent. Before anything is reserved. */
int tier_member_add(struct tier *tier, const struct tier_member_options *options);
/* As a tier of one store, its name the store's. */
int tier_member_add_store(struct tier *tier, struct nvme_store *store);
/* NULL: none has this identity. */
struct tier_member *tier_member_find(struct tier *tier, const uint8_t uuid[16]);
const char *tier_member_state_name(enum tier_member_state state);
/* A write, flush or read failed there: @error < 0; @doing "writing", a constant. */
void tier_member_fail(struct tier_member *member, int error, const char *doing);
/* It is as if it had never failed, nor met bad sectors. */
void tier_member_forgive(struct tier_member *member);
/* Of the members of @tier that take extents, or would if they had room, but for @except (or NULL).
 */
uint64_t tier_members_capacity_bytes(const struct tier *tier, const struct tier_member *except);
/* What lies there is to be moved: it is draining or has failed, and there are others. */
bool tier_member_is_leaving(const struct tier_member *member);
/* Reserved bytes on it: committed, or of steps under way. */
uint64_t tier_member_used_bytes(const struct tier_member *member);
/* A member of a set: a bit for each, by its place in the tier. */
static inline uint32_t tier_member_bit(const struct tier_member *member)
{
	return 1u << (member - member->tier->members);
}
/* Something begins to move there; it has ended. */
void tier_member_begin(struct tier_member *member, uint64_t now_ns);
struct tier_outcome {
	bool is_write;
	int result;             /* 0: all of it moved; -ECANCELED says nothing of the member */
	struct zi_extent place; /* of the store */
};
void tier_member_end(struct tier_member *member, const struct tier_outcome *outcome,
                     uint64_t now_ns);
/* After its conditions changed, at the end of whatever changed them. */
void tier_member_update(struct tier_member *member);
