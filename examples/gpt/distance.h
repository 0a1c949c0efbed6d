/* SPDX-License-Identifier: Apache-2.0 */
/* How far two names are from each other: for "did you mean …?". */
#pragma once

unsigned gpt_distance(const char *a, const char *b);
