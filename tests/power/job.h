/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of the test, as a session would hold them: small models whose every operation is drawn from
 * its place, so that a job that stands at one commit can be carried on to the next by anybody, and
 * must come to the same bits.
 */
#pragma once

#include "tests/power/node.h"

#define JOB_WORLD_MAX   2u
#define JOB_UNITS_MAX   4u
#define JOB_SERIALS_MAX 16u

/*
 * One life of a job, from its making to its deletion. An operation of `operations`, each of which
 * ends in a commit:  W all parameters are written, w those of one unit;  S a step;  E a step whose
 * units are updated early;  N a step that is skipped, as a gradient is infinite. A commit is known
 * by its place in there, its serial.
 */
struct job_kind {
	const char *name;
	const char *operations;
	uint32_t number; /* of this life */
	uint32_t world, unit_count;
	uint64_t unit_elements[JOB_UNITS_MAX];
	uint32_t dtype;
	uint32_t optimizer;
	uint32_t offload_param;
};

/* What a rank is given back. */
struct job_blob {
	uint32_t number, rank;
	uint64_t serial;
};

struct job_call {
	struct zero_op op;
	struct job *job;
	bool is_commit; /* when it is done, something was promised */
	bool is_done;
};

struct job {
	const struct job_kind *kind;
	struct node *node;
	struct zero_rank *ranks[JOB_WORLD_MAX];
	struct zero_materialized memory[JOB_WORLD_MAX];
	struct job_call calls[JOB_WORLD_MAX];
	struct job_blob blobs[JOB_WORLD_MAX];
	/* A commit or deletion was reported to a rank without an error; may be NULL. */
	void (*acknowledged)(void *arg);
	void *arg;
	struct zi_text text; /* of the first failure */
};

/* Jobs that are opened commit as those of several nodes do, from then on. */
extern bool job_has_votes;

/* Ranks, layout, memory. @load: "JOB/NAME" of the snapshot that a new job begins with, or NULL.
 * Return: 0 or -errno with job->text, ranks having left. */
int job_open(struct job *job, struct node *node, const struct job_kind *kind, uint32_t durability,
             const char *load);
bool job_is_step(char operation);
/* Ranks leave. */
void job_close(struct job *job);
/* The newest commit of an open job as its ranks see it; -1: none. False: they see two, or another
 * job's. */
bool job_serial(const struct job *job, int64_t *ret_serial);
/* Of all parameters. */
int job_hash(struct job *job, uint64_t *ret_hash);

/* The operation @serial but for its commit. */
int job_prepare(struct job *job, uint32_t serial);
/* Its commit: begun, waited for. */
void job_submit(struct job *job, uint32_t serial);
int job_wait(struct job *job);
/* All three. */
int job_do(struct job *job, uint32_t serial);
/* Deletes it: its only rank has left then. */
int job_destroy(struct job *job);
