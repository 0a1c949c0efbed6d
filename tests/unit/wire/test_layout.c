/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: regions hold all their parts, and every opcode has a name. Method: for each power of two,
 * the end of the last part against the size. (Offsets are asserted at compile time and in
 * test_protocol_doc.c.) */
#include <criterion/criterion.h>
#include <string.h>

#include "common/wire/layout.h"

Test(layout, regions_hold_header_slots_and_tail_part_in_whole_pages)
{
	for (uint32_t entries = 1; entries <= ZI_RING_ENTRIES_MAX; entries *= 2) {
		uint64_t slots_bytes = (uint64_t)entries * ZI_SLOT_BYTES;

		cr_expect_eq(zi_uplink_blob_offset(entries), ZI_UPLINK_SQ_OFFSET + slots_bytes);
		cr_expect_geq(zi_uplink_bytes(entries),
		              zi_uplink_blob_offset(entries) + ZI_BLOB_BYTES);
		cr_expect_geq(zi_uplink_bytes(entries),
		              zi_uplink_betas_offset(entries) +
		                      ZI_PARAM_GROUPS_MAX * sizeof(struct zi_step_betas));
		cr_expect_geq(zi_downlink_bytes(entries),
		              zi_downlink_text_offset(entries) +
		                      ZI_TEXT_SLOTS * ZI_ERROR_TEXT_BYTES);
		cr_expect_eq(zi_uplink_bytes(entries) % 4096, 0);
		cr_expect_eq(zi_downlink_bytes(entries) % 4096, 0);
		cr_expect_lt(zi_downlink_bytes(entries) - zi_downlink_text_offset(entries),
		             ZI_TEXT_SLOTS * ZI_ERROR_TEXT_BYTES + 4096);
	}
}

Test(layout, every_opcode_has_a_name_of_its_own)
{
	for (uint16_t i = 0; i < _ZI_OP_COUNT; i++)
		for (uint16_t k = 0; k < i; k++)
			cr_expect_str_neq(zi_opcode_name(i), zi_opcode_name(k));
	cr_assert_str_eq(zi_opcode_name(ZI_OP_GRAD_ACQUIRE), "grad_acquire");
	cr_assert_str_eq(zi_opcode_name(_ZI_OP_COUNT), "?");
	cr_assert_str_eq(zi_opcode_name(UINT16_MAX), "?");
}

Test(layout, magic_words_read_as_text)
{
	const uint64_t up = ZI_UPLINK_MAGIC, down = ZI_DOWNLINK_MAGIC;

	cr_assert_eq(memcmp(&up, "ZNUPLINK", 8), 0);
	cr_assert_eq(memcmp(&down, "ZNDWNLNK", 8), 0);
}

Test(layout, shared_word_is_stored_and_loaded)
{
	struct zi_line line = { 0 };

	zi_line_store(&line, 42);
	cr_assert_eq(zi_line_load(&line), 42);
}
