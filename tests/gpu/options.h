/* SPDX-License-Identifier: Apache-2.0 */
/* What $ZINF_FAKE_GPU says; its words are in fake_gpu.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FAKE_GPUS_MAX  16u
#define FAKE_RULES_MAX 16u
#define FAKE_NAME_MAX  48u

enum fake_order { FAKE_EAGER, FAKE_LATE, FAKE_SHUFFLED };
enum fake_kind { FAKE_FAIL, FAKE_STICKY, FAKE_DELAY, FAKE_HANG, FAKE_KILL, FAKE_VANISH };

struct fake_rule {
	enum fake_kind kind;
	char place[FAKE_NAME_MAX];
	uint64_t nth; /* 0: each call */
	int value;    /* a code, or milliseconds */
};

struct fake_options {
	uint32_t gpus;
	uint64_t bytes, used_bytes, register_max_bytes;
	int mode; /* ZI_CUDA_MODE_... */
	int version;
	enum fake_order order;
	uint64_t seed;
	bool has_vmm, has_fds, has_read_only, is_mig;
	char missing[FAKE_NAME_MAX];
	char trace[256];                /* "": none */
	int broken, broken_code, stuck; /* GPUs; -1: none */
	struct fake_rule rules[FAKE_RULES_MAX];
	uint32_t rule_count;
};

/* Reads the environment at the first call; ends the process where a word is wrong. Any thread. */
const struct fake_options *fake_options(void);
