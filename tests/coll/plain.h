/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain model of collectives: what each element of each buffer is before a call, and after it,
 * as docs/ARITHMETIC.md says. One element at a time, without a line of the kernels.
 */
#pragma once

#include "tests/coll/script.h"

/* What member @member has of a call: elements of its buffers, 0 where it has none. */
struct plain_lengths {
	uint64_t source_elements, target_elements;
	/* Where in the longer buffer the shorter one lies when the call is in place; else 0. */
	uint64_t own_offset;
	bool is_target_long; /* the source lies in the target; else the reverse */
};
struct plain_lengths plain_lengths(const struct script_call *call, uint32_t members,
                                   uint32_t member);

/* Elements that member @from sends to member @to, of uneven operations. */
uint64_t plain_uneven(const struct script_call *call, uint32_t from, uint32_t to);
/* Of SCRIPT_BATCH: whether there is a message, which may be empty. */
bool plain_has_message(const struct script_call *call, uint32_t from, uint32_t to);

/* Fills @member's source. */
void plain_fill(void *source, const struct script_call *call, uint32_t members, uint32_t member);
/* Whether it is as it was filled. */
bool plain_is_source(const void *source, const struct script_call *call, uint32_t members,
                     uint32_t member);
/* The first element of @member's target that is not what the call makes of the sources;
 * UINT64_MAX: all are. @ret_bits: what is there, and what should be. */
uint64_t plain_compare(const void *target, const struct script_call *call, uint32_t members,
                       uint32_t member, uint64_t ret_bits[2]);
