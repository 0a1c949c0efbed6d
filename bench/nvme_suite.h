/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of suite `nvme`, each a file of its own. Each adds its rows to the report and prints
 * what it does meanwhile. Return: 0, also after a skip that was printed with its reason; -1 after
 * saying what failed.
 */
#pragma once

#include "bench/report.h"

/* How often own and peer alternate. */
#define NVME_ROUNDS BENCH_RUNS_MIN

int nvme_engine_rows(struct bench_report *report);
int nvme_step_rows(struct bench_report *report);
int nvme_fused_rows(struct bench_report *report);
int nvme_deepspeed_rows(struct bench_report *report);
int nvme_restart_rows(struct bench_report *report);
