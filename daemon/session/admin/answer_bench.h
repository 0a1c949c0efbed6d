/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to `bench nvme`. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include "daemon/session/sess.h"

void sess_answer_bench(struct sess_inquiry *inquiry, const struct sess_bench_result *result);
