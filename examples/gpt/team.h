/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that compute for one rank: its own thread and the team's workers. Work is cut into
 * parts, which the threads take as they come; the rank's own thread takes parts as well, so that a
 * worker that gets no CPU delays nobody. Which thread computes a part never changes a bit.
 */
#pragma once

#include <stdint.h>

struct gpt_team;

/* @scratch: memory of the thread that computes the part. */
typedef void (*gpt_part_fn)(void *arg, uint64_t part, void *scratch);

uint32_t gpt_team_default_threads(uint32_t rank_count);
struct gpt_team *gpt_team_new(uint32_t thread_count, uint64_t shared_bytes, uint64_t scratch_bytes);
struct gpt_team *gpt_team_free(struct gpt_team *team);

uint32_t gpt_team_thread_count(const struct gpt_team *team);
void *gpt_team_shared(struct gpt_team *team);
void gpt_team_run(struct gpt_team *team, uint64_t part_count, gpt_part_fn compute, void *arg);
