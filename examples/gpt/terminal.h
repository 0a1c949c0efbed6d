/* SPDX-License-Identifier: Apache-2.0 */
/* Text of any bytes on a terminal, as it comes: characters of UTF-8 but none that controls it. */
#pragma once

#include <stdint.h>
#include <stdio.h>

/* A character that has begun. Zeros: none. */
struct gpt_terminal {
	FILE *file;
	uint8_t bytes[4];
	uint32_t byte_count, needed_count;
};

/* @byte: shown once its character is whole; '?' for each byte that belongs to none. */
void gpt_terminal_put(struct gpt_terminal *terminal, uint8_t byte);
/* The text is over. */
void gpt_terminal_end(struct gpt_terminal *terminal);
