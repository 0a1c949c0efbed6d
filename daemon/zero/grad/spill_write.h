/* SPDX-License-Identifier: Apache-2.0 */
/* A sum in its slot, written to its extent; and what says that it came back as it was. Floor 5;
 * shard thread, but for checksums. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "daemon/zero/grad/spill.h"

struct zero_subgroup;

/* Device thread: its checksums. */
void spill_hash(const struct zero_subgroup *subgroup, const void *sum);
/* Device thread: is a tile of it what was written? -EBADMSG with where it lies. */
int spill_verify(const struct zero_subgroup *subgroup, const void *sum, uint32_t tile,
                 struct zi_text *text);
/* It is made, with its checksums. @ended follows, maybe at once; the slot is its caller's. */
void spill_write(struct zero_subgroup *subgroup, spill_ended_fn ended);
/* It is made, without them. @ended follows, from the loop. */
void spill_store(struct zero_subgroup *subgroup, spill_ended_fn ended);
