/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory in pages of each kind, as zinfd has it in its segments. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum pages_kind { PAGES_SMALL, PAGES_COLLAPSED, PAGES_HUGETLB, _PAGES_COUNT };

extern const char *const pages_names[_PAGES_COUNT];

struct pages {
	void *base;
	uint64_t bytes;
	const char *lack; /* NULL; why there is none */
};

/* A memfd of @bytes, a multiple of 2 MiB, at a multiple of 2 MiB; every page is there. With
 * @is_read_only it is mapped PROT_READ. pages_unmap() it, also where there is none. */
struct pages pages_map(enum pages_kind kind, uint64_t bytes, bool is_read_only);
void pages_unmap(struct pages *pages);
