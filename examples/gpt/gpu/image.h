/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels of layers.cu: cubins of several architectures, and PTX for newer ones. */
#pragma once

/* For cuModuleLoadData(). NULL: this build has none, as nvcc was not found. */
const void *gpt_gpu_image(void);
