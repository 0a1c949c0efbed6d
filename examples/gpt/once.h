/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --once: the text once, instead of batches drawn from it. Its windows are dealt to the ranks in
 * turn, batch by batch, so that in the last step some may have none: these join (zinf_join()), and
 * averages leave them out. Who has what follows from the step alone, also in a run that goes on.
 */
#pragma once

#include "examples/gpt/args.h"
#include "examples/gpt/data.h"

/* What flags say that do not go with it. -EINVAL with the reason. */
int gpt_once_check(struct gpt_args *args, struct gpt_problem *problem);
/* Sets args->step_count. @args: its ranks are known. Return: 0; -EINVAL the text is too short, or
 * the schedule does not go with as many steps. */
int gpt_once_plan(struct gpt_args *args, const struct gpt_corpus *corpus,
                  struct gpt_problem *problem);
/* Ranks that have a batch in @step, from 1 on: the first ones. Without --once all. */
uint32_t gpt_once_live(const struct gpt_args *args, const struct gpt_corpus *corpus, uint64_t step);
/* ret_inputs, ret_targets: (B, T). */
void gpt_once_batch(const struct gpt_args *args, const struct gpt_corpus *corpus,
                    const struct gpt_batch_name *name, uint8_t *ret_inputs, uint8_t *ret_targets);
