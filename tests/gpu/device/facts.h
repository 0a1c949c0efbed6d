/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What zinf's memory on a GPU relies on, asked of the driver: chunks that a process without a
 * context makes, their life, and read-only registration. `ask` prints the answers, `check` demands
 * them.
 */
#pragma once

#include <stdbool.h>

struct trial;
struct zi_text;

/* @found: what was seen, also where the fact does not hold. Return: it holds. */
typedef bool (*fact_fn)(struct trial *trial, struct zi_text *found);

/* Chunks are made and exported without a context. Two maps of one chunk, used on two streams that
 * events order, show the same bytes. */
bool fact_chunks_are_shared(struct trial *trial, struct zi_text *found);
/* Memory that is mapped PROT_READ can be registered, and copied from. */
bool fact_read_only_memory_registers(struct trial *trial, struct zi_text *found);
/* After SIGKILL to the maker a mapped chunk keeps its bytes, and an exported one can be
 * imported. */
bool fact_chunks_outlive_their_maker(struct trial *trial, struct zi_text *found);
/* Memory that was released is zero when it is made anew. */
bool fact_new_chunks_are_zero(struct trial *trial, struct zi_text *found);
