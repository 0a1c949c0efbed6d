/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an engine is what was asked for, or is refused with a sentence; where io_uring is not to be
 * had, "auto" works all the same. Method: each wrong option; a seccomp filter that answers as a
 * container, or an old kernel, would. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/nvme/nvme_test.h"

static void refuse(struct nvme_engine_options options, int error, const char *words)
{
	struct nvme_engine *engine = NULL;

	memset(&test_text, 0, sizeof(test_text));
	cr_assert_eq(nvme_engine_new(&options, &test_text, &engine), error);
	cr_assert_null(engine);
	cr_assert_not_null(strstr(test_text.chars, words), "%s", test_text.chars);
}

Test(engine_options, wrong_sizes_are_refused_with_the_limit)
{
	refuse((struct nvme_engine_options){ .depth = 5000 }, -EINVAL, "limit of 4096");
	refuse((struct nvme_engine_options){ .read_block_bytes = 1000 }, -EINVAL, "1000 bytes");
	refuse((struct nvme_engine_options){ .write_block_bytes = 128u << 20 }, -EINVAL,
	       "multiple");
}

Test(engine_options, unknown_backend_is_refused_with_the_known_ones)
{
	refuse((struct nvme_engine_options){ .backend = "aio" }, -EINVAL,
	       "'aio' is unknown: it is auto, io_uring, threads");
}

Test(engine_options, wrong_fault_is_refused_by_name)
{
	const struct {
		const char *backend, *words;
	} wrong[] = {
		{ "faulty:boo=1", "'boo' is no key" },
		{ "faulty:seed", "not KEY=VALUE" },
		{ "faulty:seed=x", "seed=x is no number" },
		{ "faulty:seed=-1", "no number" },
		{ "faulty:seed=99999999999999999999", "no number" },
		{ "faulty:error=EWHAT", "no errno" },
		{ "faulty:path=../x", "no name of a store" },
		{ "faulty:flip=17", "is not DIRECTION@WHEN" },
		{ "faulty:EIO=read@0", "is not DIRECTION@WHEN" },
		{ "faulty:EIO=read@1@9-9", "is not DIRECTION@WHEN" },
		{ "faulty:EIO=read@~4x", "is not DIRECTION@WHEN" },
		{ "faulty:torn=any@1", "only a write can be torn" },
		{ "faulty:EIO=flushes@1", "read, write, any or flush" },
		{ "faulty:flip=flush@1", "a flush has no bytes" },
		{ "faulty:EIO=flush@1@0-4096", "a flush has no bytes" },
		{ "faulty:kill=any@1,kill=any@2,kill=any@3,kill=any@4,kill=any@5,kill=any@6,"
		  "kill=any@7,kill=any@8,kill=any@9",
		  "more than 8 rules" },
		{ "faulty:over=faulty:a=1", "auto, io_uring or threads" },
		{ "faulty:over=disk", "'disk' is unknown" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		refuse((struct nvme_engine_options){ .backend = wrong[i].backend }, -EINVAL,
		       wrong[i].words);
}

Test(engine_options, name_says_what_is_at_work)
{
	struct nvme_engine *engine = test_engine("threads", 0, 0);

	cr_assert_str_eq(nvme_engine_backend(engine), "threads");
	engine = nvme_engine_free(engine);
	engine = test_engine("faulty:over=threads", 0, 0);
	cr_assert_str_eq(nvme_engine_backend(engine), "faulty over threads (injecting)");
	engine = nvme_engine_free(engine);
	cr_assert_null(nvme_engine_free(NULL));
}

Test(engine_options, no_descriptors_left_is_an_error_with_a_sentence)
{
	const char *const backends[] = { "io_uring", "threads", "faulty:over=threads" };
	struct rlimit limit = { 0, 0 };
	pid_t child = fork();
	int status;

	/* In a child: Criterion needs descriptors of its own. Those that are open stay. */
	for (unsigned i = 0; !child && i < 3; i++) {
		struct nvme_engine_options options = { .backend = backends[i] };
		struct nvme_engine *engine = NULL;

		if (setrlimit(RLIMIT_NOFILE, &limit) ||
		    nvme_engine_new(&options, &test_text, &engine) != -EMFILE || engine ||
		    !strstr(test_text.chars, "no eventfd"))
			_exit(1);
	}
	if (!child)
		_exit(0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
}

/* From here on this process has no io_uring. */
static void forbid_io_uring(unsigned error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = 4, .filter = code };

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		cr_skip_test("no seccomp here (errno %d)", errno);
}

static void expect_fall_back(unsigned error)
{
	struct nvme_engine *engine;

	forbid_io_uring(error);
	refuse((struct nvme_engine_options){ .backend = "io_uring" }, -(int)error, "refused");
	engine = test_engine("auto", 0, 0);
	cr_assert_str_eq(nvme_engine_backend(engine), "threads");
	engine = nvme_engine_free(engine);
	engine = test_engine(NULL, 0, 0);
	cr_assert_str_eq(nvme_engine_backend(engine), "threads");
	engine = nvme_engine_free(engine);
}

Test(engine_options, auto_falls_back_to_threads_where_io_uring_is_forbidden)
{
	expect_fall_back(EPERM);
}

Test(engine_options, auto_falls_back_to_threads_where_io_uring_is_absent)
{
	expect_fall_back(ENOSYS);
}

Test(engine_options, auto_does_not_hide_other_failures)
{
	forbid_io_uring(EMFILE);
	refuse((struct nvme_engine_options){ .backend = "auto" }, -EMFILE, "refused");
}
