/* SPDX-License-Identifier: Apache-2.0 */
/* A process that does with its own GPU memory what ends badly, and is killed. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "tests/gpu/device/peer.h"

struct trial;

enum victim_deed {
	VICTIM_SPIN,    /* a kernel that never ends */
	VICTIM_ILLEGAL, /* a kernel writes where no memory is */
	VICTIM_COPIES,  /* copies both ways, without end */
};

struct victim_news {
	int64_t error; /* 0: the deed was begun; the -errno that the victim was told, with text */
	uint64_t after_ns; /* from the launch on */
	struct zi_text text;
};

/* Returns when the deed was begun. Return: 0; -errno with @text. */
int victim_start(const struct trial *trial, enum victim_deed deed, struct peer *ret_victim,
                 struct zi_text *text);
/* VICTIM_ILLEGAL: what the victim was told, within a minute. Return: 0; -errno. */
int victim_hear(const struct peer *victim, struct victim_news *ret_news);
