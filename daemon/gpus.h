/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of this node. zinfd starts one zinf-gpu for each GPU, where [gpu] wants that. Floor 7;
 * the thread of the loop.
 *
 * Number of GPUs: the first zinf-gpu whose driver opens tells it, before that zinf-gpu opens its
 * GPU. If zinf-gpu ends earlier, the number is that of the machine's topology.
 *
 * A GPU that was opened becomes a tier (tier/arena.h) for good. The end of its zinf-gpu only makes
 * the tier down, and the next request for memory starts zinf-gpu again.
 *
 * A GPU that cannot be opened is a line in the log and a trouble that `zctl doctor` shows. zinfd
 * goes on without that GPU, and tries again after a pause. The pause doubles.
 *
 * A zinf-gpu that was killed in a call of the driver may live on. Its GPU is ending until the
 * kernel has ended the process: the process's memory stays charged, and zinfd starts no other
 * zinf-gpu for that GPU.
 */
#pragma once

#include <stdint.h>

struct config;
struct gpu_worker;
struct gpus;
struct tier_arenas;
struct topo;
struct zi_loop;

struct gpus_options {
	struct zi_loop *loop;        /* turned later */
	const struct config *config; /* outlives the GPUs, as do the next two */
	const struct topo *topo;     /* NULL: no GPU has a node */
	struct tier_arenas *arenas;  /* gets the tiers, and why there are none */
	const char *program;         /* path of zinf-gpu; NULL: beside this program */
	uint64_t retry_ns;           /* the first pause; 0: 30 s. It doubles up to 32 times that */
	uint64_t request_ns;         /* for tests: as of a worker; 0: of gpu.deadline_s */
	uint64_t linger_ns, stop_ns; /* for tests: as of a worker; 0: 5 s and less */
};

/**
 * gpus_new() - start the workers
 *
 * Where no GPU is wanted, or there is no driver and gpu.enable is auto, nothing is started.
 * Return: 0; -ENOMEM.
 */
int gpus_new(const struct gpus_options *options, struct gpus **ret_gpus);
/* Ends the workers; no request of theirs is left. One that does not end in time is left behind,
 * with a line in the log. NULL-safe. Return: NULL. */
struct gpus *gpus_free(struct gpus *gpus);

/* How many have a worker: grows until one has told how many there are. */
uint32_t gpus_count(const struct gpus *gpus);
/* @index: below gpus_count(). */
struct gpu_worker *gpus_worker(const struct gpus *gpus, uint32_t index);
