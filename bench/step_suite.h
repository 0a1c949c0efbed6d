/* SPDX-License-Identifier: Apache-2.0 */
/* Suite `step`: its parts. */
#pragma once

#include "bench/report.h"

struct step_settings {
	const char *program; /* this one: ranks run it as well, and zinf-gpt lies near it */
	unsigned rounds;
	bool is_quick; /* small, and without peers: to see that it runs */
};

/* Reduce and update of 2 and of 4 ranks. Return: 0; -1 after saying why. */
int step_update_rows(struct bench_report *report, const struct step_settings *settings);
/* Forward and backward over torch's. */
int step_compute_rows(struct bench_report *report, const struct step_settings *settings);
/* zinf-gpt with all of its state on NVMe. */
int step_gpt_rows(struct bench_report *report, const struct step_settings *settings);
/* What a step costs where parameters and state are on NVMe. */
int step_disk_rows(struct bench_report *report, const struct step_settings *settings);
