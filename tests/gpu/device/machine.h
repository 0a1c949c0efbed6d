/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of a run, as docs/GPU.md names it: GPU, driver, link, kernel, date. */
#pragma once

struct zi_gpu_device;
struct zi_gpu_driver;

struct machine {
	char device[160]; /* "NVIDIA H200 (140 GiB, compute capability 9.0)" */
	char driver[80];  /* "driver 570.86.15 (CUDA 12.8)" */
	char link[64];    /* "PCIe 5.0 x16"; a link that sleeps is slower */
	char kernel[80];  /* "Linux 6.1.0-18-amd64" */
	char date[16];    /* "2026-11-28", UTC */
};

/* What is not known reads "unknown". Call it after copies, while the link is awake. */
void machine_read(const struct zi_gpu_driver *driver, const struct zi_gpu_device *device,
                  struct machine *ret_machine);
