/* SPDX-License-Identifier: Apache-2.0 */
/* From when on a call passes by the cache. Floor 2. */
#pragma once

#include <stdint.h>

/* Bytes of all buffers of a call, by the last cache of the CPU that asks. */
uint64_t zi_client_streaming_bytes(void);
