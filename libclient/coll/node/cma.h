/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross memory attach: what lies outside the arenas is copied once, by its taker, straight out of
 * the private memory of the process that has it (process_vm_readv), where the kernel lets it.
 * Floor 2, private to the engine and to whoever makes groups; of the group's thread.
 *
 * Only reading: nobody's memory is written by another process. Each member offers its memory on the
 * board (struct zi_board_cma), finds out once whom it can read, and says so; whoever has a source
 * outside the arenas leaves its address instead of staging it when all of its takers read it. Who
 * then cannot read after all (the peer is gone or has shut itself off, the memory is a device's)
 * says that as well, and the call goes in pieces as if nothing had been tried.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_node_group;

struct zi_cma {
	uint64_t from_bytes; /* blocks of so many bytes are read; 0: everything is staged */

	/* the engine's own */
	/* Nobody else's: by it peers know whose memory they read. 0: nobody may any more. */
	uint64_t word;
	/* Of all members alike: so many calls from number `held_from` on are staged. */
	uint32_t held_from, held_calls;
	uint32_t hold_count; /* of mixtures so far: how long the next one holds */
};

/* From where on it is faster (make bench-coll PARTS=crossover). */
#define ZI_CMA_FROM_BYTES (256u << 10)
/* Up to where in all_gather, of two ranks only. */
#define ZI_CMA_GATHER_MAX_BYTES (4ull << 20)

/* When the group is made: leaves on the board how this member's memory is read. What cannot be had
 * means that it will not be. @group stays where it is. */
void zi_cma_offer(struct zi_node_group *group);
/* For good, before a call returns that somebody may still be reading for, and before the group is
 * freed: what is read from now on is not taken for this member's. */
void zi_cma_withdraw(struct zi_node_group *group);
/* Whether the memory of the member with part @part of the board can be read; tried once. */
bool zi_cma_reads(struct zi_node_group *group, uint32_t part);
/* Whether every member has said that it reads every other one's memory: else all is staged, for
 * where some post an address and others stage, the call begins anew. */
bool zi_cma_is_read_by_all(const struct zi_node_group *group);
/* Such a call was met, by all members: the next ones are staged, more each time. */
void zi_cma_hold(struct zi_node_group *group);
/* Whether a source with @bytes for a taker had better be read than staged, by the highest of all
 * members' thresholds. */
bool zi_cma_is_worth(const struct zi_node_group *group, const void *source, uint64_t bytes);
/* The place to post for a source of @bytes, each page of which is there then: who waits for memory
 * (a file of a server that is gone) is its owner, before it has come, as if it staged. */
uint64_t zi_cma_place_of(const void *source, uint64_t bytes);
/* Of what was posted: 0: it is no such place. */
uint64_t zi_cma_address_at(uint64_t place);
/*
 * Copies @bytes from @address of the member with part @part. @scratch: (@scratch_bytes,) that stay
 * in a core's cache, through which it goes to pass by the caches at the target; NULL: straight
 * there. Return: whether it has them, all of one process, which is the one that was asked first. If
 * not, @target is undefined, and unless the group is broken that member is not read any more.
 */
bool zi_cma_read(struct zi_node_group *group, uint32_t part, char *target, uint64_t address,
                 uint64_t bytes, char *scratch, uint64_t scratch_bytes);
