/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed memfds: created, sized, fully allocated and sealed against SHRINK, GROW and SEAL before
 * anyone else sees them; a seal that fails fails the region (an unsealed file lets a peer truncate
 * it under us: SIGBUS). Mode 0600. Mapping with 2 MiB alignment so that huge pages can back it.
 * Floor 1, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum zi_region_pages { ZI_PAGES_SMALL = 0, ZI_PAGES_COLLAPSED = 1, ZI_PAGES_HUGETLB = 2 };

struct zi_region {
	int fd; /* -1: none */
	void *base;
	uint64_t bytes; /* mapped and allocated: whole pages of its kind */
	enum zi_region_pages pages;
};

#define ZI_REGION_INIT   \
	{                \
		.fd = -1 \
	}

/* Says where pages of a mapping are to come from, before the first one is there. A hint. */
struct zi_region_place {
	void (*bind)(void *arg, void *base, uint64_t bytes);
	void *arg;
};

/* Makes a region of at least @bytes (rounded up to whole pages), mapped read-write, MADV_DONTFORK.
 * @want: HUGETLB tries the pool of huge pages first and falls back silently (ret->pages says what
 * it became: HUGETLB or SMALL; collapsing is zi_region_collapse()). fallocate()s everything:
 * -ENOSPC,
 * -ENOMEM. */
int zi_region_create(const char *name, uint64_t bytes, enum zi_region_pages want,
                     const struct zi_region_place *place, struct zi_region *ret_region);
/* Touches all pages and asks for transparent huge pages (MADV_COLLAPSE); on helper threads, before
 * the region is registered anywhere. Sets pages to COLLAPSED when all of it became huge. Never
 * fails hard. */
void zi_region_collapse(struct zi_region *region);
/* Unmaps, punches every page out (whoever else has the memory then sees zeros), and closes; accepts
 * ZI_REGION_INIT. */
void zi_region_destroy(struct zi_region *region);
/* Unmaps and closes: the pages stay with whoever else has the memory. */
void zi_region_abandon(struct zi_region *region);

/* -EPROTO unless a received descriptor is a memfd with all seals and at least @bytes, which are
 * whole pages of its kind. */
int zi_region_check(int fd, uint64_t bytes);
/* The other side: checks seals, size and kind of a received descriptor, maps @bytes of it. With
 * @is_writable false the map is PROT_READ. @fd stays the caller's. -EPROTO when it is not what was
 * said. */
int zi_region_map(int fd, uint64_t bytes, bool is_writable, void **ret_base);
/* Reserves address space (PROT_NONE), aligned to ZI_HUGE_PAGE_BYTES. */
int zi_region_reserve(uint64_t bytes, void **ret_base);
/* Maps part of @fd over a reservation (MAP_FIXED); @fd -1 puts the bare reservation back. */
int zi_region_map_at(void *address, uint64_t bytes, int fd, uint64_t offset_bytes,
                     bool is_writable);
int zi_region_unmap(void *base, uint64_t bytes);
