/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions: programmer errors only, never what a client, disk or GPU can cause. They stay on in
 * release builds; zi_debug_assert (hot loops, owner-thread checks) needs -DZI_DEBUG. Floor 0.
 */
#pragma once

#include <assert.h>

#ifdef ZI_DEBUG
#define zi_debug_assert(condition) assert(condition)
#else
#define zi_debug_assert(condition) ((void)sizeof((condition) ? 1 : 0))
#endif
