/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file or device really does direct I/O. Private to nvme/. Floor 2, any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Sets O_DIRECT on @fd where it is real. @ret_align_bytes: of memory, offsets and lengths; 1 when
 * not direct, ZI_STORE_ALIGN_BYTES when the kernel does not say. */
int nvme_direct_enable(int fd, bool *ret_is_direct, uint32_t *ret_align_bytes);
