/* SPDX-License-Identifier: Apache-2.0 */
/* A system call that fails, as in some sandboxes and in kernels or file systems without it. */
#pragma once

#include <criterion/criterion.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>

static inline void filter_call(uint32_t number, uint32_t action)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* From here on the call @number fails with @error in this process; the newest filter's error
 * counts. */
static inline void refuse_call(uint32_t number, uint32_t error)
{
	filter_call(number, SECCOMP_RET_ERRNO | error);
}

/* From here on the call @number kills this process, as if it were killed just before. */
static inline void kill_at_call(uint32_t number)
{
	filter_call(number, SECCOMP_RET_KILL_PROCESS);
}
