/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power of a beta of a parameter group, for the bias correction. Floor 5, shard thread. An
 * update count comes from a client (an import), so the time of a call must not grow with it.
 */
#pragma once

#include <stdint.h>

/* Multiplications in a row. The power of 0.999 no longer matters beyond them. */
#define ZERO_POWER_RUN 65536u

/* The newest answer, from which the next one is one multiplication away. */
struct zero_power {
	double beta, value; /* value: beta multiplied `count` times within the present run */
	double runs_value;  /* of the whole runs before it */
	uint64_t count;     /* of the answer; 0: there is none */
};

/*
 * @beta to the power of @count: the product of whole runs of ZERO_POWER_RUN, by squaring, times the
 * product of the rest from 1 on, in f64 (docs/ARITHMETIC.md). Depends on @beta and @count alone;
 * @power only saves time. At most 2 × ZERO_POWER_RUN multiplications.
 */
double power_of(struct zero_power *power, double beta, uint64_t count);
