/* SPDX-License-Identifier: Apache-2.0 */
/* Where messages between nodes lie; see mail.h. Floor 1. Any thread. */
#include "common/wire/mail.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"

/* A piece, and what a peer has of it, stay in a core's L2 of 1 MiB. */
#define MAIL_LETTER_BYTES (256ull << 10)

/* See mail.h. */
void zi_mail_init(struct zi_mail *mail, const struct zi_far_shape *shape, char *slab,
                  uint64_t slab_bytes)
{
	uint64_t bytes = zi_far_mail_bytes(slab_bytes), most = 0, head_bytes, letter_bytes;
	uint32_t self_count = shape->self_count, other_count = shape->member_count - self_count;

	/* Of the node with the most pairs, so that all cut alike. */
	for (uint32_t i = 0; i < shape->node_count; i++)
		most = ZI_MAX(most, (uint64_t)shape->counts[i] *
		                            (shape->member_count - shape->counts[i]));
	assert(most > 0);
	head_bytes = most * sizeof(struct zi_mail_box) +
	             shape->member_count * ZI_BOARD_REFUSALS * sizeof(struct zi_board_refusal);
	assert(bytes > head_bytes);
	letter_bytes = (bytes - head_bytes) / (most * 2 * ZI_MAIL_LETTERS);
	letter_bytes = ZI_MIN(letter_bytes, MAIL_LETTER_BYTES) / ZI_LINE_BYTES * ZI_LINE_BYTES;
	assert(letter_bytes > 0);
	*mail = (struct zi_mail){ .boxes = (void *)(slab + slab_bytes - bytes),
		                  .letter_bytes = letter_bytes,
		                  .self_count = self_count,
		                  .other_count = other_count };
	mail->refusals = (void *)(mail->boxes + (uint64_t)self_count * other_count);
	mail->letters = (char *)zi_mail_refusals(mail, other_count);
	other_count = 0;
	for (uint32_t i = 0; i < shape->member_count; i++) {
		if (zi_far_is_here(shape, i)) {
			mail->lines[i] = (uint8_t)zi_far_local(shape, i);
			continue;
		}
		mail->lines[i] = (uint8_t)(self_count + other_count);
		mail->others[other_count++] = (uint8_t)i;
	}
}
