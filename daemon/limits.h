/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel grants this process, held against what the configuration wants. Floor 7, main
 * thread, before anything is allocated. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

struct config;

/* What the daemon needs beside the CPU tier: program, catalog, tables (docs/CONFIG.md). */
#define LIMITS_OVERHEAD_BYTES (64ull << 20)

/* Raises soft limits (descriptors, locked memory) to the hard ones. */
void limits_raise(void);
/* limits.descriptors_per_uid, "auto" resolved: a quarter of RLIMIT_NOFILE. */
uint32_t limits_uid_descriptors(const struct config *config);
/* Whether "auto" is less than the sessions of one uid need (limits.sessions_per_uid): @text has the
 * figures, and what to raise. */
bool limits_descriptors_are_few(const struct config *config, struct zi_text *text);
/* Capacity of the CPU tier, "auto" resolved. Refused with both figures when it is more than there
 * is, when it should be locked or huge and cannot be. */
int limits_check(const struct config *config, struct zi_text *text, uint64_t *ret_capacity_bytes);
/* With lock = require: everything that is mapped from now on, as it is touched. */
int limits_lock(const struct config *config, struct zi_text *text);
