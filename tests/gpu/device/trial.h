/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of the GPU folder (docs/GPU.md): what was asked for, on which GPU, and the result of each
 * row. ask.c, check.c and bench.c add rows; the end of a run prints lines for docs/GPU.md.
 *
 * The run's process has the primary context of the GPU, and one stream of its own. What breaks a
 * context runs in child processes (peer.h). Memory that a row has made stays until the process
 * ends, if the row fails.
 *
 * On the fake driver of the tests all parts run with small sizes. Every line says FAKE then, and no
 * time and no line for docs/GPU.md is printed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/gpu/device.h"
#include "common/gpu/driver.h"

struct zi_text;

#define TRIAL_ROWS_MAX   64u
#define TRIAL_WHAT_BYTES 96u
#define TRIAL_MUST_BYTES 64u
#define TRIAL_TEXT_BYTES 320u

/* Exit codes of a run. */
enum { TRIAL_EXIT_RIGHT, TRIAL_EXIT_FAILED, TRIAL_EXIT_USAGE, TRIAL_EXIT_NO_GPU = 77 };

struct trial_options {
	const char *command; /* "ask", "check" or "bench" */
	const char *driver;  /* path of libcuda.so.1; NULL: the system's */
	const char *device;  /* UUID; NULL: the first GPU of the process */
	const char *cublas;  /* path; NULL: looked for */
	const char *nccl;    /* path; NULL: looked for */
	const char *gpt;     /* path of zinf-gpt; NULL: beside this program */
	const char *text;    /* what zinf-gpt reads; NULL: its default */
	const char *output;  /* folder for gpu.json of a bench; NULL: none */
	uint64_t steps;      /* of zinf-gpt; 0: 200, on the fake 3 */
	bool is_rehearsal;   /* of a bench: every part once, and no figure */
};

enum trial_end { TRIAL_PASSED, TRIAL_FAILED, TRIAL_ANSWERED, TRIAL_NOT_RUN };

struct trial_row {
	enum trial_end end;
	char what[TRIAL_WHAT_BYTES];
	char must[TRIAL_MUST_BYTES]; /* "": an answer */
	char found[TRIAL_TEXT_BYTES];
};

/* Sizes of what a run copies and trains. */
struct trial_sizes {
	uint64_t chunk_bytes;  /* of single chunks */
	uint64_t memory_bytes; /* the largest piece of GPU memory */
	uint64_t copy_bytes;   /* of one copy */
	uint32_t rounds;       /* how often something is repeated */
	uint32_t unit_count;   /* of a rank's model */
	uint64_t elements;     /* of each unit */
	uint32_t timeout_ms;   /* deadline of a rank whose kernel hangs */
};

struct trial {
	struct trial_options options;
	struct trial_sizes sizes;
	struct zi_gpu_driver driver;
	struct zi_gpu_device device;
	struct zi_cuda_context *context;
	struct zi_cuda_stream *stream, *other_stream;
	bool is_fake;
	/* Of the calls since trial_begin(): the first one that failed. */
	int code;
	const char *failed_call;
	struct trial_row rows[TRIAL_ROWS_MAX];
	uint32_t row_count;
};

/* Opens the driver and the GPU, and makes the context. Return: 0; TRIAL_EXIT_NO_GPU or
 * TRIAL_EXIT_FAILED after a message. */
int trial_open(struct trial *trial, const struct trial_options *options);
/* The same for a child process: nothing is printed. Return: 0; -errno with @text. */
int trial_join(struct trial *trial, const struct trial_options *options, struct zi_text *text);
/* Prints the machine, the lines for docs/GPU.md and the sum. Return: the exit code. */
int trial_close(struct trial *trial);

/* Adds a row and prints it. @what: of docs/GPU.md's table. @must: NULL: nothing. */
void trial_row(struct trial *trial, enum trial_end end, const char *what, const char *must,
               const char *format, ...) __attribute__((format(printf, 5, 6)));
/* As trial_row(): the row failed by the call that trial_did() noted. */
void trial_row_of_call(struct trial *trial, const char *what, const char *must);
/* A line of an answer, below its row. */
void trial_say(const struct trial *trial, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* A time or a rate as text, with so many digits behind the point; on the fake a dash. */
struct trial_figure {
	char chars[32];
};
struct trial_figure trial_figure(const struct trial *trial, int digits, double value);

/* Calls of the driver, of which the first failure stays and ends the others:
 *     trial_begin(trial);
 *     TRIAL_DO(trial, cuMemCreate(&handle, bytes, &chunk, 0)); */
static inline void trial_begin(struct trial *trial)
{
	trial->code = 0;
	trial->failed_call = "";
}

static inline bool trial_did(struct trial *trial, int code, const char *call)
{
	if (code && !trial->code) {
		trial->code = code;
		trial->failed_call = call;
	}
	return !trial->code;
}

/* The failed call in words. Return: 0: none has failed; its -errno. */
int trial_call_error(const struct trial *trial, struct zi_text *text);

#define TRIAL_DO(trial, call) \
	trial_did((trial), (trial)->code ? 0 : (trial)->driver.cuda.call, #call)

struct kernels;
/* Loads the kernels into the trial's context, unless a call has failed before. Return: none has. */
bool trial_load_kernels(struct trial *trial, struct kernels *ret_kernels);

/* GPU memory that is mapped in this process. */
struct trial_span {
	uint64_t address, bytes, handle;
};

/* Reserves addresses and maps a handle there. */
void trial_map(struct trial *trial, uint64_t handle, uint64_t bytes, struct trial_span *ret_span);
/* Memory of this process's own. */
void trial_make(struct trial *trial, uint64_t bytes, struct trial_span *ret_span);
/* Imports the chunk of a descriptor, which stays the caller's, and maps it. */
void trial_import(struct trial *trial, int fd, uint64_t bytes, struct trial_span *ret_span);
/* Unmaps and releases; a span of zeroes is left alone. Also after a failure. */
void trial_drop(struct trial *trial, struct trial_span *span);

/* GPU memory that no process holds. 0: the driver does not say. */
uint64_t trial_free_bytes(const struct trial *trial);
double trial_now_s(void);
