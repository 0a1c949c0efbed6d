/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of this node: a zinf-gpu for each one, started with the daemon where [gpu] wants them.
 * Floor 7; the thread of the loop. The first zinf-gpu tells how many GPUs there are. A GPU that
 * cannot be used is a line in the log: everything else goes on without it.
 *
 * A GPU whose zinf-gpu has opened it becomes a tier (tier/arena.h), for good: the end of its
 * zinf-gpu only makes it down, and the next request for memory starts zinf-gpu again.
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
};

/**
 * gpus_new() - start the workers
 *
 * Where no GPU is wanted, or there is no driver and gpu.enable is auto, nothing is started.
 * Return: 0; -ENOMEM.
 */
int gpus_new(const struct gpus_options *options, struct gpus **ret_gpus);
/* Ends the workers; no request of theirs is left. NULL-safe. Return: NULL. */
struct gpus *gpus_free(struct gpus *gpus);

/* How many have a worker: grows until the first one has told how many there are. */
uint32_t gpus_count(const struct gpus *gpus);
/* @index: below gpus_count(). */
struct gpu_worker *gpus_worker(const struct gpus *gpus, uint32_t index);
