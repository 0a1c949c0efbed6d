/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that the user started. It does nothing but wait for its child, the supervisor, and
 * pass signals on to it: so that one of the two is left when the other is killed, and no process
 * outlives both.
 */
#pragma once

#include "zctl/launch/plan.h"

/* Runs the plan. Return: exit code. */
int launch_keep(const struct launch_plan *plan);
