/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double of a disk, below the kernel: a FUSE file system of one file, which passes through
 * to another file and spoils on command. A process of its own, with one thread; it ends with its
 * maker, and every request of the kernel that is open then fails with -ENOTCONN or -ECONNABORTED.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum faultfs_op { FAULTFS_READ, FAULTFS_WRITE, FAULTFS_FLUSH, _FAULTFS_OP_COUNT };

enum faultfs_kind {
	FAULTFS_SOUND,
	FAULTFS_ERROR, /* answered with the errno */
	FAULTFS_SHORT, /* half and one byte are moved: no whole sectors; not of a flush */
	FAULTFS_HOLD,  /* not answered until let go, or the kernel asks it back */
};

struct faultfs_rule {
	enum faultfs_op op;
	enum faultfs_kind kind;
	int32_t error;       /* FAULTFS_ERROR: an errno, positive */
	uint32_t skip_count; /* so many requests pass first */
};

struct faultfs_counts {
	uint32_t hit_count;         /* requests that a rule was applied to */
	uint32_t held_count;        /* not answered now */
	uint32_t interrupted_count; /* asked back by the kernel, and given */
};

struct faultfs {
	pid_t pid; /* 0: not running */
	int control_fd;
	char mount_path[256];
};

/* @store_path: what lies behind, @mount_path: a file that it covers. @is_async: the file system
 * takes a request of io_uring and lets the caller go, which then cannot ask it back; else a thread
 * of the kernel waits for each, and can. Mounts in the caller's name space. Return: 0 or -errno. */
int faultfs_start(struct faultfs *faultfs, const char *store_path, const char *mount_path,
                  bool is_async);
/* It vanishes, as a disk that is pulled out; what has it open gets -ENOTCONN. */
void faultfs_vanish(struct faultfs *faultfs);
/* In place of the former rule of that operation. */
int faultfs_rule(struct faultfs *faultfs, const struct faultfs_rule *rule);
/* All rules are gone; what is held stays so. */
int faultfs_mend(struct faultfs *faultfs);
/* Until so many are held at once; 0: at once. @ret_counts: then. */
int faultfs_await(struct faultfs *faultfs, uint32_t held_count, struct faultfs_counts *ret_counts);
/* Answers what is held: reads with the bytes of nobody (0xa5) when @is_junk. */
int faultfs_let_go(struct faultfs *faultfs, bool is_junk);
