/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See terminal.h. A terminal obeys control characters (below 0x20, 0x7f, and U+0080 to U+009F,
 * which one that does not take UTF-8 finds in bytes 0x80 to 0x9f as well): none is passed on.
 */
#include "examples/gpt/terminal.h"

#include <assert.h>
#include <stdbool.h>

/* Bytes of the character that @byte begins; 0: none begins so. */
static uint32_t character_bytes(uint8_t byte)
{
	if (byte < 0x80)
		return 1;
	if (byte >= 0xc2 && byte < 0xe0) /* 0xc0 and 0xc1 would begin a longer form of ASCII */
		return 2;
	if (byte >= 0xe0 && byte < 0xf0)
		return 3;
	return byte >= 0xf0 && byte < 0xf5 ? 4 : 0;
}

/* Whether @byte may be the second one behind @first: no longer form than needed, no surrogate,
 * nothing past U+10FFFF, no control character. */
static bool is_second(uint8_t first, uint8_t byte)
{
	uint8_t low = first == 0xe0 || first == 0xc2 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	return byte >= low && byte <= high;
}

static bool is_control(uint8_t byte)
{
	return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
}

static void show(struct gpt_terminal *terminal, uint8_t byte)
{
	(void)putc(byte, terminal->file); /* A reader that has gone shows at the end. */
}

/* What began as a character and is none. */
static void give_up(struct gpt_terminal *terminal)
{
	for (uint32_t i = 0; i < terminal->byte_count; i++)
		show(terminal, '?');
	terminal->byte_count = 0;
}

static void begin(struct gpt_terminal *terminal, uint8_t byte)
{
	uint32_t needed_count = character_bytes(byte);

	assert(!terminal->byte_count);
	if (needed_count < 2) {
		show(terminal, needed_count == 0 || is_control(byte) ? '?' : byte);
		return;
	}
	terminal->bytes[terminal->byte_count++] = byte;
	terminal->needed_count = needed_count;
}

/* Documented in the header, as is the other one. */
void gpt_terminal_put(struct gpt_terminal *terminal, uint8_t byte)
{
	bool goes_on = terminal->byte_count == 1 ? is_second(terminal->bytes[0], byte)
	                                         : (byte & 0xc0) == 0x80;

	if (terminal->byte_count && goes_on) {
		terminal->bytes[terminal->byte_count++] = byte;
	} else {
		give_up(terminal);
		begin(terminal, byte);
	}
	if (terminal->byte_count && terminal->byte_count == terminal->needed_count) {
		for (uint32_t i = 0; i < terminal->byte_count; i++)
			show(terminal, terminal->bytes[i]);
		terminal->byte_count = 0;
	}
}

void gpt_terminal_end(struct gpt_terminal *terminal)
{
	give_up(terminal);
	(void)fflush(terminal->file); /* As above. */
}
