/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels of cuda.h: cubins of several architectures, and PTX for newer ones. A
 * program that launches them links this object beside the module's archive. Floor 1. */
#pragma once

/* For cuModuleLoadData(). NULL: this build has none, as nvcc was not found. */
const void *kern_cuda_image(void);
