#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs fuzz targets. Usage, with BUILD the folder of a build:
#   tests/fuzz/run.sh BUILD SECONDS TARGET...         fuzz each for so long (BUILD of VARIANT=fuzz)
#   tests/fuzz/run.sh BUILD repeat TARGET FILE        one input
#   tests/fuzz/run.sh BUILD replay TARGET...          all inputs kept in the tree, without libFuzzer
#   tests/fuzz/run.sh BUILD minimize TARGET...        merges what fuzzing found into the tree's corpora
#   tests/fuzz/run.sh BUILD unpack TARGET...          the kept inputs as files: BUILD/kept/TARGET
#   tests/fuzz/run.sh BUILD pack TARGET...            the archives anew, of BUILD/kept/TARGET
# Kept inputs of a target lie in the archive tests/fuzz/corpus/TARGET.tar, and those that are not packed yet in the
# folder tests/fuzz/corpus/TARGET; `make fuzz-pack` puts them into the archive.
# Found inputs and crashes lie in BUILD/corpus/TARGET and BUILD/crashes; exit code 1 when a target
# crashed, leaked, or took too long with an input.
set -u

build=$1 mode=$2
shift 2
corpus=tests/fuzz/corpus
kept=$build/kept
# A container's memory is not all ours; an input that needs more is a finding.
limits="-rss_limit_mb=4096 -malloc_limit_mb=1024 -timeout=25"
# 256 MB of freed memory are fresh pages for each run; 16 MB hold what dozens of runs free.
export ASAN_OPTIONS=abort_on_error=0:detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=16
export UBSAN_OPTIONS=print_stacktrace=1

# Whatever a target that crashed leaves behind goes with this folder.
scratch=$(mktemp -d /dev/shm/zinf-fuzz.XXXXXX 2>/dev/null || mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
export TMPDIR="$scratch"

program() {
	echo "$build/tests/fuzz/fuzz_$1"
}

# A catalog's file is some pages; everything else is shorter.
options() {
	# Weighing the inputs by their rare features takes a third of the CPU time of these.
	case "$1" in rings | socket | tensors | load) printf ' -entropic=0' ;; esac
	[ "$1" = catalog_file ] && printf ' -max_len=16384' || printf ' -max_len=4096'
	[ -f "tests/fuzz/$1.dict" ] && printf ' -dict=tests/fuzz/%s.dict' "$1"
	return 0
}

# Anew, as the tree has them. A target that is new has none.
unpack() {
	rm -rf "${kept:?}/$1"
	mkdir -p "$kept/$1"
	[ ! -f "$corpus/$1.tar" ] || tar -xf "$corpus/$1.tar" -C "$kept/$1" || return 1
	[ ! -d "$corpus/$1" ] || cp -R "$corpus/$1/." "$kept/$1/"
}

# The same inputs give the same archive.
pack() {
	(cd "$kept/$1" && LC_ALL=C ls -A | tar --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner \
		--mode=644 --verbatim-files-from -T - -cf -) >"$scratch/tar" || return 1
	cp "$scratch/tar" "$corpus/$1.tar"
	rm -rf "${corpus:?}/$1"
	printf '%-14s %s inputs\n' "$1" "$(ls -A "$kept/$1" | wc -l)"
}

fuzz_one() {
	target=$1
	mkdir -p "$build/corpus/$target" "$build/crashes"
	unpack "$target" || return 1
	before=$(find "$build/crashes" -name "$target-*" | wc -l)
	log="$scratch/log"
	# shellcheck disable=SC2046
	"$(program "$target")" $limits $(options "$target") -max_total_time="$mode" -print_final_stats=1 \
		-artifact_prefix="$build/crashes/$target-" \
		"$build/corpus/$target" "$kept/$target" >"$log" 2>&1
	code=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	cover=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
	printf '%-14s %8s runs, %6s edges, %5s inputs kept by this build\n' "$target" "${runs:-?}" \
		"${cover:-?}" "$(ls "$build/corpus/$target" | wc -l)"
	[ $code -eq 0 ] && return 0
	grep -aE '^(fuzz:|==|SUMMARY|.*runtime error|.*[Aa]ssert)' "$log" | head -n 20
	after=$(find "$build/crashes" -name "$target-*" | wc -l)
	if [ "$after" -gt "$before" ]; then
		file=$(ls -t "$build/crashes/$target-"* | head -n 1)
		echo "  new: $file"
		echo "  again: make fuzz-repeat TARGET=$target FILE=$file"
	else
		tail -n 30 "$log"
	fi
	return 1
}

bad=0
case "$mode" in
repeat)
	if [ $# -ne 2 ]; then
		echo "make fuzz-repeat TARGET=name FILE=path" >&2
		exit 2
	fi
	"$(program "$1")" $limits "$2" || exit 1
	;;
replay)
	for target; do
		[ -e "$corpus/$target.tar" ] || [ -d "$corpus/$target" ] ||
			{ echo "no corpus: $corpus/$target.tar"; bad=1; continue; }
		unpack "$target" || { bad=1; continue; }
		result=$("$(program "$target")" "$kept/$target" 2>"$scratch/log") || {
			tail -n 20 "$scratch/log"
			echo "failed: $(program "$target") $kept/$target"
			bad=1
			continue
		}
		[ -z "${FUZZ_VERBOSE:-}" ] || printf '%-14s %s\n' "$target" "$result"
	done
	;;
minimize)
	for target; do
		mkdir -p "$scratch/$target" "$build/corpus/$target"
		unpack "$target" || { bad=1; continue; }
		"$(program "$target")" $limits -set_cover_merge=1 "$scratch/$target" "$kept/$target" \
			"$build/corpus/$target" >"$scratch/log" 2>&1 || { cat "$scratch/log"; bad=1; continue; }
		# Regressions have names of their own and stay.
		find "$kept/$target" -type f -name '????????????????????????????????????????' -delete
		cp -n "$scratch/$target/"* "$kept/$target/"
		pack "$target" || bad=1
	done
	;;
unpack | pack)
	for target; do
		"$mode" "$target" || bad=1
	done
	;;
*)
	for target; do
		fuzz_one "$target" || bad=1
	done
	[ $bad -eq 0 ] && echo "no crash"
	;;
esac
exit $bad
