# SPDX-License-Identifier: Apache-2.0
# Rows of check_matrix with more than one life, read by it: a rank or zinfd is killed at a drawn step and the job
# goes on, by another strategy; a job begins with a snapshot of another strategy, and another number of ranks.
# All end in the bits of a run that nothing befell.

# Until rank 0 has said that step STEP is committed: it writes that to "$directory/watched" and, until that
# line is read, goes no further than the next step. Return: 1 it ended before.
await_step() { # STEP
	local line
	exec 4<"$directory/watched"
	while read -r line <&4; do
		[ "$line" -lt "$1" ] || return 0
	done
	return 1
}

watch_steps() {
	rm -f "$directory/watched"
	mkfifo "$directory/watched"
}

unwatch() {
	exec 4<&-
}

# Losses of all lives of $name: those of the reference, where a line may be missing for each rank that was killed,
# or was not told of the last step that it had a part in, but none may differ.
compare_lives() { # RANKS
	losses "$directory/$name".[0-9] | uniq >"$directory/$name.losses"
	[ -z "$(LC_ALL=C comm -13 "$reference.losses" "$directory/$name.losses")" ] || fail "other losses"
	[ "$(LC_ALL=C comm -23 "$reference.losses" "$directory/$name.losses" | wc -l)" -le "$1" ] ||
		fail "steps are missing"
}

# kill_row VICTIM STRATEGY AFTER PLACE RANKS SCHEDULE DTYPE: VICTIM, rank or zinfd, behind a drawn step; on by AFTER
kill_row() {
	local place at victim=0 all
	read -ra place <<<"$4"
	draw_habits "$7"
	steps=4 at=$((1 + (rows + seed) % 2))
	[ "$2" = dp ] || victim=$(((rows + seed) % $5)) # all of dp are one process
	words="$2, on by $3, $1 killed behind step $at, optimizer ${place[0]}, parameters ${place[1]}, $5 ranks, $6, $7, $micros micro-batches ${sync[*]}, summed in $reduce"
	name=killed
	set_flags $steps 3e-3 "$6" "$7"
	make_reference "$5" "$6" "$7"
	rm -f "$directory/$name".*
	all=("$build/bin/zinf-gpt" $name "$5" "${flags[@]}" "${sync[@]}"
		--offload-optimizer "${place[0]}" --offload-param "${place[1]}")
	set_strategy "$2" "$5"
	watch_steps
	begin_job "${all[@]}" "${way[@]}" --incarnation one --watch "$directory/watched"
	await_step $at || fail "it did not come to step $at"
	if [ "$1" = rank ]; then
		kill -9 "${pids[victim]}"
	else
		kill -9 "$daemon"
		wait "$daemon" 2>/dev/null || true
	fi
	unwatch
	! wait_all || fail "all ranks ended well"
	[ "$1" = rank ] || start_daemon
	set_strategy "$3" "$5"
	run_job "${all[@]}" "${way[@]}" --incarnation two --resume latest --dump "$directory/dump.{rank}" ||
		fail "it did not go on"
	export_state $name || fail "its state was not exported"
	run_job "${all[@]}" "${way[@]}" --incarnation three --delete-job || fail "it was not deleted"
	compare_dumps "$5"
	cmp "$reference.state" "$directory/$name.state" || fail "other masters or moments"
	compare_lives "$5"
	steps=3
	passed=$((passed + 1))
	echo "equal: $words"
}

# load_row FROM STRATEGY PLACE RANKS SCHEDULE DTYPE: a snapshot of a job by FROM, half way, begins one by STRATEGY
load_row() {
	local place from=$1 run
	read -ra place <<<"$3"
	draw_habits "$6"
	steps=4
	words="$2 with a snapshot of $from, optimizer ${place[0]}, parameters ${place[1]}, $4 ranks, $5, $6, $micros micro-batches ${sync[*]}, summed in $reduce"
	set_flags $steps 3e-3 "$5" "$6"
	make_reference "$4" "$5" "$6"
	rm -f "$directory"/first.* "$directory"/loaded.*
	run=("${flags[@]}" "${sync[@]}" --offload-optimizer "${place[0]}" --offload-param "${place[1]}")
	name=first
	set_strategy "$from" "$4"
	run_job "$build/bin/zinf-gpt" $name "$4" "${run[@]}" "${way[@]}" --steps 2 --incarnation one ||
		fail "a rank failed"
	zctl snapshot $name --name half || fail "no snapshot: $(cat "$directory/said")"
	name=loaded
	set_strategy "$2" "$4"
	run_job "$build/bin/zinf-gpt" $name "$4" "${run[@]}" "${way[@]}" --incarnation one --load first/half \
		--dump "$directory/dump.{rank}" || fail "it did not begin with the snapshot"
	export_state $name || fail "its state was not exported"
	run_job "$build/bin/zinf-gpt" $name "$4" "${run[@]}" "${way[@]}" --incarnation two --delete-job ||
		fail "it was not deleted"
	compare_dumps "$4"
	cmp "$reference.state" "$directory/$name.state" || fail "other masters or moments"
	cat "$directory"/first.[0-9] >>"$directory/loaded.0"
	losses "$directory"/loaded.[0-9] >"$directory/loaded.losses"
	cmp "$reference.losses" "$directory/loaded.losses" || fail "other losses"
	zctl snapshot rm first/half || fail "the snapshot stays: $(cat "$directory/said")"
	name=first
	set_strategy "$from" "$4"
	run_job "$build/bin/zinf-gpt" $name "$4" "${run[@]}" "${way[@]}" --steps 2 --incarnation two \
		--delete-job || fail "it was not deleted"
	steps=3
	passed=$((passed + 1))
	echo "equal: $words"
}

# What dies in memory is gone; what is on the store is not.
draw_victim() { # PLACE INDEX
	victim=rank
	[[ "$1" != nvme* ]] || [ $(($2 % 2)) -eq 0 ] || victim=zinfd
}

# Every strategy's snapshot under every other, and every strategy killed and gone on with by another.
all_lives() {
	local i=0 from to ranks victim
	for from in "${strategies[@]}"; do for to in "${strategies[@]}"; do
		for ranks in 4 8; do
			i=$((i + 1))
			! is_asked || load_row "$from" "$to" "${places[(i + seed) % 7]}" $ranks \
				"${schedules[i / 2 % 2]}" "${dtypes[(i + seed) % 3]}"
			draw_victim "${places[(i + seed) % 7]}" $((i / 7))
			! is_asked || kill_row $victim "$from" "$to" "${places[(i + seed) % 7]}" $ranks \
				"${schedules[(i + 1) / 2 % 2]}" "${dtypes[(i / 3 + seed) % 3]}"
		done
	done; done
}

# One of each.
drawn_lives() {
	local victim
	load_row "${strategies[seed % 6]}" "${strategies[(seed / 2 + 3) % 6]}" "${places[seed % 7]}" 4 \
		"${schedules[seed % 2]}" "${dtypes[seed % 3]}"
	draw_victim "${places[(seed + 4) % 7]}" "$seed"
	kill_row $victim "${strategies[(seed + 2) % 6]}" "${strategies[(seed / 3 + 4) % 6]}" \
		"${places[(seed + 4) % 7]}" 4 "${schedules[(seed + 1) % 2]}" "${dtypes[(seed + 1) % 3]}"
}
