/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the CUDA driver. */
#include "examples/gpt/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* Codes that have an errno of their own. */
enum {
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_IMAGE = 200,
	CUDA_NO_BINARY = 209
};

struct row {
	const char *symbol;
	size_t offset; /* in struct gpt_cuda */
};

#define ROW(field, symbol, parameters) { #symbol, offsetof(struct gpt_cuda, field) },
static const struct row rows[] = { GPT_CUDA_FUNCTIONS(ROW) };

int gpt_cuda_open(struct gpt_cuda *cuda, const char *path, struct gpt_problem *problem)
{
	int code;

	path = path ? path : GPT_CUDA_LIBRARY;
	cuda->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!cuda->library)
		return gpt_problem_set(problem, -ENODEV,
		                       "--device gpu needs the NVIDIA driver, and it does not "
		                       "open (install it, or give --gpu-driver PATH): %s",
		                       dlerror());
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *function = dlsym(cuda->library, rows[i].symbol);

		if (!function)
			return gpt_problem_set(problem, -ELIBBAD,
			                       "'%s' lacks %s: it is no CUDA driver, or one older "
			                       "than CUDA 11.4; update it",
			                       path, rows[i].symbol);
		memcpy((char *)cuda + rows[i].offset, &function, sizeof(function));
	}
	code = cuda->cuInit(0);
	if (code == CUDA_NO_DEVICE)
		return gpt_problem_set(problem, -ENODEV,
		                       "the NVIDIA driver '%s' shows this process no GPU: look at "
		                       "nvidia-smi and CUDA_VISIBLE_DEVICES",
		                       path);
	return code ? gpt_cuda_problem(cuda, code, "cuInit()", problem) : 0;
}

void gpt_cuda_close(struct gpt_cuda *cuda)
{
	if (cuda->library)
		(void)dlclose(cuda->library); /* It was opened. */
	*cuda = (struct gpt_cuda){ 0 };
}

int gpt_cuda_problem(const struct gpt_cuda *cuda, int code, const char *what,
                     struct gpt_problem *problem)
{
	const char *name = NULL, *text = NULL;

	(void)cuda->cuGetErrorName(code, &name); /* An unknown code has none. */
	(void)cuda->cuGetErrorString(code, &text);
	name = name ? name : "unknown";
	text = text ? text : "no text";
	if (code == CUDA_INVALID_IMAGE || code == CUDA_NO_BINARY)
		return gpt_problem_set(problem, -ENOTSUP,
		                       "%s failed with code %d (%s): this build has no kernels for "
		                       "the GPU's architecture",
		                       what, code, name);
	return gpt_problem_set(problem, code == CUDA_OUT_OF_MEMORY ? -ENOMEM : -EIO,
	                       "%s failed with code %d (%s: %s)", what, code, name, text);
}
