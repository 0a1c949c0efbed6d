/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels of kernels.cu: cubins of several architectures, and PTX for newer ones. */
#pragma once

/* For cuModuleLoadData(). NULL: this build has none, as nvcc was not found. */
const void *trial_image(void);
