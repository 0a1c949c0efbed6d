# SPDX-License-Identifier: Apache-2.0
# Rows of check_matrix over nodes, read by it: zinfd once for each node, on the loopback interface, ranks told
# what launchers tell them. In some rows something ends and all that ended is started again, with --resume: all
# daemons are stopped between two steps, and parameters lie elsewhere then; or behind a drawn step a rank, a worker,
# one daemon or all of them are killed.
# Every rank's parameters are compared, and masters and moments of the parts that all nodes export, which load as one
# into the daemon of the other rows. Some jobs go on there ("moved"), by another strategy.
# Not over nodes, since refused there: dp.

far_pids=()
far_strategies=(ddp zero1 zero2 zero3 hybrid)
# Ranks and nodes, which have as many each.
far_counts=("2 2" "3 3" "4 2" "4 4" "8 2" "8 4" "8 8")
# What is there after any of these is on the store; ranks and workers alone leave memory as it is.
far_ends=(- stopped moved killed rank - daemon worker)
far_memory_ends=(- rank moved worker)

start_far() { # start_far NODE: anew, or again
	local at=$directory/node$1
	mkdir -p "$at"
	[ -e "$at/zinfd.conf" ] || cat >"$at/zinfd.conf" <<-END
		[daemon]
		socket = $at/zinfd.sock
		state_dir = $at/state
		[tier.cpu]
		capacity = 128M
		[nvme disk]
		path = $at/store
		size = 128M
		measure = never
	END
	mkfifo "$at/ready"
	"$build/bin/zinfd" --config "$at/zinfd.conf" --ready-fd 3 3>"$at/ready" 2>>"$directory/log" &
	far_pids[$1]=$!
	[ "$(cat "$at/ready")" = ready ]
	rm "$at/ready"
}

need_far() { # need_far NODES
	local node
	for ((node = 0; node < $1; node++)); do
		[ -n "${far_pids[node]:-}" ] || start_far $node
	done
}

kill_far() { # kill_far NODE
	kill -9 "${far_pids[$1]}"
	wait "${far_pids[$1]}" 2>/dev/null || true
	far_pids[$1]=""
}

stop_far() {
	local node code=0
	for node in "${!far_pids[@]}"; do
		[ -z "${far_pids[node]}" ] || kill -TERM "${far_pids[node]}"
	done
	for node in "${!far_pids[@]}"; do
		[ -z "${far_pids[node]}" ] || wait "${far_pids[node]}" || code=$?
	done
	far_pids=()
	[ $code -eq 0 ] || {
		echo "zinfd of a node did not stop cleanly: $code"
		exit 1
	}
}

# In $port: where nobody listens, nor at the next, of those that the kernel gives to nobody by itself.
draw_port() {
	while :; do
		port=$((20000 + RANDOM % 12000))
		! grep -qi -e ":$(printf %04X $port) " -e ":$(printf %04X $((port + 1))) " /proc/net/tcp ||
			continue
		break
	done
}

# begin_far NAME RANKS NODES FLAGS...: as begin_job
begin_far() {
	local name=$1 ranks=$2 each=$(($2 / $3)) rank port
	shift 3
	pids=()
	draw_port
	for ((rank = 0; rank < ranks; rank++)); do
		RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$((rank % each)) LOCAL_WORLD_SIZE=$each \
			MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$build/bin/zinf-gpt" --ranks "$ranks" \
			--socket "$directory/node$((rank / each))/zinfd.sock" --job "$name" --json "$@" \
			>>"$directory/$name.$rank" 2>"$directory/$name.$rank.err" &
		pids+=($!)
	done
}

# lose_far END RANKS NODES: what ends by END, now
lose_far() {
	local node=$(((rows + seed) % $3)) worker
	case "$1" in
	rank) kill -9 "${pids[(rows + seed) % $2]}" ;;
	worker)
		worker=$(pgrep -n -P "${far_pids[node]}" zinf-net) && kill -9 "$worker" ||
			fail "node $node has no worker"
		;;
	daemon) kill_far $node ;;
	killed) for ((node = 0; node < $3; node++)); do kill_far $node; done ;;
	esac
}

