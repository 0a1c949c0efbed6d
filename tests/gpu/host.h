/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the fake GPUs know: registered, or allocated by the driver. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Is any of these bytes registered for reading alone? Takes the mutex. */
bool fake_host_is_read_only(const void *memory, uint64_t bytes);
