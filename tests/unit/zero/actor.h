/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of the tests: attached, called, waited for, killed. */
#pragma once

#include "tests/unit/zero/node.h"

struct call {
	struct zero_op op;
	struct zi_loop *loop;
	bool is_done;
};

#define CALLS_MAX 8

struct actor {
	struct node *node;
	struct zero_rank *rank;
	uint32_t number;
	pid_t pid;
	bool is_child; /* a process of its own, which the test ends */
	bool is_broken;
	int broken_error;
	uint32_t broken_culprit;
	struct zi_text broken_text;
	struct zi_text text; /* of the last refusal */
	struct call calls[CALLS_MAX];
	struct zero_materialized memory;
};

static inline void actor_broken(void *arg, int error, uint32_t culprit, const struct zi_text *text)
{
	struct actor *actor = arg;

	cr_assert(!actor->is_broken, "told once");
	actor->is_broken = true;
	actor->broken_error = error;
	actor->broken_culprit = culprit;
	actor->broken_text = *text;
}

static inline void actor_fork(struct actor *actor)
{
	actor->pid = fork();
	cr_assert_geq(actor->pid, 0);
	if (actor->pid == 0)
		for (;;)
			(void)pause();
	actor->is_child = true;
}

struct attach_options {
	const char *job, *incarnation;
	uint32_t rank, world, uid;
	uint32_t local; /* of world on this node; 0: all */
	bool takeover, must_exist;
	uint64_t timeout_ns;
	struct zi_job_config config;
	struct zi_job_training training;
};

static inline int actor_attach(struct node *node, struct actor *actor,
                               const struct attach_options *options)
{
	uint64_t number = 0;
	struct actor fresh = { .node = node,
		               .number = options->rank,
		               .pid = actor->pid,
		               .is_child = actor->is_child };

	*actor = fresh;
	if (!actor->is_child)
		actor->pid = getpid();
	int r = zero_attach(
		node->zero,
		&(struct zero_attach){
			.job = options->job ? options->job : "train",
			.incarnation = options->incarnation ? options->incarnation : "",
			.uid = options->uid,
			.pid = actor->pid,
			.rank = options->rank,
			.world_size = options->world,
			.local_size = options->local,
			.takeover = options->takeover,
			.must_exist = options->must_exist,
			.config = options->config,
			.training = options->training,
			.timeout_ns = options->timeout_ns ? options->timeout_ns : TURN_LIMIT_NS,
			.broken = actor_broken,
			.broken_arg = actor,
		},
		&actor->text, &actor->rank, &number);
	if (r)
		actor->rank = NULL;
	return r;
}

/* Its process ends, and is waited for. */
static inline void actor_kill(struct actor *actor)
{
	cr_assert(actor->is_child);
	cr_assert_eq(kill(actor->pid, SIGKILL), 0);
	cr_assert_eq(waitpid(actor->pid, NULL, 0), actor->pid);
	actor->is_child = false;
}

static inline void actor_leave(struct actor *actor, bool is_clean)
{
	struct zero_rank *rank = actor->rank;

	actor->rank = NULL;
	zero_rank_leave(rank, is_clean, is_clean ? NULL : "killed by the test");
}

/* Those of @actors that are ranks leave. */
static inline void actors_leave(struct actor *actors, size_t count, bool is_clean)
{
	for (size_t i = 0; i < count; i++)
		if (actors[i].rank)
			actor_leave(&actors[i], is_clean);
}

static inline void call_done(struct zero_op *op)
{
	struct call *call = container_of(op, struct call, op);

	cr_assert(!call->is_done, "completed once");
	call->is_done = true;
	zi_loop_stop(call->loop); /* Whoever rests meanwhile goes on. */
}

typedef void (*call_fn)(struct zero_rank *rank, struct zero_op *op);

/* @filled: kind-specific input. */
static inline void actor_start(struct actor *actor, uint32_t slot, call_fn function,
                               const struct zero_op *filled)
{
	struct call *call = &actor->calls[slot];

	*call = (struct call){ .op = filled ? *filled : (struct zero_op){ 0 },
		               .loop = actor->node->loop };
	call->op.done = call_done;
	function(actor->rank, &call->op);
}

static inline int actor_wait(struct actor *actor, uint32_t slot)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	struct call *call = &actor->calls[slot];

	while (!call->is_done) {
		node_rest(actor->node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the call never ends");
	}
	actor->text = call->op.text;
	return call->op.result;
}

static inline int actor_call(struct actor *actor, call_fn function, const struct zero_op *filled)
{
	actor_start(actor, 0, function, filled);
	return actor_wait(actor, 0);
}

static inline int actor_unit(struct actor *actor, call_fn function, uint32_t unit)
{
	return actor_call(actor, function, &(struct zero_op){ .unit = unit });
}

/* Beside a call that waits. */
static inline int actor_unit_at(struct actor *actor, uint32_t slot, call_fn function, uint32_t unit)
{
	actor_start(actor, slot, function, &(struct zero_op){ .unit = unit });
	return actor_wait(actor, slot);
}

/* All of them; the first error. */
static inline int all_call(struct actor *actors, uint32_t count, call_fn function,
                           const struct zero_op *filled)
{
	int first = 0;

	for (uint32_t i = 0; i < count; i++)
		actor_start(&actors[i], 0, function, filled);
	for (uint32_t i = 0; i < count; i++) {
		int r = actor_wait(&actors[i], 0);

		if (!first)
			first = r;
	}
	return first;
}
