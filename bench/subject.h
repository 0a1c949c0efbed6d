/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of one rank whose step suites measure: bf16, AdamW, units of one matrix, gradients that are
 * there already.
 */
#pragma once

#include <stdint.h>

#include "tests/harness/harness.h"
#include "zinf/zinf.h"

#define SUBJECT_UNIT_ELEMENTS (4u << 20)
/* Bytes of the store that a step with its state on NVMe moves, for each parameter. */
#define SUBJECT_READ_BYTES  10u
#define SUBJECT_WRITE_BYTES 12u

struct subject {
	struct zinf *zinf;
	uint32_t unit_count;
};

/* Attached, materialised and committed once. Return: 0; -1 after saying why. */
int subject_open(struct subject *subject, const struct harness *harness, const char *job,
                 enum zinf_offload offload, uint32_t unit_count);
/* From zinf_step_begin() to the commit; negative after saying why. */
double subject_step_seconds(const struct subject *subject, struct zinf_step_stats *stats);
void subject_close(struct subject *subject);
