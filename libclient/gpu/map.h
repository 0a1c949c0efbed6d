/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory that the daemon's worker made, in the address space of the rank. Floor 2.
 *
 * Each chunk is received and imported once. Each unit has a range of addresses of its own, mapped
 * once, onto its chunks of the ring; in an arena that is smaller than the model ranges of several
 * units show the same chunks. The mappings keep the memory, so descriptors and handles are given
 * back as soon as all is mapped.
 */
#pragma once

struct zinf;

/* Asks the daemon what the GPU has room for; see zi_client_gpu.free_bytes. Return: 0; the daemon's
 * refusal; -EPROTO. */
int zi_gpu_map_ask(struct zinf *zinf);
/* Unmaps all units, with nothing under way. Accepts what was never mapped. */
void zi_gpu_map_free(struct zinf *zinf);
