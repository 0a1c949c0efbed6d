/* SPDX-License-Identifier: Apache-2.0 */
/* The Python interpreter of the peers: $BENCH_PYTHON, that of `make bench-env`, or Debian's. */
#pragma once

/* A path; valid until the program ends. */
const char *bench_python(void);
