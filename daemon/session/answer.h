/* SPDX-License-Identifier: Apache-2.0 */
/* Building the JSON of answers. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct sess_facts;
struct sess_inquiry;
struct sess_shard;

static inline json_t *answer_integer(uint64_t value)
{
	/* JSON's integers are signed here; "no limit" is the largest of them. */
	return json_integer((json_int_t)ZI_MIN(value, (uint64_t)INT64_MAX));
}

static inline void answer_put(json_t *object, const char *key, json_t *value)
{
	/* Fails with no memory, or with a value that failed: the answer says so. */
	if (json_object_set_new(object, key, value))
		(void)json_object_set_new(object, "error", json_string("out of memory"));
}

static inline void answer_number(json_t *object, const char *key, uint64_t value)
{
	answer_put(object, key, answer_integer(value));
}

static inline void answer_word(json_t *object, const char *key, const char *value)
{
	answer_put(object, key, json_string(value));
}

/* answer_bench.c. */
struct sess_bench_result;
void sess_answer_bench(struct sess_inquiry *inquiry, const struct sess_bench_result *result);
/* answer_snapshots.c */
json_t *sess_answer_snapshot_list(struct sess_shard *shard, uid_t uid,
                                  const struct sess_inquiry *inquiry);
/* answer_jobs.c. NULL: inquiry->result and ->text say why. */
json_t *sess_answer_jobs(struct sess_shard *shard, uid_t uid, struct sess_inquiry *inquiry);

/* answer_tiers.c */
json_t *sess_answer_drain(struct sess_shard *shard, const struct sess_facts *facts,
                          struct sess_inquiry *inquiry);
json_t *sess_answer_tiers(struct sess_shard *shard, const struct sess_facts *facts);
