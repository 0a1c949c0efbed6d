/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of ranks that take their time. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/job/gather.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_rank;

/* Opcodes of calls that do not come through the ring. */
enum {
	ZERO_OP_MATERIALIZE = _ZI_OP_COUNT,
	ZERO_OP_WRITE_BEGIN,
	ZERO_OP_WRITE_END,
	ZERO_OP_DESTROY,
	ZERO_OP_TENSOR_OPEN,
	ZERO_OP_COLL_OPEN,
	ZERO_OP_COLL_GROUP,
	ZERO_OP_STATE_OPEN,
	ZERO_OP_STATE_READ,
	ZERO_OP_STATE_WRITE,
	ZERO_OP_STATE_COUNT,
	_ZERO_OP_COUNT
};

/* Fills the private part; false when the op was completed because the rank is out. */
bool op_begin(struct zero_rank *rank, struct zero_op *op, uint16_t opcode);
void op_complete(struct zero_op *op, int result);
void op_fail(struct zero_op *op, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void op_wait(struct zero_op *op); /* pending from now on, with the rank's timeout */
uint64_t op_deadline_ns(const struct zero_op *op);
uint64_t op_timeout_ns(const struct zero_op *op);
/* It waits until then instead. */
void op_prolong(struct zero_op *op, uint64_t deadline_ns);
/* Looks again at every op that waits for the daemon (unshard, grad_acquire, step_begin). */
void ops_retry(struct zero_job *job);
const char *op_name(uint16_t opcode);
bool op_has_unit(uint16_t opcode);
/* Ends what waits on a rank's behalf, at once: ops pending and completed. */
void ops_cancel(struct zero_rank *rank);
