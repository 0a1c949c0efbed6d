/* SPDX-License-Identifier: Apache-2.0 */
/* On what a rank computes. */
#pragma once

#include "examples/gpt/args.h"
#include "examples/gpt/device.h"

/* Fills in is_gpu and gpu_uuid. -EINVAL with the reason: no such device, or options that do not go
 * with it. */
int gpt_device_check(struct gpt_args *args, struct gpt_problem *problem);
/* Of flags that were checked. @ret_device: close it; NULL: the CPU. Return: as
 * gpt_device_open(). */
int gpt_device_of(const struct gpt_args *args, struct gpt_problem *problem,
                  struct gpt_device **ret_device);
