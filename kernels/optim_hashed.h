/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused step with the checksums of what it read and of what is to be written, all in one pass
 * over memory. Floor 1.
 */
#pragma once

#include "kernels/optim.h"

/* kern_hash_tile() of the planes of a run. */
struct kern_optim_hashes {
	uint64_t state_before; /* as the step found it */
	uint64_t state;        /* as it left it */
	uint64_t param;        /* as it left them */
};

void kern_optim_step_hashed(const struct kern_optim_run *run,
                            const struct kern_optim_scalars *scalars,
                            struct kern_optim_hashes *ret_hashes);
