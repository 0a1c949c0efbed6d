/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has a store. The kernel keeps the lock of a killed process until its last request to the disk
 * has ended: the lock of nobody who lives is free soon. Floor 2, any thread.
 */
#pragma once

#include <sys/types.h>

/* Return: the living process that locked @path, as /proc/locks names it; 0: none is seen there. It
 * has ended, or is in another container. */
pid_t nvme_holder_of(const char *path);
