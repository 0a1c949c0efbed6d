/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up trainer for tests: a real user of libzinf whose "model" is a few parameters and whose
 * gradients are a function of (rank, random state, micro-batch, parameter, element, present value).
 * They depend on the present value so that a stale or torn parameter changes the result, and on a
 * random state that travels in the resume blob so that a resume without it does. reference.h
 * computes the same training plainly. One trainer is one rank; ranks.h runs them as processes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "zinf/zinf.h"

#define TRAINER_UNITS_MAX  32u
#define TRAINER_PARAMS_MAX 64u
#define TRAINER_STEPS_MAX  32u
#define TRAINER_TEXT_BYTES 256u

/* Parameters of unit 0, then of unit 1 … Each is (rows, elements / rows). */
struct trainer_model {
	uint32_t unit_count;
	uint32_t unit_params[TRAINER_UNITS_MAX];
	uint64_t elements[TRAINER_PARAMS_MAX];
};

/* Two and a half subgroups in the first unit, short tiles, scalars, odd counts. 340 k elements. */
extern const struct trainer_model trainer_small;

/* Where a rank stands; the hook hears of each. */
enum trainer_point {
	TRAINER_BORN = 1, /* nothing is attached; again after each restart */
	TRAINER_ATTACHED,
	TRAINER_LAID_OUT,
	TRAINER_MATERIALIZED,
	TRAINER_WRITE_BEGUN, /* of the first unit */
	TRAINER_WRITTEN,     /* all units */
	TRAINER_COMMITTED,   /* step 0 */
	TRAINER_STEP_BEGUN,
	TRAINER_UNSHARDED, /* the last unit, for backward */
	TRAINER_ACQUIRED,  /* its gradient */
	TRAINER_REDUCED,   /* handed over; other units are not */
	TRAINER_BACKWARD,  /* every unit was reduced */
	TRAINER_STEPPED,   /* zinf_step() has returned */
	TRAINER_WAITED,    /* the step is committed */
	_TRAINER_PLAIN_COUNT,
	/* Of is_deferred; of discard_count, while the step before counts. */
	TRAINER_NORMED = _TRAINER_PLAIN_COUNT, /* the norm was told; the step has not ended */
	TRAINER_WASTED,                        /* in a step that will be discarded */
	TRAINER_DISCARDED,
	_TRAINER_POINT_COUNT,
};

struct trainer;
typedef void (*trainer_hook_fn)(const struct trainer *trainer, enum trainer_point point, void *arg);

#define TRAINER_FORMERS 4u

/* Starts of the job before this one: up to that step it had so many ranks. */
struct trainer_former {
	uint32_t step, world;
};

struct trainer_settings {
	struct zinf_options options;   /* rank is the trainer's own */
	struct zinf_step_options step; /* micro_batches is set by the trainer */
	const struct trainer_model *model;
	uint32_t accumulate;    /* micro-batches of a step, at least 1 */
	uint32_t steps;         /* train until the job stands here */
	bool is_sparse;         /* options.finds_unused: gradients as trainer_uses() says */
	uint32_t no_sync_mask;  /* these micro-batches of a step, not the last one */
	uint32_t infinite_step; /* in this one the last rank has an infinite gradient; 0: never */
	bool is_eager;          /* forward of the next step before the former one is waited for */
	bool is_deferred;       /* zinf_step_with(): the options of `step` come when it ends */
	uint32_t discard_count; /* steps that are begun before each one, and discarded */
	/* Attach again after -ESTALE, that many times; the n-th start is called "INCARNATION.n". */
	uint32_t restart_max;
	/* In their order; 0 steps: there are no more. A rank that the last one had not has no blob:
	 * its random state is that of its number and the step. */
	struct trainer_former formers[TRAINER_FORMERS];
	const char *load;     /* "JOB/NAME": a new job begins with this snapshot; may be NULL */
	trainer_hook_fn hook; /* may be NULL */
	void *hook_arg;
};

/* What a rank has to tell; lies in memory that the test shares. */
struct trainer_report {
	int result;    /* of the call that failed, 0: none */
	char call[32]; /* its name */
	char text[TRAINER_TEXT_BYTES];
	uint64_t failed_ns;     /* zi_clock_now_ns() */
	uint32_t attach_count;  /* successful ones */
	int64_t first_steps[8]; /* where the job stood at each attach */
	int64_t step;           /* committed, as far as this rank knows */
	int restart_result;     /* why it last attached again */
	char restart_text[TRAINER_TEXT_BYTES];
	struct zinf_step_stats stats[TRAINER_STEPS_MAX + 1]; /* by step */
	bool is_dumped;
	unsigned char dump[]; /* final parameters, param_dtype, packed; trainer_dump_bytes() */
};

struct trainer {
	const struct trainer_settings *settings;
	struct trainer_report *report;
	struct zinf *zinf;
	uint32_t rank;
	int64_t step;    /* under way, or the last that was committed */
	uint64_t random; /* state, travels in the blob */
	zinf_ticket ticket;
	double norm; /* is_deferred: of the step under way */
	uint32_t start_count;
};

/* Attach, model, first values or resume. 0 or -errno, with the report filled. */
int trainer_open(struct trainer *trainer, const struct trainer_settings *settings, uint32_t rank,
                 struct trainer_report *report);
/* One step, up to its commit. */
int trainer_step(struct trainer *trainer);
/* All parameters, into the report. */
int trainer_dump(struct trainer *trainer);
void trainer_close(struct trainer *trainer);
/* All of it, up to settings->steps, with restarts. */
int trainer_run(const struct trainer_settings *settings, uint32_t rank,
                struct trainer_report *report);

uint64_t trainer_elements(const struct trainer_model *model);
/* Each unit padded to 4096. */
uint64_t trainer_padded_elements(const struct trainer_model *model);
uint32_t trainer_dtype_bytes(enum zinf_dtype dtype);
uint64_t trainer_dump_bytes(const struct trainer_settings *settings);

/* ---- the made-up model: shared with the reference ---- */

uint64_t trainer_random_first(uint32_t rank);
uint64_t trainer_random_next(uint64_t random, uint32_t rank);
/* Start of a parameter's gradients in a micro-batch; then one per element. */
uint32_t trainer_seed(uint64_t random, uint32_t micro_batch, uint32_t param);
/* Whether a rank has a gradient of a parameter in a micro-batch. Some have one never, of others. */
bool trainer_uses(const struct trainer_settings *settings, uint64_t random, uint32_t micro_batch,
                  uint32_t param);
static inline float trainer_noise(uint32_t seed, uint64_t index)
{
	uint32_t bits = seed + (uint32_t)index * 0x9e3779b1u;

	bits ^= bits >> 16;
	bits *= 0x85ebca6bu;
	bits ^= bits >> 13;
	bits *= 0xc2b2ae35u;
	bits ^= bits >> 16;
	return (float)(bits >> 8) * 0x1p-23f - 1.0f; /* exact, [-1, 1) */
}
/* @value: the parameter's present one. */
static inline float trainer_gradient(uint32_t seed, uint64_t index, float value)
{
	return trainer_noise(seed, index) + 0.125f * value;
}
static inline float trainer_first_value(uint32_t param, uint64_t index)
{
	return 0.5f * trainer_noise(0x5eed0000u + param, index);
}
