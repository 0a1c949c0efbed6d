/* SPDX-License-Identifier: Apache-2.0 */
/* Which stream runs its first operation next, where streams have no threads. Under the mutex. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fake_op;
struct zi_cuda_stream;

/* May @op, the first one of its stream, run now? */
bool fake_order_is_ready(const struct fake_op *op);
/* @wanted: what somebody waits for. Return: NULL: no operation can run. */
struct zi_cuda_stream *fake_order_next(const struct fake_op *wanted);
/* How many operations of drawn streams run at a call. 0 unless shuffled. */
uint32_t fake_order_draw_count(void);
/* Any stream that can run. Return: NULL: none. */
struct zi_cuda_stream *fake_order_draw(void);
