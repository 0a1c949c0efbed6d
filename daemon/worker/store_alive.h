/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether who holds the other end of a connection of the store is still there, where neither says
 * anything. Floor 3. Any thread.
 *
 * A host that lost power and a cable that was cut close no connection. So the kernels of both sides
 * ask each other now and then:
 *
 *   the other host is up, its process too   answers                    nobody hears of it
 *   it was started anew, or knows it no more   a reset                 the connection ends
 *   nothing comes                           store_alive_is_silent()    the connection stays: cables
 *                                                                      are put in again; and ends
 *                                                                      after STORE_ALIVE_END_S
 */
#pragma once

#include <assert.h>
#include <stdbool.h>

#include "common/base/clock.h"

/* After so long without a word the kernel asks; and again where no answer came. */
#define STORE_ALIVE_IDLE_S  2
#define STORE_ALIVE_AGAIN_S 5
/* As often as a kernel does it: longer than calls wait by themselves, ten minutes. */
#define STORE_ALIVE_TRIES 127
#define STORE_ALIVE_END_S (STORE_ALIVE_IDLE_S + STORE_ALIVE_TRIES * STORE_ALIVE_AGAIN_S)
/* Silence that is more than an answer on its way. */
#define STORE_SILENT_NS (4 * ZI_NS_PER_S)
static_assert(STORE_SILENT_NS >= 2 * STORE_ALIVE_IDLE_S * ZI_NS_PER_S, "asked and not answered");

/* From now on the kernel asks. Where it cannot be had, the end is noticed by a word, or late. */
void store_alive_watch(int fd);
/* The end of @fd is told by a reset alone, which is not repeated: where it is lost on its way, the
 * other side's next question is answered with one. (What is said in order would be repeated, ever
 * more seldom, while questions find somebody who still has something to say.) What was sent and not
 * acknowledged is lost then: for a client, whose requests are all answered. */
void store_alive_end_by_reset(int fd);
/* Whether nothing was heard for STORE_SILENT_NS, of one that is watched. */
bool store_alive_is_silent(int fd);
