/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STREAM's triad (McCalpin, 1995), a[i] = b[i] + s × c[i] in fp32: the memory bandwidth that a
 * kernel is held against. With ordinary stores and with non-temporal ones, which spare the read of
 * the line that is about to be overwritten. 12 bytes an element as the program sees them.
 */
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"

#define TRIAD_ELEMENT_BYTES 12u

/* a, b, c: (count,) f32, aligned to 64 bytes; count a multiple of 16. */
typedef void (*triad_fn)(float *a, const float *b, const float *c, float s, uint64_t count);

/* The widest version for @isa. */
triad_fn triad_plain(enum kern_isa isa);
triad_fn triad_stream(enum kern_isa isa);
/* a[i] = a[i] + s × b[i], of the same bytes: no line is overwritten that was not read. c: unused.
 */
triad_fn triad_update(enum kern_isa isa);
