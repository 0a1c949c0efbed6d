/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers from the command line and the environment: the whole text must be one. */
#pragma once

#include <stdint.h>

int gpt_parse_u64(const char *text, uint64_t *ret_value);
int gpt_parse_f64(const char *text, double *ret_value);
int gpt_parse_bytes(const char *text, uint64_t *ret_bytes);
