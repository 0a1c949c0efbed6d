/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `check`, over a private zinfd. Each adds rows (trial.h). */
#pragma once

#include "tests/gpu/device/trial.h"
#include "tests/harness/harness.h"

struct check {
	struct trial *trial;
	struct harness harness;
};

/* Units on the GPU have the bits of CPU memory, and ranks train to the same parameters. */
void check_bits(struct check *check);
/* Losses of zinf-gpt --device gpu beside those of the CPU. */
void check_gpt(struct check *check);
/* What is killed, hangs, fails or finds no memory, beside another job. */
void check_ends(struct check *check);

/* Bytes that zinfd has charged on the run's GPU. UINT64_MAX: zinfd does not answer. */
uint64_t check_charged_bytes(struct check *check);
