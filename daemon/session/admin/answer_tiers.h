/* SPDX-License-Identifier: Apache-2.0 */
/* The answers to `tiers`, `drain`, `undrain`. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <jansson.h>

#include "daemon/session/sess.h"

/* All tiers, with the paths of those on NVMe. */
json_t *sess_answer_tiers(struct sess_shard *shard, const struct sess_facts *facts);
/* `ending_pid` and `ending_s` of a zinf-gpu that was killed at @killed_ns. @pid: 0: null. */
void sess_answer_ending(json_t *object, pid_t pid, uint64_t killed_ns);
/* `drain`, `undrain`. NULL: inquiry->result and ->text say why. */
json_t *sess_answer_drain(struct sess_shard *shard, const struct sess_facts *facts,
                          struct sess_inquiry *inquiry);
