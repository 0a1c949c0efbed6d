/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a job trains, beyond its configuration: the strategy, what is accumulated and in which type,
 * the loss scale. The tail of ATTACH under ZI_FEATURE_TRAINING, equal in all ranks, and kept by the
 * catalog as it came. Floor 1, pure.
 *
 * All zero is what a client without the feature means, and every word may be zero by itself: a
 * default. What only some jobs can have (not those over nodes) is refused where that is known.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/scaler.h"
#include "common/base/text.h"
#include "common/wire/control.h"
#include "common/wire/layout.h"
#include "common/wire/strategy.h"

#define ZI_TRAINING_CONSECUTIVE  (1u << 0) /* a clean step gives all of the hysteresis back */
#define ZI_TRAINING_FORWARD_ONLY (1u << 1) /* neither gradients nor state */
#define ZI_TRAINING_FIND_UNUSED  (1u << 2) /* parameters without a gradient are no error */
#define ZI_TRAINING_FLAGS_ALL    0x7u

struct zi_job_training {
	uint32_t strategy;     /* enum zi_strategy */
	uint32_t shard_size;   /* ranks that share a plane; 0: all */
	uint32_t accumulation; /* micro-batches that the trainer adds up itself; 0 is 1 */
	uint32_t reduce_dtype; /* enum zi_dtype; 0: grad_dtype */
	uint32_t scaler_kind;  /* enum zi_scaler_kind; with none all that is scale_* is zero */
	uint32_t scale_window;
	uint32_t scale_hysteresis;
	uint32_t flags;       /* ZI_TRAINING_* */
	uint32_t group_count; /* of parameters; 0 is 1 */
	uint32_t reserved0;
	uint64_t grad_budget_bytes; /* 0: the daemon's choice */
	double scale_init, scale_min, scale_max, scale_growth, scale_backoff;
	uint64_t reserved[5];
};
static_assert(sizeof(struct zi_job_training) == 128, "how a job trains");

/* ATTACH under ZI_FEATURE_TRAINING; without the tail it means a tail of zeros. */
struct zi_attach_training {
	struct zi_attach attach;
	struct zi_job_training training;
};
static_assert(sizeof(struct zi_attach_training) == 400, "attach with its tail");

/* Whoever attaches so uses parameters; what the other words say of gradients and of steps is
 * checked, and without effect. */
static inline bool zi_training_is_forward_only(const struct zi_job_training *training)
{
	return training->flags & ZI_TRAINING_FORWARD_ONLY;
}

/* The loss scale's options among the words, and into them; with none all of them are zero. */
struct zi_scaler_options zi_training_scaler(const struct zi_job_training *training);
void zi_training_set_scaler(struct zi_job_training *training,
                            const struct zi_scaler_options *options);
/* What is no training at all. @config passed zi_check_job_config(). @local_size: ranks of this
 * node, not 0. -EINVAL a value, or two that do not go together; -EPROTO unknown flags, reserved
 * words. */
int zi_check_training(const struct zi_job_training *training, const struct zi_job_config *config,
                      uint32_t world_size, uint32_t local_size, struct zi_text *text);
/* The type in which leaves of a sum and the sum are rounded: reduce_dtype, or grad_dtype. */
enum zi_dtype zi_training_reduce_dtype(const struct zi_job_training *training,
                                       const struct zi_job_config *config);
/* Sums are f32 and gradients are not: they are kept in memory of their own. */
bool zi_training_has_wide_sums(const struct zi_job_training *training,
                               const struct zi_job_config *config);
/* The first difference; @whose: "the other ranks". -EINVAL with the field and both values. What is
 * another word for the same thing is no difference. */
int zi_training_compare(const struct zi_job_training *training, const struct zi_job_training *model,
                        const struct zi_job_config *config, const char *whose,
                        struct zi_text *text);
