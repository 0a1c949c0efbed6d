/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 that comes from others, or is too long for its place. Floor 0, any thread: no state. */
#pragma once

#include <stddef.h>

/* Of @bytes bytes, of which the last character may have lost its end: how many are whole. */
size_t zi_utf8_whole(const char *chars, size_t bytes);
/* For terminals, logs and JSON: each control character (C0, DEL, C1) and each byte that is no
 * UTF-8 becomes '?', in place. @chars: a text with its NUL. */
void zi_utf8_clean(char *chars);