# Job $name of NODES in the daemon of the other rows, as snapshot $name/whole.
gather_far() { # NODES
	local node
	for ((node = 0; node < $1; node++)); do
		"$build/bin/zctl" --socket "$directory/node$node/zinfd.sock" export $name "$directory/parts" \
			--format zinf >"$directory/said" 2>&1 || {
			cat "$directory/said"
			return 1
		}
	done
	zctl load "$directory/parts" $name/whole || {
		cat "$directory/said"
		return 1
	}
	rm -r "$directory/parts"
}

# delete_far STEPS ...: as begin_far
delete_far() {
	begin_far "${@:2}" --steps "$1" --incarnation last --delete-job
	wait_all || fail "it was not deleted"
}

# What nodes have made in "${all[@]}" goes on in one, by the next strategy.
move_far() { # STRATEGY PLACE RANKS NODES
	local i=0 place
	read -ra place <<<"$2"
	gather_far "$4" || fail "its parts do not load"
	delete_far 2 "${all[@]}"
	while [ "${far_strategies[i]}" != "$1" ]; do i=$((i + 1)); done
	set_strategy "${far_strategies[(i + 1) % 5]}" "$3"
	all=("$build/bin/zinf-gpt" $name "$3" "${flags[@]}" "${way[@]}" "${sync[@]}"
		--offload-optimizer "${place[0]}" --offload-param "${place[1]}")
	run_job "${all[@]}" --load $name/whole --incarnation one --dump "$directory/dump.{rank}" ||
		fail "it did not go on in one node"
	export_state $name || fail "its state was not exported"
	run_job "${all[@]}" --incarnation two --delete-job || fail "it was not deleted"
	zctl snapshot rm $name/whole || fail "the snapshot stays: $(cat "$directory/said")"
}

# Of two of the longest units, and next to nothing for sums of gradients, which go to the stores.
far_budget=68K

# has_budget STRATEGY PLACE SCHEDULE DTYPE: with this many micro-batches, summed so
has_budget() {
	[[ "$1" = zero[23] || "$1" = hybrid ]] && [[ "$2" = nvme* && "$4" != f32 ]] &&
		[ "$3" = per_micro_batch -o $micros -eq 1 ] && [ "$reduce" != f32 ]
}

# far_row NODES STRATEGY PLACE RANKS SCHEDULE DTYPE END [BUDGET]: of gradients, where it can be
far_row() {
	local place all after end=$7 at missing=$4
	local -A next=([none]=cpu [cpu]=nvme [nvme]=none)
	budget=() # for the caller to see
	read -ra place <<<"$3"
	draw_habits "$6"
	steps=4 at=$((1 + (rows + seed) % 2))
	words="$2, optimizer ${place[0]}, parameters ${place[1]}, $4 ranks on $1 nodes, $5, $6, $micros micro-batches ${sync[*]}, summed in $reduce"
	if [ -n "${8:-}" ] && has_budget "$2" "$3" "$5" "$6"; then
		budget=(--grad-budget "$8")
		words+=", sums on the stores"
	fi
	case "$end" in
	-) ;;
	stopped)
		after=${next[${place[1]}]}
		words+=", daemons stopped behind step 2, parameters $after then"
		;;
	killed) words+=", daemons killed behind step $at" ;;
	moved) words+=", gone on with in one behind step 2" ;;
	*) words+=", a $end killed behind step $at" ;;
	esac
	name=far
	need_far "$1"
	set_flags $steps 3e-3 "$5" "$6"
	set_strategy "$2" "$4"
	make_reference "$4" "$5" "$6"
	rm -f "$directory/$name".*
	all=($name "$4" "$1" "${flags[@]}" "${way[@]}" "${sync[@]}"
		--offload-optimizer "${place[0]}" --offload-param "${place[1]}" --timeout 60 "${budget[@]}")
	if [ "$end" = stopped ] || [ "$end" = moved ]; then
		begin_far "${all[@]}" --steps 2 --incarnation none
		wait_all || fail "a rank failed in the first two steps"
	elif [ "$end" != - ]; then
		watch_steps
		begin_far "${all[@]}" --incarnation none --watch "$directory/watched"
		await_step $at || fail "it did not come to step $at"
		lose_far "$end" "$4" "$1"
		unwatch
		! wait_all || fail "all ranks ended well"
	fi
	[ "$end" != stopped ] || {
		stop_far
		all+=(--offload-param "$after")
	}
	need_far "$1"
	case "$end" in
	- | stopped | moved) missing=0 ;;
	esac
	if [ "$end" = moved ]; then
		move_far "$2" "$3" "$4" "$1"
	else
		[ "$end" = - ] || all+=(--resume latest)
		begin_far "${all[@]}" --incarnation one --dump "$directory/dump.{rank}"
		wait_all || fail "a rank failed"
		gather_far "$1" || fail "its parts do not load"
		planes_of $name/whole >"$directory/$name.state" || fail "its state was not exported"
		zctl snapshot rm $name/whole || fail "the snapshot stays: $(cat "$directory/said")"
		delete_far $steps "${all[@]}"
	fi
	compare_dumps "$4"
	cmp "$reference.state" "$directory/$name.state" || fail "other masters or moments"
	compare_lives $missing
	steps=3
	passed=$((passed + 1))
	echo "equal: $words"
}

