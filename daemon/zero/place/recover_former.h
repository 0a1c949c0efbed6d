/* SPDX-License-Identifier: Apache-2.0 */
/* The commit before the one in force, from the catalog. Floor 5, before the loop runs. */
#pragma once

#include <stdint.h>

struct catalog_job;
struct zero_job;

struct recovered_formers {
	struct recovered_former {
		struct zero_job *job;
		struct catalog_job *record;
	} * items; /* (count,) */
	uint32_t count;
};

/* @job: recovered; the one of @stored is taken over. 0; -ENOMEM. */
int recover_former_later(struct recovered_formers *formers, struct zero_job *job,
                         struct catalog_job *stored);
/* When everything that is in force has claimed its space. What cannot be had any more is left out.
 * 0; -ENOMEM. */
int recover_formers(const struct recovered_formers *formers);
void recover_formers_free(struct recovered_formers *formers);
