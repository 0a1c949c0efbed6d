/* SPDX-License-Identifier: Apache-2.0 */
/* How rows of the table of keys are written, one macro for each type; what follows the positional
 * ones are fields of struct deepspeed_key. Included by keys_*.c alone. Floor 2. */
#pragma once

#include "libclient/deepspeed/private.h"

/* The largest count that JSON has; and what may stand in a 32-bit word of an options struct. */
#define COUNT_MAX 9223372036854775807.0
#define WORD_MAX  2147483647.0
/* About the largest f32, in which steps are made; products of such numbers are finite. */
#define NUMBER_MAX 1e38

#define ROW(type_, path_, kind_, standard_, ...)                                     \
	{                                                                            \
		.path = path_, .type = DEEPSPEED_##type_, .kind = DEEPSPEED_##kind_, \
		.standard = standard_, __VA_ARGS__                                   \
	}
#define OBJECT(path_, ...)                 ROW(OBJECT, path_, USE, "null", __VA_ARGS__)
#define WHOLE(path_, kind_, ...)           ROW(WHOLE, path_, kind_, "null", __VA_ARGS__)
#define BOOL(path_, kind_, standard_, ...) ROW(BOOL, path_, kind_, standard_, __VA_ARGS__)
#define TEXT(path_, kind_, ...)            ROW(TEXT, path_, kind_, "null", __VA_ARGS__)
#define CHOICE(path_, kind_, standard_, ...) \
	ROW(CHOICE, path_, kind_, standard_, .choices = __VA_ARGS__)
#define COUNT(path_, kind_, standard_, low_, high_, ...) \
	ROW(COUNT, path_, kind_, standard_, .low = low_, .high = high_, __VA_ARGS__)
#define NUMBER(path_, kind_, standard_, low_, high_, ...) \
	ROW(NUMBER, path_, kind_, standard_, .low = low_, .high = high_, __VA_ARGS__)
