/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over nodes that have no room in memory: each lies in a slot (grad/spill.h) from its first
 * piece until it is written, where its state is here, and all nodes that need it have been given
 * it. Floor 5, shard thread.
 *
 *   who finishes it      a slot ◀─ pieces ─▶ made ─▶ written, given ─▶ the next one's
 *   who needs it         READY ─▶ a slot ◀─ pieces ─▶ came ─▶ written ─▶ the next one's
 *
 * Nobody waits in a ring: what comes has slots of its own, and whoever takes one has all of the sum
 * given to it, whatever else waits; so slots of what is made come free as soon as others have room
 * for it, and the disk has taken it.
 */
#pragma once

struct zero_job;

/* A slot is free: what waits for one begins. */
void grads_spill_more(struct zero_job *job);
