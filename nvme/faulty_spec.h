/* SPDX-License-Identifier: Apache-2.0 */
/* What the backend "faulty:SPEC" is told to do; the keys are explained in faulty.c. Private to
 * nvme/. Floor 2, any thread. 0 is "never", but for seed and error. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "nvme/faulty_rule.h"

#define NVME_FAULTY_RULES_MAX 8u

struct nvme_faulty_spec {
	char over[16];
	char path[ZI_NAME_BYTES]; /* of a store's name; "" all stores */
	uint64_t seed;
	uint64_t error; /* a positive errno */
	uint64_t read_eio_at, write_eio_at, write_lost_at;
	uint64_t read_eio_from, write_eio_from;
	uint64_t read_short_every, write_short_every, eagain_every;
	uint64_t overlong_at, bitflip_at;
	uint64_t enospc_after_bytes;
	uint64_t stall_at, stall_ms;
	uint64_t bytes_per_s;
	uint64_t is_reordering;
	struct nvme_faulty_rule rules[NVME_FAULTY_RULES_MAX];
	uint32_t rule_count;
	bool has_enospc_after_bytes; /* 0 bytes is a value */
};

/* Return: 0, or -EINVAL with a sentence that names the key or value. */
int nvme_faulty_parse(const char *text, struct zi_text *error_text,
                      struct nvme_faulty_spec *ret_spec);
