/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of NVIDIA where they are: in the linker's places, in a toolkit, in a Python package. */
#pragma once

#include <stddef.h>

/* Names, the newest first, ended by NULL. */
extern const char *const library_cublas_names[];
extern const char *const library_nccl_names[];

/* @given: a path that needs no search; NULL: none. @ret_path: the library's path or name; "": none
 * opens. */
void library_find(const char *given, const char *const *names, char *ret_path, size_t capacity);
