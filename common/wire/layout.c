/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of the session's two regions, the names of opcodes, and the asserts that hold the layout in
 * place: a field that moves breaks the build here before it breaks a peer. Floor 1, pure.
 */
#include "common/wire/layout.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"

/* Regions are small files of base pages, whatever the planes use. */
#define LAYOUT_PAGE_BYTES 4096u

static_assert(sizeof(struct zi_uplink_header) <= ZI_UPLINK_SQ_OFFSET, "header before slots");
static_assert(sizeof(struct zi_downlink_header) <= ZI_DOWNLINK_CQ_OFFSET, "header before slots");
static_assert(ZI_UPLINK_SQ_OFFSET % ZI_SLOT_BYTES == 0, "a slot is one cache line");
static_assert(ZI_DOWNLINK_CQ_OFFSET % ZI_SLOT_BYTES == 0, "a slot is one cache line");
static_assert(!(ZI_RING_ENTRIES & (ZI_RING_ENTRIES - 1)), "a power of two");
static_assert(ZI_RING_ENTRIES <= ZI_RING_ENTRIES_MAX, "the default is within the limit");

static_assert(offsetof(struct zi_sqe, opcode) == 8, "sqe");
static_assert(offsetof(struct zi_sqe, unit) == 12, "sqe");
static_assert(offsetof(struct zi_sqe, args) == 16, "sqe");
static_assert(offsetof(struct zi_cqe, result) == 8, "cqe");
static_assert(offsetof(struct zi_cqe, text_index) == 12, "cqe");
static_assert(offsetof(struct zi_cqe, values) == 16, "cqe");
static_assert(offsetof(struct zi_uplink_header, sq_tail) == 64, "uplink");
static_assert(offsetof(struct zi_uplink_header, cq_head) == 128, "uplink");
static_assert(offsetof(struct zi_uplink_header, cq_need_wakeup) == 192, "uplink");
static_assert(offsetof(struct zi_uplink_header, step_options) == 256, "uplink");
static_assert(offsetof(struct zi_downlink_header, sq_head) == 64, "downlink");
static_assert(offsetof(struct zi_downlink_header, cq_tail) == 128, "downlink");
static_assert(offsetof(struct zi_downlink_header, sq_need_wakeup) == 192, "downlink");
static_assert(offsetof(struct zi_downlink_header, spin_us) == 256, "downlink");
static_assert(offsetof(struct zi_downlink_header, broken) == 320, "downlink");
static_assert(offsetof(struct zi_downlink_header, stats) == 384, "downlink");
static_assert(offsetof(struct zi_step_options, micro_batches) == 56, "step options");
static_assert(offsetof(struct zi_step_options, flags) == 60, "step options");
static_assert(offsetof(struct zi_step_stats, norm) == 16, "step statistics");
static_assert(offsetof(struct zi_step_stats, read_bytes) == 32, "step statistics");
static_assert(offsetof(struct zi_step_stats, commit_ns) == 96, "step statistics");
static_assert(offsetof(struct zi_step_stats, update_count) == 112, "step statistics");
static_assert(offsetof(struct zi_step_options, lr_decay) == 64, "step options");

static const char *const opcode_names[_ZI_OP_COUNT] = {
	[ZI_OP_NOP] = "nop",
	[ZI_OP_UNSHARD] = "unshard",
	[ZI_OP_RESHARD] = "reshard",
	[ZI_OP_PREFETCH] = "prefetch",
	[ZI_OP_GRAD_ACQUIRE] = "grad_acquire",
	[ZI_OP_REDUCE] = "reduce",
	[ZI_OP_STEP_BEGIN] = "step_begin",
	[ZI_OP_STEP] = "step",
	[ZI_OP_COMMIT] = "commit",
	[ZI_OP_BARRIER] = "barrier",
	[ZI_OP_TENSOR_ALLOC] = "tensor_alloc",
	[ZI_OP_TENSOR_PUT] = "tensor_put",
	[ZI_OP_TENSOR_PREFETCH] = "tensor_prefetch",
	[ZI_OP_TENSOR_GET] = "tensor_get",
	[ZI_OP_TENSOR_RELEASE] = "tensor_release",
	[ZI_OP_TENSOR_FREE] = "tensor_free",
	[ZI_OP_GRAD_UNUSED] = "grad_unused",
	[ZI_OP_CANCEL] = "cancel",
	[ZI_OP_STEP_OPTIONS] = "step_with",
	[ZI_OP_GRAD_NORM] = "grad_norm",
	[ZI_OP_STEP_DISCARD] = "step_discard",
	[ZI_OP_UNSHARD_PART] = "unshard_part",
};

static void assert_entries(uint32_t entries)
{
	assert(entries > 0);
	assert(entries <= ZI_RING_ENTRIES_MAX);
	assert(!(entries & (entries - 1)));
	(void)entries; /* Only asserted. */
}

/* Return: bytes of the uplink of a ring with @entries slots: header, SQ, resume blob, groups, their
 * betas; whole pages. */
uint64_t zi_uplink_bytes(uint32_t entries)
{
	assert_entries(entries);
	return zi_align_up(zi_uplink_betas_offset(entries) +
	                           ZI_PARAM_GROUPS_MAX * sizeof(struct zi_step_betas),
	                   LAYOUT_PAGE_BYTES);
}

/* Return: bytes of the downlink: header, CQ, ZI_TEXT_SLOTS error texts; whole pages. */
uint64_t zi_downlink_bytes(uint32_t entries)
{
	uint64_t texts_bytes = (uint64_t)ZI_TEXT_SLOTS * ZI_ERROR_TEXT_BYTES;

	assert_entries(entries);
	return zi_align_up(zi_downlink_text_offset(entries) + texts_bytes, LAYOUT_PAGE_BYTES);
}

/* Return: the word for @opcode in logs and traces; "?" when it is none. */
const char *zi_opcode_name(uint16_t opcode)
{
	return opcode < ZI_COUNT_OF(opcode_names) ? opcode_names[opcode] : "?";
}
