/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a snapshot that a client sends. Floor 6, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/catalog/catalog.h"

struct sess_limits;
struct zi_import_head;

struct sess_description {
	struct catalog_job
		record; /* without a name; tables are owned, blobs point into the bytes */
	bool has_state; /* optimizer state is sent too */
};

/* The largest description that @limits allow, in bytes. */
uint64_t sess_description_bytes_max(const struct sess_limits *limits);
/* Before the rest is looked at, or copied. @byte_count: of all of it, at least that of the head. 0;
 * -EPROTO, -E2BIG (more than @limits allow) with what is wrong. */
int sess_description_check_head(const struct zi_import_head *head, uint64_t byte_count,
                                const struct sess_limits *limits, struct zi_text *text);
/* @bytes: a private copy, which stays until the description is done with. 0; -EPROTO with what is
 * wrong; -ENOMEM. sess_description_free() in all cases. */
int sess_description_read(struct sess_description *description, const void *bytes,
                          uint64_t byte_count, struct zi_text *text);
void sess_description_free(struct sess_description *description);
