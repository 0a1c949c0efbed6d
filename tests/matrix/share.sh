# SPDX-License-Identifier: Apache-2.0
# What check_matrix and check_gpu_matrix read of a run. In $build, $directory: the build; files and the daemon's socket.

# Step, rank, loss, norm and clip of each line, all digits, sorted.
losses() {
	sed -n 's/^{"step":\([0-9]*\),"rank":\([0-9]*\),.*"loss":\([^,]*\),"norm":\([^,]*\),"clip":\([^,]*\),.*/\1 \2 \3 \4 \5/p' \
		"$@" | LC_ALL=C sort
}

zctl() { "$build/bin/zctl" --socket "$directory/zinfd.sock" "$@" >"$directory/said" 2>&1; }

# Masters and moments of SOURCE, a job's last step or a snapshot, as --dump-state has them.
planes_of() { # SOURCE
	local plane
	zctl export "$1" "$directory/exported" --format zinf || return 1
	for plane in master exp_avg exp_avg_sq; do
		plane=$directory/exported/$plane.safetensors
		# Behind its head: 8 bytes of that one's length.
		[ ! -e "$plane" ] || tail -c +$((9 + $(od -An -t u8 -N 8 "$plane"))) "$plane"
	done
	rm -r "$directory/exported"
}

# Those of job NAME in $directory/NAME.state.
export_state() { # NAME
	zctl snapshot "$1" --name last && planes_of "$1/last" >"$directory/$1.state" &&
		zctl snapshot rm "$1/last" || {
		cat "$directory/said"
		return 1
	}
}
