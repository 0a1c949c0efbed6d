/* SPDX-License-Identifier: Apache-2.0 */
/* Of actions.h what describes a model: its layout, and the message that ends it. */
#pragma once

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/peer.h"

/* Units of two parameters each, of sizes that @sizes draws. */
void action_send_model(struct peer *peer, uint8_t units, uint8_t sizes);
void action_take_entry(struct peer *peer, struct fuzz_input *input);
/* @lie: bits 0-1 units too many, 2-3 parameters; 4 with the tail that says where nodes meet, which
 * is right but for 5 a port that is none, 6 no host, 7 texts without an end. */
void action_send_materialize(struct peer *peer, uint8_t lie);
