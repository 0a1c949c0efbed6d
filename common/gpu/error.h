/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of the CUDA driver as errno and as words. Floor 1, any thread. */
#pragma once

#include <stdbool.h>

struct zi_cuda;
struct zi_text;

/* 0 for success, else negative. -EAGAIN for ZI_CUDA_NOT_READY. */
int zi_gpu_errno(int code);
/* Codes after which a context takes no more work: the process must end. */
bool zi_gpu_is_sticky(int code);
/**
 * zi_gpu_error() - an error of the driver in one sentence
 * @cuda: knows the names of codes. NULL, or without cuGetErrorName(): the number stands alone
 * @code: not ZI_CUDA_SUCCESS
 * @text: gets what failed, name and number of the code, and what to do where that is known. May be
 * NULL
 * @format: what failed, with its figure: "cuMemCreate of 64 MiB on GPU-…"
 *
 * Return: zi_gpu_errno().
 */
int zi_gpu_error(const struct zi_cuda *cuda, int code, struct zi_text *text, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
