/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of the learning rate beside the scheduler of a DeepSpeed file. */
#pragma once

#include <stdio.h>

#include "examples/gpt/args.h"

/*
 * What @args was given goes into file->lr_options, the scheduler of the file, as if it said so
 * itself. A flag that its curve has no number for is left to gpt_lr_check(). @file: as the file and
 * all other flags say. @notes: gets a line for each number that is another one now; NULL: none.
 * Return: 0; -EINVAL they cannot be together.
 */
int gpt_schedule_weave(const struct gpt_args *args, FILE *notes, struct gpt_args *file,
                       struct gpt_problem *problem);
