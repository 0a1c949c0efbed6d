/* SPDX-License-Identifier: Apache-2.0 */
/* Reserved addresses of the fake GPUs, and what is mapped there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* May the GPU read (@is_write: write) all of these bytes? Takes the mutex. */
bool fake_range_is_usable(uint64_t address, uint64_t bytes, bool is_write);
