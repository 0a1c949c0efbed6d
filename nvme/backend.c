/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing a backend by its name. Floor 2. */
#include "nvme/backend.h"

#include <errno.h>
#include <string.h>

#include "common/base/err.h"

/* io_uring is refused, not broken: off (io_uring_disabled), filtered (containers), or absent. */
static bool backend_is_refusal(int error)
{
	return error == -ENOSYS || error == -EPERM || error == -EACCES;
}

static int backend_new_auto(const struct nvme_backend_options *options, struct zi_text *text,
                            struct nvme_backend **ret_backend)
{
	int r;

	r = nvme_backend_uring.new(options, text, ret_backend);
	if (backend_is_refusal(r))
		r = nvme_backend_threads.new(options, text, ret_backend);
	return err_trace(r);
}

/**
 * nvme_backend_new() - makes the backend that @name asks for
 * @name: with a specification behind a colon, for "faulty" only
 * @options: its spec is replaced by what follows the colon
 *
 * Return: 0; -EINVAL (unknown name, wrong specification); what the backend says otherwise.
 */
int nvme_backend_new(const char *name, const struct nvme_backend_options *options,
                     struct zi_text *text, struct nvme_backend **ret_backend)
{
	struct nvme_backend_options copy = *options;

	copy.spec = "";
	if (!strcmp(name, "auto"))
		return err_trace(backend_new_auto(&copy, text, ret_backend));
	if (!strcmp(name, "io_uring"))
		return err_trace(nvme_backend_uring.new(&copy, text, ret_backend));
	if (!strcmp(name, "threads"))
		return err_trace(nvme_backend_threads.new(&copy, text, ret_backend));
	if (!strncmp(name, "faulty:", strlen("faulty:"))) {
		copy.spec = name + strlen("faulty:");
		return err_trace(nvme_backend_faulty.new(&copy, text, ret_backend));
	}
	return err_origin(zi_text_error(text, -EINVAL,
	                                "I/O engine '%s' is unknown: it is auto, io_uring, threads "
	                                "or, for tests, faulty:SPEC",
	                                name));
}
