/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs as plain structs: what the driver says of each one that this process sees. No context is
 * made. A GPU is named by its UUID in messages between processes, because numbers of devices differ
 * among processes (CUDA_VISIBLE_DEVICES). Floor 1, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_gpu_driver;
struct zi_text;

/* "GPU-8-4-4-4-12" or "MIG-8-4-4-4-12" in hexadecimal digits, and a NUL. */
#define ZI_GPU_UUID_BYTES 41u
#define ZI_GPU_NAME_BYTES 96u
/* "0000:3b:00.0" in lower case, as in /sys/bus/pci/devices. */
#define ZI_GPU_PCI_BYTES 16u
/* Of one process. */
#define ZI_GPU_DEVICES_MAX 64u
/* Chunks are multiples of it, as units begin at multiples of huge pages. */
#define ZI_GPU_GRAIN_BYTES (2u << 20)

struct zi_gpu_device {
	char uuid[ZI_GPU_UUID_BYTES];
	char name[ZI_GPU_NAME_BYTES];
	char pci[ZI_GPU_PCI_BYTES];
	int32_t index;              /* in this process */
	int32_t device;             /* the driver's number, for its functions */
	uint64_t bytes;             /* memory of the device, what others hold included */
	uint64_t granularity_bytes; /* of chunks; 0: no VMM */
	uint32_t capability;        /* 90: compute capability 9.0 */
	uint32_t multiprocessor_count;
	uint32_t copy_engine_count;
	int32_t compute_mode; /* ZI_CUDA_MODE_... */
	int32_t host_numa;    /* the nearest NUMA node; -1: the driver does not say */
	bool has_vmm;
	bool has_posix_fds;
	bool has_read_only_register;
	bool has_host_pointers; /* registered memory has one address for CPU and GPU */
	bool is_mig;            /* an instance, not a whole GPU */
	bool is_integrated;     /* its memory is the CPU's */
};

/* How many GPUs the process sees, at most ZI_GPU_DEVICES_MAX. Return: 0, or the errno of the
 * driver, with @text. */
int zi_gpu_device_count(const struct zi_gpu_driver *driver, uint32_t *ret_count,
                        struct zi_text *text);
/* @index: below what zi_gpu_device_count() gives. Return: 0; -ENODEV there is no such GPU; another
 * errno of the driver. */
int zi_gpu_device_describe(const struct zi_gpu_driver *driver, uint32_t index,
                           struct zi_gpu_device *ret_device, struct zi_text *text);
/* The GPU with this UUID, in any case of letters. A GPU whose UUID the driver cannot tell hides no
 * other one. Return: 0; -ENODEV the process does not see it, and @text has the number of GPUs and
 * the first one's UUID; the errno of a GPU whose UUID is not known, where no other is the one;
 * another errno of the driver. */
int zi_gpu_device_find(const struct zi_gpu_driver *driver, const char *uuid,
                       struct zi_gpu_device *ret_device, struct zi_text *text);
/* Can zinf's chunks lie on it, and a context use it? Return: 0; -ENOTSUP, with what it lacks. */
int zi_gpu_device_check(const struct zi_gpu_device *device, struct zi_text *text);
/* A text of the form of a GPU's UUID ("GPU-…" or "MIG-…"). */
bool zi_gpu_is_uuid(const char *text);
