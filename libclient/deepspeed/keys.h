/* SPDX-License-Identifier: Apache-2.0 */
/* The three parts of the table of keys, for keys.c which makes one of them. Floor 2. */
#pragma once

#include <stdint.h>

#include "libclient/deepspeed/private.h"

extern const struct deepspeed_key deepspeed_keys_top[];
extern const uint32_t deepspeed_keys_top_count;
extern const struct deepspeed_key deepspeed_keys_zero[];
extern const uint32_t deepspeed_keys_zero_count;
extern const struct deepspeed_key deepspeed_keys_types[];
extern const uint32_t deepspeed_keys_types_count;
