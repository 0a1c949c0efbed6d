/* SPDX-License-Identifier: Apache-2.0 */
/* The private zinfd of a run, on the run's driver, with a store in $TMPDIR. */
#pragma once

struct harness;
struct trial;

/* @cpu_capacity, @store_size: "4G". Return: 0; -errno after zinfd's words. */
int daemon_start(const struct trial *trial, const char *cpu_capacity, const char *store_size,
                 struct harness *ret_harness);
