/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of kernels/cuda.h, as one image. */
#include "kernels/cuda/cast.cu"
#include "kernels/cuda/norm.cu"
#include "kernels/cuda/optim.cu"
#include "kernels/cuda/reduce.cu"
