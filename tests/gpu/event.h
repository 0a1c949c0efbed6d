/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the fake GPUs: each one names the operation that recorded it last. */
#pragma once

struct fake_op;
struct zi_cuda_event;

/* Under the mutex. @ret_op: a reference; NULL: the event was never recorded, or that is done.
 * Return: ZI_CUDA_INVALID_HANDLE there is no such event. */
int fake_event_recorded(const struct zi_cuda_event *event, struct fake_op **ret_op);
