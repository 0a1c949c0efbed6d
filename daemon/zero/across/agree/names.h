/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nodes could go on from, by name alone: as each votes in round RESUME, and what follows from
 * all votes, the same on all nodes. Floor 5, shard thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/worker/talk.h"
#include "daemon/zero/across/bytes/offer.h"

struct round;
struct zero_job;
struct zero_marks;

/* Numbers of commits are far below: some more are numbers, too. */
#define NAMES_NUMBER_MAX OFFER_COUNT_MAX

/* A commit's name, and its step: alike on all nodes that have made it. */
struct commit_name {
	uint64_t number, line;
	int64_t step; /* -1: nothing was committed yet */
};

/* What a node could go on from, the newest first. State in memory alone is there once, that of the
 * first; the second says what it was before. Others may have made what it is in doubt of. */
struct commit_offers {
	struct commit_name names[OFFERS_MAX], doubt;
	uint32_t count, is_in_doubt;
	uint32_t in_place; /* bits: what the node has of it is what its ranks need now */
	uint32_t offered;  /* bits: it can be pulled (bytes/offer.h) */
};
static_assert(sizeof(struct commit_offers) <= TALK_DATA_BYTES, "one vote");

/* As its ranks ask for it: a job that is new here has no other. */
bool names_is_nvme(const struct zero_job *job);
struct commit_name names_of(int64_t step, const struct zero_marks *marks);
bool names_are_one(const struct commit_name *one, const struct commit_name *other);
/* What this node votes; what can be pulled of it is not said yet. */
struct commit_offers names_of_job(const struct zero_job *job);
struct commit_offers names_at(const struct round *round, uint32_t node);
/* Other nodes' words. Return: 0; -EPROTO with @text: some node says what cannot be. */
int names_check(const struct round *round, uint32_t node_count, struct zi_text *text);
/* The newest one that all have. Return: false, there is none. */
bool names_common(const struct round *round, uint32_t node_count, struct commit_name *ret_name);
/* … each as its ranks need it. */
bool names_are_in_place(const struct round *round, uint32_t node_count,
                        const struct commit_name *name);
/* Whose present commit has the largest number. */
uint32_t names_newest(const struct round *round, uint32_t node_count);
/* Some node is in doubt of a step; @node_count: none. */
uint32_t names_doubt(const struct round *round, uint32_t node_count);
/* Some node has made what this one is in doubt of. */
bool names_have_made(const struct zero_job *job, const struct round *round, uint32_t node_count);
/* Beyond all numbers that any node knows of: what follows is newer than all that is anywhere. */
uint64_t names_after(const struct round *round, uint32_t node_count);
