/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `ask`: each asks the driver, and adds a row with its lines (trial.h). */
#pragma once

struct trial;

void ask_memory_times(struct trial *trial);
void ask_register_times(struct trial *trial);
void ask_copies(struct trial *trial);
void ask_nccl(struct trial *trial);
void ask_ends(struct trial *trial);
