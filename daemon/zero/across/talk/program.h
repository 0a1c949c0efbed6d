/* SPDX-License-Identifier: Apache-2.0 */
/* Where the worker zinf-net lies. Floor 5, any thread. */
#pragma once

#include <stddef.h>

#include "common/base/text.h"

/* Beside zinfd, built or installed. -ENOENT with @text. */
int net_program(char *path, size_t capacity, struct zi_text *text);
