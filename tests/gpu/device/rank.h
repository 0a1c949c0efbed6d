/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank of a job, with or without a GPU: a model of units of one parameter each, whose gradient
 * is the parameter itself. Both kinds of rank therefore train to the same bits without a kernel.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/gpu/device.h"
#include "common/gpu/driver.h"
#include "tests/gpu/device/kernels.h"
#include "tests/gpu/device/trial.h"

struct zinf;

struct rank_settings {
	char socket[128], job[32];
	char driver[ZI_GPU_PATH_BYTES];
	char uuid[ZI_GPU_UUID_BYTES];
	bool has_gpu;
	bool is_bf16;
	bool is_fake;
	uint32_t unit_count;
	uint64_t elements;           /* of each unit */
	uint64_t param_budget_bytes; /* 0: memory for all units */
	uint32_t timeout_ms;         /* of each call, once the job is there */
	uint64_t last_step;          /* of a process (rank_peer.h): it trains up to this step;
				      * 0: until it is told */
};

struct rank {
	struct rank_settings settings;
	struct zinf *zinf;
	const struct zi_cuda *cuda; /* NULL: no GPU. Its context is current in this thread */
	struct kernels kernels;     /* of zeroes: none */
	void *buffer;               /* a unit, on the host */
	uint64_t call_ns;           /* how long the last call of libzinf took */
	struct zi_text text;        /* why a call failed */
};

/* What a backward does besides. */
enum rank_deed {
	RANK_TRAINS,
	RANK_HANGS,        /* launches a kernel that never ends */
	RANK_MISADDRESSES, /* launches a kernel that writes where no memory is */
};

/* Of a run's GPU. @job: its name. */
struct rank_settings rank_settings_of(const struct trial *trial, const char *socket,
                                      const char *job);
/* Budget of a ring of three units. */
uint64_t rank_three_units_bytes(const struct rank_settings *settings);
uint64_t rank_unit_bytes(const struct rank_settings *settings);

/* Attaches, lays out the model, writes the first values and commits them. rank_close() also after a
 * failure. Return: 0; -errno with rank->text. */
int rank_open(struct rank *rank, const struct rank_settings *settings);
/* Until all CPU memory is registered with the driver. */
void rank_await_pins(struct rank *rank);
/* Each unit on the GPU, or where the CPU sees it, beside the first values.
 * @ret_wrong_count: elements. Return: 0; -errno. */
int rank_compare(struct rank *rank, uint64_t *ret_wrong_count);
/* Forward, backward, step. Return: 0; -errno of libzinf or of the driver. */
int rank_step(struct rank *rank, enum rank_deed deed);
/* FNV-1a over all masters. */
int rank_hash(struct rank *rank, uint64_t *ret_hash);
/* @is_last: the job is deleted. */
void rank_close(struct rank *rank, bool is_last);

/* Notes why a call of libzinf failed. Return: @r. */
int rank_note(struct rank *rank, int r, const char *call);
