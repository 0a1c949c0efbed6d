/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: docs/PROTOCOL.md tells the truth: every offset, size and number in its tables is the
 * code's, and no field, message or opcode is missing. Method: the page is read line by line; a row
 * of a struct's table is compared with offsetof and sizeof, rows must touch each other, and every
 * field of the list below must have been met. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/wire/board.h"
#include "common/wire/control.h"
#include "common/wire/gpu.h"
#include "common/wire/layout.h"
#include "common/wire/state.h"
#include "common/wire/training.h"
#include "common/wire/verdict.h"

#define FIELD(type, member)                                                         \
	{                                                                           \
#type, #member, sizeof(struct type), offsetof(struct type, member), \
			sizeof(((struct type *)NULL)->member)                       \
	}

static const struct {
	const char *type, *member;
	size_t type_bytes, offset, bytes;
} fields[] = {
	FIELD(zi_message_header, magic),
	FIELD(zi_message_header, type),
	FIELD(zi_message_header, flags),
	FIELD(zi_message_header, bytes),
	FIELD(zi_message_header, sequence),
	FIELD(zi_hello, header),
	FIELD(zi_hello, major),
	FIELD(zi_hello, minor),
	FIELD(zi_hello, coll_version),
	FIELD(zi_hello, features),
	FIELD(zi_hello, program),
	FIELD(zi_hello, reserved),
	FIELD(zi_job_config, param_dtype),
	FIELD(zi_job_config, grad_dtype),
	FIELD(zi_job_config, optimizer),
	FIELD(zi_job_config, schedule),
	FIELD(zi_job_config, offload_optimizer),
	FIELD(zi_job_config, offload_param),
	FIELD(zi_job_config, durability),
	FIELD(zi_job_config, commit_interval),
	FIELD(zi_job_config, resident_bytes),
	FIELD(zi_job_config, staging_bytes),
	FIELD(zi_job_config, param_budget_bytes),
	FIELD(zi_job_config, io_weight),
	FIELD(zi_job_config, snapshot_interval),
	FIELD(zi_job_config, snapshot_keep),
	FIELD(zi_job_config, reserved0),
	FIELD(zi_job_config, reserved),
	FIELD(zi_attach, header),
	FIELD(zi_attach, job),
	FIELD(zi_attach, incarnation),
	FIELD(zi_attach, rank),
	FIELD(zi_attach, world_size),
	FIELD(zi_attach, flags),
	FIELD(zi_attach, timeout_ms),
	FIELD(zi_attach, config),
	FIELD(zi_attach, local_world_size),
	FIELD(zi_attach, reserved0),
	FIELD(zi_attach, reserved),
	FIELD(zi_job_training, strategy),
	FIELD(zi_job_training, shard_size),
	FIELD(zi_job_training, accumulation),
	FIELD(zi_job_training, reduce_dtype),
	FIELD(zi_job_training, scaler_kind),
	FIELD(zi_job_training, scale_window),
	FIELD(zi_job_training, scale_hysteresis),
	FIELD(zi_job_training, flags),
	FIELD(zi_job_training, group_count),
	FIELD(zi_job_training, reserved0),
	FIELD(zi_job_training, grad_budget_bytes),
	FIELD(zi_job_training, scale_init),
	FIELD(zi_job_training, scale_min),
	FIELD(zi_job_training, scale_max),
	FIELD(zi_job_training, scale_growth),
	FIELD(zi_job_training, scale_backoff),
	FIELD(zi_job_training, reserved),
	FIELD(zi_attached, header),
	FIELD(zi_attached, session_id),
	FIELD(zi_attached, ring_entries),
	FIELD(zi_attached, coll_timeout_ms),
	FIELD(zi_attached, uplink_bytes),
	FIELD(zi_attached, downlink_bytes),
	FIELD(zi_attached, incarnation_number),
	FIELD(zi_attached, lost_step),
	FIELD(zi_attached, reserved),
	FIELD(zi_layout, header),
	FIELD(zi_layout, entry_count),
	FIELD(zi_layout, reserved),
	FIELD(zi_layout_entry, kind),
	FIELD(zi_layout_entry, group),
	FIELD(zi_layout_entry, dim_count),
	FIELD(zi_layout_entry, name),
	FIELD(zi_layout_entry, shape),
	FIELD(zi_materialize, header),
	FIELD(zi_materialize, unit_count),
	FIELD(zi_materialize, param_count),
	FIELD(zi_rendezvous, port),
	FIELD(zi_rendezvous, reserved),
	FIELD(zi_rendezvous, host),
	FIELD(zi_rendezvous, interface),
	FIELD(zi_rendezvous, token),
	FIELD(zi_materialized, header),
	FIELD(zi_materialized, committed_step),
	FIELD(zi_materialized, slot_bytes),
	FIELD(zi_materialized, param_bytes),
	FIELD(zi_materialized, grad_bytes),
	FIELD(zi_materialized, flags),
	FIELD(zi_materialized, reserved0),
	FIELD(zi_materialized, loss_scale),
	FIELD(zi_materialized, update_count),
	FIELD(zi_materialized, reserved),
	FIELD(zi_param_write_begin, header),
	FIELD(zi_param_write_begin, unit),
	FIELD(zi_param_write_begin, reserved),
	FIELD(zi_param_write, header),
	FIELD(zi_param_write, bytes),
	FIELD(zi_param_write_end, header),
	FIELD(zi_param_write_end, unit),
	FIELD(zi_param_write_end, root),
	FIELD(zi_blob, header),
	FIELD(zi_blob, total_bytes),
	FIELD(zi_error_message, header),
	FIELD(zi_error_message, error),
	FIELD(zi_error_message, reserved),
	FIELD(zi_error_message, text),
	FIELD(zi_notice, header),
	FIELD(zi_notice, error),
	FIELD(zi_notice, rank),
	FIELD(zi_notice, text),
	FIELD(zi_admin, header),
	FIELD(zi_admin, command),
	FIELD(zi_load, header),
	FIELD(zi_load, job),
	FIELD(zi_load, name),
	FIELD(zi_load, reserved),
	FIELD(zi_snapshot, header),
	FIELD(zi_snapshot, name),
	FIELD(zi_snapshot, flags),
	FIELD(zi_snapshot, keep_count),
	FIELD(zi_snapshot, reserved),
	FIELD(zi_snapshotted, header),
	FIELD(zi_snapshotted, name),
	FIELD(zi_snapshotted, step),
	FIELD(zi_snapshotted, held_bytes),
	FIELD(zi_snapshotted, reserved),
	FIELD(zi_state_opened, header),
	FIELD(zi_state_opened, bytes),
	FIELD(zi_state_opened, reserved),
	FIELD(zi_state_range, header),
	FIELD(zi_state_range, unit),
	FIELD(zi_state_range, kind),
	FIELD(zi_state_range, first),
	FIELD(zi_state_range, count),
	FIELD(zi_state_range, root),
	FIELD(zi_state_range, reserved0),
	FIELD(zi_state_range, reserved),
	FIELD(zi_state_count, header),
	FIELD(zi_state_count, update_count),
	FIELD(zi_state_count, beta1),
	FIELD(zi_state_count, beta2),
	FIELD(zi_state_count, reserved),
	FIELD(zi_tensor_open, header),
	FIELD(zi_tensor_open, budget_bytes),
	FIELD(zi_tensor_open, reserved),
	FIELD(zi_tensor_opened, header),
	FIELD(zi_tensor_opened, bytes),
	FIELD(zi_tensor_opened, reserved),
	FIELD(zi_coll_open, header),
	FIELD(zi_coll_open, arena_bytes),
	FIELD(zi_coll_open, timeout_ms),
	FIELD(zi_coll_open, rendezvous_port),
	FIELD(zi_coll_open, rendezvous_host),
	FIELD(zi_coll_open, interface),
	FIELD(zi_coll_open, call_timeout_ms),
	FIELD(zi_coll_open, error),
	FIELD(zi_coll_open, token),
	FIELD(zi_coll_open, asked_bytes),
	FIELD(zi_coll_open, reason),
	FIELD(zi_coll_open, reserved),
	FIELD(zi_coll_opened, header),
	FIELD(zi_coll_opened, arena_bytes),
	FIELD(zi_coll_opened, verdict_bytes),
	FIELD(zi_coll_opened, arenas_bytes),
	FIELD(zi_coll_opened, board_bytes),
	FIELD(zi_coll_opened, member_count),
	FIELD(zi_coll_opened, node_count),
	FIELD(zi_coll_opened, slab_bytes),
	FIELD(zi_coll_opened, node),
	FIELD(zi_coll_opened, reserved0),
	FIELD(zi_coll_opened, nodes),
	FIELD(zi_coll_opened, reserved),
	FIELD(zi_coll_group, header),
	FIELD(zi_coll_group, members),
	FIELD(zi_coll_group, timeout_ms),
	FIELD(zi_coll_group, error),
	FIELD(zi_coll_group, reason),
	FIELD(zi_coll_group, name),
	FIELD(zi_coll_grouped, header),
	FIELD(zi_coll_grouped, group),
	FIELD(zi_coll_grouped, self),
	FIELD(zi_coll_grouped, member_count),
	FIELD(zi_coll_grouped, reserved0),
	FIELD(zi_coll_grouped, board_bytes),
	FIELD(zi_coll_grouped, slab_bytes),
	FIELD(zi_coll_grouped, reserved),
	FIELD(zi_coll_group_free, header),
	FIELD(zi_coll_group_free, group),
	FIELD(zi_coll_group_free, reserved0),
	FIELD(zi_coll_fail, header),
	FIELD(zi_coll_fail, group),
	FIELD(zi_coll_fail, sequence),
	FIELD(zi_coll_fail, error),
	FIELD(zi_coll_fail, culprit),
	FIELD(zi_coll_fail, timeout_ms),
	FIELD(zi_coll_fail, operation),
	FIELD(zi_coll_fail, dtype),
	FIELD(zi_coll_fail, reduce_op),
	FIELD(zi_coll_fail, reserved0),
	FIELD(zi_coll_fail, element_count),
	FIELD(zi_coll_fail, root),
	FIELD(zi_coll_fail, reserved1),
	FIELD(zi_coll_fail, reserved),
	FIELD(zi_coll_abort, header),
	FIELD(zi_coll_abort, group),
	FIELD(zi_coll_abort, reserved0),
	FIELD(zi_coll_abort, reason),
	FIELD(zi_coll_abort, reserved),
	FIELD(zi_gpu_open, header),
	FIELD(zi_gpu_open, uuid),
	FIELD(zi_gpu_open, chunk_bytes),
	FIELD(zi_gpu_open, param_chunk_count),
	FIELD(zi_gpu_open, grad_chunk_count),
	FIELD(zi_gpu_open, flags),
	FIELD(zi_gpu_open, reserved0),
	FIELD(zi_gpu_open, reserved),
	FIELD(zi_gpu_opened, header),
	FIELD(zi_gpu_opened, granularity_bytes),
	FIELD(zi_gpu_opened, capacity_bytes),
	FIELD(zi_gpu_opened, free_bytes),
	FIELD(zi_gpu_opened, chunk_bytes),
	FIELD(zi_gpu_opened, param_chunk_count),
	FIELD(zi_gpu_opened, grad_chunk_count),
	FIELD(zi_gpu_opened, reserved),
	FIELD(zi_gpu_chunks, header),
	FIELD(zi_gpu_chunks, first),
	FIELD(zi_gpu_chunks, count),
	FIELD(zi_gpu_chunks, reserved),
	FIELD(zi_verdicts, spin_us),
	FIELD(zi_verdicts, numa),
	FIELD(zi_verdicts, beside_us),
	FIELD(zi_verdicts, reserved),
	FIELD(zi_verdicts, groups),
	FIELD(zi_board_member, posts),
	FIELD(zi_board_member, finished),
	FIELD(zi_board_member, sleeping),
	FIELD(zi_board_member, step),
	FIELD(zi_board_member, mail),
	FIELD(zi_board_member, alarm),
	FIELD(zi_board_member, cma),
	FIELD(zi_board_member, reserved0),
	FIELD(zi_board_member, refusals),
	FIELD(zi_board_member, refused),
	FIELD(zi_board_member, inlined),
	FIELD(zi_board_member, sends),
	FIELD(zi_board_member, takes),
	FIELD(zi_board_cma, pid),
	FIELD(zi_board_cma, unread),
	FIELD(zi_board_cma, word_address),
	FIELD(zi_board_cma, word),
	FIELD(zi_board_cma, from_bytes),
	FIELD(zi_board_cma, tried),
	FIELD(zi_board_cma, reads),
	FIELD(zi_board_cma, reserved),
	FIELD(zi_board_post, sequence),
	FIELD(zi_board_post, payload_bytes),
	FIELD(zi_board_post, unseen),
	FIELD(zi_board_post, call),
	FIELD(zi_board_post, payload),
	FIELD(zi_board_post, staging),
	FIELD(zi_board_call, operation),
	FIELD(zi_board_call, dtype),
	FIELD(zi_board_call, reduce_op),
	FIELD(zi_board_call, flags),
	FIELD(zi_board_call, root),
	FIELD(zi_board_call, element_count),
	FIELD(zi_board_call, source),
	FIELD(zi_board_call, target),
	FIELD(zi_board_send, sequence),
	FIELD(zi_board_send, filled),
	FIELD(zi_board_send, element_count),
	FIELD(zi_board_send, source),
	FIELD(zi_board_send, staging),
	FIELD(zi_board_send, piece_bytes),
	FIELD(zi_board_send, dtype),
	FIELD(zi_board_send, is_over),
	FIELD(zi_board_send, reserved0),
	FIELD(zi_board_send, deadline_ns),
	FIELD(zi_board_send, timeout_ms),
	FIELD(zi_board_send, refused),
	FIELD(zi_board_send, refusal),
	FIELD(zi_board_send, base),
	FIELD(zi_board_take, sequence),
	FIELD(zi_board_take, done),
	FIELD(zi_board_take, emptied),
	FIELD(zi_board_take, dtype),
	FIELD(zi_board_take, refused_dtype),
	FIELD(zi_board_take, reserved0),
	FIELD(zi_board_take, element_count),
	FIELD(zi_board_take, refused_count),
	FIELD(zi_board_take, deadline_ns),
	FIELD(zi_board_take, timeout_ms),
	FIELD(zi_board_take, refused),
	FIELD(zi_board_take, refusal),
	FIELD(zi_board_take, reserved),
	FIELD(zi_board_refusal, number),
	FIELD(zi_board_refusal, error),
	FIELD(zi_board_refusal, reason),
	FIELD(zi_uplink_header, magic),
	FIELD(zi_uplink_header, version),
	FIELD(zi_uplink_header, entries),
	FIELD(zi_uplink_header, reserved),
	FIELD(zi_uplink_header, sq_tail),
	FIELD(zi_uplink_header, cq_head),
	FIELD(zi_uplink_header, cq_need_wakeup),
	FIELD(zi_uplink_header, step_options),
	FIELD(zi_uplink_header, reserved1),
	FIELD(zi_downlink_header, magic),
	FIELD(zi_downlink_header, version),
	FIELD(zi_downlink_header, entries),
	FIELD(zi_downlink_header, reserved),
	FIELD(zi_downlink_header, sq_head),
	FIELD(zi_downlink_header, cq_tail),
	FIELD(zi_downlink_header, sq_need_wakeup),
	FIELD(zi_downlink_header, spin_us),
	FIELD(zi_downlink_header, broken),
	FIELD(zi_downlink_header, stats),
	FIELD(zi_sqe, user_data),
	FIELD(zi_sqe, opcode),
	FIELD(zi_sqe, flags),
	FIELD(zi_sqe, unit),
	FIELD(zi_sqe, args),
	FIELD(zi_cqe, user_data),
	FIELD(zi_cqe, result),
	FIELD(zi_cqe, text_index),
	FIELD(zi_cqe, values),
	FIELD(zi_step_options, lr),
	FIELD(zi_step_options, beta1),
	FIELD(zi_step_options, beta2),
	FIELD(zi_step_options, eps),
	FIELD(zi_step_options, weight_decay),
	FIELD(zi_step_options, max_norm),
	FIELD(zi_step_options, unscale),
	FIELD(zi_step_options, micro_batches),
	FIELD(zi_step_options, flags),
	FIELD(zi_step_options, lr_decay),
	FIELD(zi_step_options, group_count),
	FIELD(zi_step_options, reserved0),
	FIELD(zi_step_options, reserved),
	FIELD(zi_step_group, lr),
	FIELD(zi_step_group, weight_decay),
	FIELD(zi_step_group, reserved),
	FIELD(zi_step_betas, beta1),
	FIELD(zi_step_betas, beta2),
	FIELD(zi_step_betas, eps),
	FIELD(zi_step_stats, step),
	FIELD(zi_step_stats, is_skipped),
	FIELD(zi_step_stats, culprit),
	FIELD(zi_step_stats, norm),
	FIELD(zi_step_stats, clip),
	FIELD(zi_step_stats, read_bytes),
	FIELD(zi_step_stats, write_bytes),
	FIELD(zi_step_stats, step_ns),
	FIELD(zi_step_stats, grad_wait_ns),
	FIELD(zi_step_stats, norm_wait_ns),
	FIELD(zi_step_stats, io_read_ns),
	FIELD(zi_step_stats, io_write_ns),
	FIELD(zi_step_stats, cpu_ns),
	FIELD(zi_step_stats, commit_ns),
	FIELD(zi_step_stats, committed_step),
	FIELD(zi_step_stats, update_count),
	FIELD(zi_step_stats, loss_scale),
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

/* The field of a struct's row; fails the test when there is none. */
static size_t find(const char *type, const char *member)
{
	for (size_t i = 0; i < FIELD_COUNT; i++)
		if (strcmp(fields[i].type, type) == 0 && strcmp(fields[i].member, member) == 0)
			return i;
	cr_assert_fail("the page names %s.%s, which is not in the list", type, member);
	return 0;
}

/* Calls @take with each line of the page. */
static void read_page(void (*take)(const char *line))
{
	FILE *page = fopen("docs/PROTOCOL.md", "r");
	char line[1024];

	cr_assert_not_null(page, "run from the root of the tree");
	while (fgets(line, sizeof(line), page))
		take(line);
	fclose(page);
}

static char type[64];          /* of the table being read */
static size_t type_bytes, end; /* its size; where the last row ended */
static bool is_met[FIELD_COUNT];

static void take_struct_line(const char *line)
{
	char name[64], member[64];
	size_t offset, bytes, index;

	if (sscanf(line, "**struct %63[a-z_]**, %zu bytes", name, &bytes) == 2) {
		cr_expect_eq(end, type_bytes, "%s: rows end at %zu of %zu", type, end, type_bytes);
		(void)snprintf(type, sizeof(type), "%s", name);
		type_bytes = bytes;
		end = 0;
		return;
	}
	if (sscanf(line, "| %zu | %zu | `%63[a-z_0-9]` |", &offset, &bytes, member) != 3)
		return;
	index = find(type, member);
	is_met[index] = true;
	cr_expect_eq(type_bytes, fields[index].type_bytes, "bytes of %s", type);
	cr_expect_eq(offset, fields[index].offset, "offset of %s.%s", type, member);
	cr_expect_eq(bytes, fields[index].bytes, "bytes of %s.%s", type, member);
	cr_expect_eq(offset, end, "a gap before %s.%s", type, member);
	end = offset + bytes;
}

Test(protocol_doc, every_field_of_every_struct_is_where_the_page_says)
{
	read_page(take_struct_line);
	cr_expect_eq(end, type_bytes, "%s", type);
	for (size_t i = 0; i < FIELD_COUNT; i++)
		cr_expect(is_met[i], "%s.%s is not on the page", fields[i].type, fields[i].member);
}

static bool is_message[_ZI_MESSAGE_COUNT], is_opcode[_ZI_OP_COUNT];

static void take_number_line(const char *line)
{
	unsigned number;
	char name[64];

	if (sscanf(line, "| `%63[A-Z_]` | %u |", name, &number) == 2) {
		cr_assert_lt(number, _ZI_MESSAGE_COUNT);
		cr_expect_str_eq(name, zi_message_name((uint16_t)number));
		is_message[number] = true;
	}
	if (sscanf(line, "| `%63[a-z_]` | %u |", name, &number) == 2) {
		cr_assert_lt(number, _ZI_OP_COUNT);
		cr_expect_str_eq(name, zi_opcode_name((uint16_t)number));
		is_opcode[number] = true;
	}
}

Test(protocol_doc, every_message_and_opcode_has_its_number)
{
	read_page(take_number_line);
	for (unsigned i = 1; i < _ZI_MESSAGE_COUNT; i++)
		cr_expect(is_message[i], "message %u", i);
	for (unsigned i = 0; i < _ZI_OP_COUNT; i++)
		cr_expect(is_opcode[i], "opcode %u", i);
}

static bool has_magic, has_offsets, has_parts, has_limits;

static void take_constant_line(const char *line)
{
	has_magic |= strstr(line, "0x464e495a") && ZI_CONTROL_MAGIC == 0x464e495a;
	has_offsets |= strncmp(line, " 512  ", 6) == 0;
	has_parts |= strstr(line, "resume blob, 65536") && strstr(line, "error texts, 16 × 256");
	has_limits |= strstr(line, "at most 65536 bytes and 8") != NULL;
}

Test(protocol_doc, constants_of_the_page_are_the_codes)
{
	read_page(take_constant_line);
	cr_expect(has_magic && has_offsets && has_parts && has_limits);
	cr_expect_eq(ZI_UPLINK_SQ_OFFSET, 512);
	cr_expect_eq(ZI_DOWNLINK_CQ_OFFSET, 512);
	cr_expect_eq(ZI_BLOB_BYTES, 65536);
	cr_expect_eq(ZI_PARAM_GROUPS_MAX, 64);
	cr_expect_eq(ZI_TEXT_SLOTS, 16);
	cr_expect_eq(ZI_ERROR_TEXT_BYTES, 256);
	cr_expect_eq(ZI_MESSAGE_BYTES_MAX, 65536);
	cr_expect_eq(ZI_MESSAGE_FDS_MAX, 8);
	cr_expect_eq(ZI_LAYOUT_ENTRIES_MAX, 389);
	cr_expect_eq(ZI_RING_ENTRIES_MAX, 4096);
	cr_expect_eq(ZI_WORLD_MAX, 64);
	cr_expect_eq(ZI_PROTOCOL_MAJOR, 1);
	cr_expect_eq(ZI_PROTOCOL_MINOR, 0);
}
