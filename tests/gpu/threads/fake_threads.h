/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of CUDA as threads of the CPU, so that a .cu file can be compiled as C++ and run
 * (fake_nvcc.h): which thread computes what, and what threads exchange. Blocks run one after the
 * other. Rows are computed by 16 threads, half a warp each; only these exchange values. A shuffle
 * orders memory here, which it does not on a GPU.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct fake_dim {
	unsigned x, y, z;
};

/* Of the calling thread. */
extern __thread struct fake_dim fake_thread, fake_block, fake_block_shape, fake_grid_shape;

/* Runs @body(@args) in all threads of the grid. @grid: x only. @block: at most 1024 threads. */
void fake_grid_run(unsigned grid, struct fake_dim block, void (*body)(const void *args),
                   const void *args);

/* Of a kernel. @mask: the half of the warp that the thread belongs to. */
void fake_syncthreads(void);
void fake_syncwarp(unsigned mask);
/* @source: which lane's value is returned, 0 to 15. */
float fake_shuffle(unsigned mask, float value, unsigned source);

#ifdef __cplusplus
}
#endif
