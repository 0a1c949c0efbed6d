/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the layers' loops on the CPU are made of. Each loop works element by element, or sums in 16
 * fixed lanes (element/lanes.h), and -ffp-contract=off forbids fusing: so the compiler may use any
 * vector width and the bits stay the same.
 */
#pragma once

#include "examples/gpt/element/exp.h"
#include "examples/gpt/element/lanes.h"

/* The same loop compiled for several instruction sets, chosen when the program is loaded. Not
 * under sanitizers: their runtimes are not up yet when the choice is made. Not by clang: up to 14
 * it gives the chooser another name than the function, and callers in other files do not find
 * it. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(ZI_SANITIZED)
#define GPT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GPT_CLONES
#endif
