/* SPDX-License-Identifier: Apache-2.0 */
/* GRAD_ACQUIRE: a unit's gradient is the rank's. Floor 5, shard thread. */
#pragma once

struct zero_op;

/* Completes @op when it is; else leaves it waiting. */
void grad_try_acquire(struct zero_op *op);
