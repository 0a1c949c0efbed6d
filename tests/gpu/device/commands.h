/* SPDX-License-Identifier: Apache-2.0 */
/* The three commands of a run, on a trial that is open. They add rows (trial.h). */
#pragma once

struct trial;

/* The questions about GPUs that no document answers. */
void ask_run(struct trial *trial);
/* What needs a real GPU to be tested. */
void check_run(struct trial *trial);
/* Speed, with the driver's plain copies as the peer. Not for the fake, unless it is a rehearsal. */
void bench_run(struct trial *trial);
