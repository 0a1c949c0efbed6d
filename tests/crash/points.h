/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact points at which a process ends by SIGKILL: its n-th call of libc of a class. Test double of
 * the calls (points.c): linked into a test program it stands before libc for the program's own
 * ranks; as a shared object it is preloaded into a daemon that knows nothing of it.
 *
 * A point reads "CLASS@N", "CLASS@N/after" or (writes) "CLASS@N/half": before the call, after it,
 * or after half of its bytes. Calls are counted from 1, over all threads, since the process armed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum point_class {
	POINT_STORE_READ,    /* pread of a store */
	POINT_STORE_WRITE,   /* pwrite of a store */
	POINT_CATALOG_WRITE, /* pwrite of the catalog or its log */
	POINT_SYNC,          /* fsync, fdatasync */
	POINT_FILE,          /* ftruncate, unlink */
	POINT_SEND,          /* sendmsg, write: sockets, doorbells, files */
	POINT_RECEIVE,       /* recvmsg, read */
	POINT_MAP,           /* mmap, munmap */
	_POINT_CLASS_COUNT
};

/* Lies in memory that outlives the process: calls of each class so far. */
struct point_counts {
	uint64_t calls[_POINT_CLASS_COUNT];
};

extern const char *const point_class_names[_POINT_CLASS_COUNT];

/* Names of the environment for a preloaded process: the point, and the file of its counts. */
#define POINT_ENVIRONMENT       "ZINF_TEST_POINT"
#define POINT_COUNT_ENVIRONMENT "ZINF_TEST_POINT_COUNTS"

/* From now on in this process. @point: "" only counts. False: it cannot be read. */
bool points_arm(const char *point, struct point_counts *counts);
