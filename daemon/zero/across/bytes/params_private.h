/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters from other nodes; see params.h. Floor 5, shard thread. */
#pragma once

#include "common/base/loop.h"
#include "daemon/zero/across/bytes/fetch.h"
#include "daemon/zero/across/bytes/params.h"

struct across_serve;
struct talk_entry;

/* `what` of TALK_READY, beside those of enum grads_ready; its `micro` is the number. */
#define PARAMS_READY 3u

/* Pieces that are pulled at a time: each has its slot for a transfer and a copy. */
#define PARAMS_DEPTH 8u

/* Subgroups of a set with the same owner have the same way. */
struct params_way {
	uint64_t takers; /* nodes that pull them from this one */
	uint32_t source; /* the node that this one pulls them from; itself: it holds them */
};

struct params_subgroup {
	uint32_t made;        /* the number of the values that are in place here */
	uint32_t said;        /* from elsewhere: of those that can be pulled */
	uint32_t pieces_left; /* of these, to be copied */
	uint32_t gives_left;  /* pieces of `made` that takers have yet to be given */
	uint64_t untold;      /* takers that have yet to hear of `made` */
};

/* A piece that comes. */
struct params_take {
	struct fetch fetch;
	struct pull pull;
	struct params *params;
	struct zero_subgroup *subgroup;
	char *target;
};

struct params {
	struct across *across;
	struct zero_job *job; /* while something is in flight, or waited for, there is one */
	uint32_t unit_count, subgroup_count;
	struct params_way *ways;           /* (set_count × ZI_WORLD_MAX,) by owner */
	struct params_subgroup *subgroups; /* (subgroup_count,) */
	uint32_t *numbers;                 /* (unit_count,) */
	uint32_t wait_count;               /* subgroups that are to come, */
	uint32_t give_count;               /* and those that others are to have */
	uint32_t active_count;             /* of `takes` */
	gather_go_fn loaded;               /* params_load() is under way */
	bool is_given_up;                  /* what is to come will not */
	struct zi_post given_up;
	/* subgroups that can be pulled, in the order in which that was heard */
	uint32_t *ready; /* (subgroup_count,) a ring */
	uint32_t ready_put, ready_taken, ready_piece;
	struct params_take takes[PARAMS_DEPTH];
	/* subgroups of which others have to be told */
	uint32_t *notes; /* (subgroup_count,) a ring */
	uint32_t note_put, note_said;
};

/* ---- params.c ---- */

/* Nothing of it is in flight. Return: NULL. */
struct params *params_free(struct params *params);
const struct params_way *params_way_of(const struct params *params,
                                       const struct zero_subgroup *subgroup);
/* Whether this node has a place for all of them, whoever updates them; */
bool params_are_whole(const struct zero_job *job);
/* and whether that is on its store. */
bool params_are_kept(const struct zero_job *job);
/* What serve.c asks. */
bool params_asked(const struct params *params, const struct talk_entry *entry);
bool params_is_there(struct params *params, const struct talk_entry *entry);
/* Who fills it, and from where. */
void params_describe(struct across_serve *serve);
void params_fill(struct across_serve *serve);
void params_filled(struct across_serve *serve);

/* ---- params_pull.c ---- */

/* What is to be said to other nodes is, as far as there is room. */
void params_say(struct across *across);
/* Values that are held here are in place: whoever pulls them hears so. */
void params_tell(struct params *params, uint32_t subgroup);
/* What was heard of kind READY. -EPROTO with @text. */
int params_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text);
/* Its pieces in whole slots. */
uint32_t params_pieces(const struct params *params, const struct zero_subgroup *subgroup);
/* Something came, or was given: was it the last? The job may end with it. */
void params_go_on(struct params *params);
/* There is no talk any more: whoever waits for something hears so, from the loop. */
void params_over(struct across *across);
