/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of what a rank reads or writes unit by unit outside of steps. Floor 5, shard thread.
 */
#pragma once

#include "common/base/types.h"

struct zero_rank;

void stream_drop(struct zero_rank *rank);
