/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of tier share: a memory tier, a uid's account and a job's below it. */
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/tier/account.h"
#include "daemon/tier/tier.h"

#define MIB (1ull << 20)

struct fixture {
	struct tier tier;
	struct tier_account uid, job;
	struct zi_text text;
};

static inline void fixture_init(struct fixture *fixture, uint64_t capacity_bytes)
{
	*fixture = (struct fixture){ .text = { "" } };
	tier_init_cpu(&fixture->tier, 0, capacity_bytes, NULL, false);
	tier_account_init(&fixture->uid, "uid 1000", NULL);
	tier_account_init(&fixture->job, "job train", &fixture->uid);
}

static inline void fixture_deinit(struct fixture *fixture)
{
	tier_account_deinit(&fixture->job);
	tier_account_deinit(&fixture->uid);
	tier_deinit(&fixture->tier);
}

#define says(fixture, word) \
	cr_assert_not_null(strstr((fixture)->text.chars, word), "'%s'", (fixture)->text.chars)
