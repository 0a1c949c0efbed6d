/* SPDX-License-Identifier: Apache-2.0 */
/* Our own ranks in suite `coll`: the suite's program, started anew with "rank BUFFER_BYTES", that
 * attaches to the daemon at $ZINF_SOCKET as rank $RANK of $WORLD_SIZE. */
#pragma once

int coll_own_rank(int argc, char **argv);
