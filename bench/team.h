/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team of threads, one pinned to each CPU this process may use, that runs a piece of work
 * together and says how long it took from the first start to the last end.
 */
#pragma once

#include <stdint.h>

#define TEAM_MEMBERS_MAX 256u

/* @member of @member_count does its share of @work. */
typedef void (*team_fn)(void *work, unsigned member, unsigned member_count);

struct team;

/* NULL: errno says why. */
struct team *team_new(void);
unsigned team_member_count(const struct team *team);
/* Runs on the first @member_count members; returns nanoseconds. */
uint64_t team_run(struct team *team, team_fn function, void *work, unsigned member_count);
struct team *team_free(struct team *team);