# Return: it is not refused.
is_far() { # STRATEGY RANKS
	divides_at "$1" "$2"
}

draw_end() { # draw_end PLACE INDEX: in $end
	if [[ "$1" = nvme* ]]; then end=${far_ends[$2 % 8]}; else end=${far_memory_ends[$2 % 4]}; fi
}

has_nodes() {
	[ -x "$build/bin/zinf-net" ] || {
		echo "skipped: rows over nodes: zinf-net is not built (libgloo-dev)"
		without+=", without rows over nodes"
		return 1
	}
}

all_far_rows() {
	local counts strategy place schedule dtype end ranks nodes
	has_nodes || return 0
	for counts in "${far_counts[@]}"; do for schedule in "${schedules[@]}"; do
		read -r ranks nodes <<<"$counts"
		for dtype in "${dtypes[@]}"; do for strategy in "${far_strategies[@]}"; do
			for place in "${places[@]}"; do
				is_far "$strategy" "$ranks" && is_asked || continue
				draw_end "$place" $((rows / 2 + seed))
				far_row "$nodes" "$strategy" "$place" "$ranks" "$schedule" "$dtype" "$end" \
					$([ $((rows % 3)) -eq 0 ] || echo $far_budget)
			done
		done; done
	done; done
	stop_far
}

# One with sums of gradients on the stores.
far_sums_row() {
	local ranks nodes budget
	# Summed in their own type: every fourth row is not.
	[ $(((rows + seed) % 4)) -ne 3 ] || rows=$((rows + 1))
	read -r ranks nodes <<<"${far_counts[2 + seed % 5]}"
	far_row "$nodes" "${far_strategies[2 + seed % 3]}" "nvme cpu" "$ranks" per_micro_batch \
		"${dtypes[1 + seed % 2]}" "${far_ends[seed * 5 % 8]}" $far_budget
	[ ${#budget[@]} -gt 0 ] || fail "no sums were on the stores"
}

# Four: one that runs through with state in memory, two of which something ends, with it there and on the
# store, and that with sums.
drawn_far_rows() {
	local i ranks nodes end place strategy drawn=(- "${far_memory_ends[1 + seed % 3]}" "${far_ends[(1 + seed * 3) % 8]}")
	has_nodes || return 0
	for i in 0 1 2; do
		read -r ranks nodes <<<"${far_counts[(seed + i * 3) % 7]}"
		place=${places[i == 2 ? 4 + seed % 3 : (seed + i) % 4]}
		strategy=${far_strategies[(seed + i * 2) % 5]}
		is_far "$strategy" "$ranks" || strategy=zero3
		far_row "$nodes" "$strategy" "$place" "$ranks" "${schedules[(seed + i) % 2]}" \
			"${dtypes[(seed + i) % 3]}" "${drawn[i]}"
	done
	far_sums_row
	stop_far
}
