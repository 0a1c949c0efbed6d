/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doubles of functions and their state, in a header that several files of one test program include:
 * the program has each of them once, like an inline function of C++. What a double changes must be
 * marked as well; a plain static would be another one in each file.
 */
#pragma once

#define DOUBLE __attribute__((weak))
