#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: a daemon that starts, trains a small model with its state on NVMe, answers zctl, and stops,
# leaks nothing and touches nothing it should not. Method: zinfd under valgrind memcheck; any error
# or definite or possible leak fails. The AVX-512 tables are beyond valgrind 3.19: ZINF_ISA=avx2.
set -eu
# hwloc's PCI plugin, where it is installed, loses what libpciaccess allocated.
export HWLOC_PLUGINS_BLACKLIST=hwloc_pci.so
cd "$(dirname "$0")/../.."
build=${ZINF_BUILD:-build/release}

directory=$(mktemp -d)
pid=""
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$directory"' EXIT
cat >"$directory/zinfd.conf" <<END
[daemon]
socket = $directory/zinfd.sock
state_dir = $directory/state
[tier.cpu]
capacity = 256M
[nvme disk]
path = $directory/store
size = 64M
END
mkfifo "$directory/ready"
ZINF_ISA=avx2 valgrind --quiet --error-exitcode=99 --leak-check=full \
	--show-leak-kinds=definite,possible --errors-for-leak-kinds=definite,possible \
	--suppressions=tests/system/valgrind.supp \
	"$build/bin/zinfd" --config "$directory/zinfd.conf" --ready-fd 3 3>"$directory/ready" \
	2>"$directory/log" &
pid=$!
# The fifo ends without a word when the daemon fails to start.
[ "$(cat "$directory/ready")" = ready ] || {
	cat "$directory/log"
	exit 1
}
ZINF_ISA=avx2 "$build/bin/zinf-gpt" --ranks 2 --socket "$directory/zinfd.sock" --job leak --layers 1 \
	--heads 2 --d-model 32 --seq-len 16 --batch-size 1 --steps 3 --bf16 --clip 1 \
	--offload-optimizer nvme --quiet
"$build/bin/zctl" --socket "$directory/zinfd.sock" jobs >/dev/null
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
pid=""
if [ "$code" -ne 0 ] || grep -q '^==' "$directory/log"; then
	cat "$directory/log"
	echo "valgrind: failed (exit code $code)"
	exit 1
fi
echo "valgrind: start, work and stop are clean"
