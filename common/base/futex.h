/* SPDX-License-Identifier: Apache-2.0 */
/* Waking whoever sleeps on a word of memory that processes may share. Sleeping is each waiter's own
 * affair: what it looks at before it does differs. Floor 0, any thread. */
#pragma once

#include <stdint.h>

/* All who sleep on @word, in any process. Store first: a sleeper hands the value that it saw to the
 * kernel, which compares it. */
void zi_futex_wake(const uint32_t *word);
