/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to one or several places in one pass: what collectives only move. Floor 1. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void kern_copy(void *const *targets, uint32_t target_count, const void *source, uint64_t bytes,
               bool is_streaming);
