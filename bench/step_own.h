/* SPDX-License-Identifier: Apache-2.0 */
/* Our own ranks in suite `step`: the suite's program, started anew with "rank DTYPE
 * GRADIENT_BYTES", that attaches to the daemon at $ZINF_SOCKET as rank $RANK of $WORLD_SIZE. */
#pragma once

int step_own_rank(int argc, char **argv);
