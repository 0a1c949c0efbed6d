/* SPDX-License-Identifier: Apache-2.0 */
/* A file as a part of the program, for images of GPU kernels. Floor 0. */
#pragma once

/* Makes `extern const unsigned char @name[]`, of the bytes of the file @path, aligned to 64 bytes.
 * @path: a string literal. The symbol is visible in this library or program only. */
#define ZI_EMBED(name, path)                      \
	__asm__(".pushsection .rodata\n"          \
	        ".balign 64\n"                    \
	        ".hidden " #name "\n"             \
	        ".global " #name "\n" #name ":\n" \
	        ".incbin \"" path "\"\n"          \
	        ".popsection\n");                 \
	extern const unsigned char name[]
