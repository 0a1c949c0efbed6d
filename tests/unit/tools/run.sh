#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: tools/check_floors, check_headers, check_links, check_ptx and tidy catch each kind of breach, and let a clean
# tree pass; tools/run_tests misses no test that fails. Method: a small made-up tree in a temporary folder; each
# case starts from the clean tree, adds one breach, and wants the tool to fail and to name file, line and reason.
# What run_tests runs here are scripts that end as Criterion's programs do.
set -u

tools=$(cd "$(dirname "$0")/../../../tools" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
passed=0
failed=0
license='/* SPDX-License-Identifier: Apache-2.0 */'

# Makes the clean tree anew.
clean() {
	rm -rf "$tree"
	mkdir -p "$tree/tools" "$tree/low" "$tree/high" "$tree/high/side" "$tree/include/zinf" \
		"$tree/tests" "$tree/kernels"
	printf 'low:\nkernels:\ninclude:\nhigh: low include\nhigh/side: low\ntests: *\n' \
		>"$tree/tools/floors"
	printf '%s\n#pragma once\nint low_get(void);\n' "$license" >"$tree/low/low.h"
	printf '%s\n#pragma once\n/* Seven. */\nint zinf_get(void);\n' "$license" \
		>"$tree/include/zinf/zinf.h"
	cat >"$tree/low/low.c" <<-'END'
		/* SPDX-License-Identifier: Apache-2.0 */
		#include "low/low.h"

		static int helper(void)
		{
			return 7; /* not strcpy(a, b), nor a "TODOs" list */
		}

		/* Seven. */
		int low_get(void)
		{
			return "strcat(a, b)"[0] + helper();
		}
	END
	cat >"$tree/high/high.c" <<-'END'
		/* SPDX-License-Identifier: Apache-2.0 */
		#include "low/low.h"
		#include "zinf/zinf.h"

		int zinf_get(void)
		{
			return low_get();
		}
	END
	printf 'help:\n\t@:\nall: $(patsubst %%.c,%%.o,$(wildcard */*.c))\n%%.o: %%.c\n\t@:\n' \
		>"$tree/Makefile"
	printf '%s\n' "$license" >"$tree/tests/test.c"
	cp "$tree/low/low.h" "$tree/high/side/side.h"
}

# verdict NAME OK TEXT
verdict() {
	if [ "$2" = yes ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'FAIL: %s\n%s\n' "$1" "$3"
	fi
}

# passes NAME COMMAND…
passes() {
	name=$1
	shift
	if text=$("$@" 2>&1); then verdict "$name" yes ''; else verdict "$name" no "$text"; fi
}

# catches NAME PATTERN COMMAND…: fails, and says PATTERN (fixed text, line by line).
catches() {
	name=$1
	pattern=$2
	shift 2
	if text=$("$@" 2>&1); then
		verdict "$name" no "exit 0: $text"
	elif printf '%s\n' "$text" | grep -qF -e "$pattern"; then
		verdict "$name" yes ''
	else
		verdict "$name" no "does not say '$pattern': $text"
	fi
}

# warns NAME PATTERN COMMAND…: passes, and says PATTERN all the same.
warns() {
	name=$1
	pattern=$2
	shift 2
	if text=$("$@" 2>&1) && printf '%s\n' "$text" | grep -qF -e "$pattern"; then
		verdict "$name" yes ''
	else
		verdict "$name" no "$text"
	fi
}

floors() { "$tools/check_floors" "$tree"; }
tidy() { "$tools/tidy" "$tree"; }
# Without a warning.
quiet_tidy() { "$tools/tidy" "$tree" | grep -q '0 errors, 0 warnings'; }
ptx_check() { (cd "$tree" && "$tools/check_ptx" "$@"); }
headers() { (cd "$tree" && "$tools/check_headers" "${CC:-cc}" -std=gnu17 -Iinclude); }
# append FILE LINE…
append() {
	file=$tree/$1
	shift
	printf '%s\n' "$@" >>"$file"
}
# filled COUNT: that many statements.
filled() {
	i=0
	while [ $i -lt "$1" ]; do
		printf '\t(void)%d;\n' $i
		i=$((i + 1))
	done
}

# ---- check_floors
clean
passes 'floors: a clean tree passes' floors
clean
append low/low.c '#include "high/side/side.h"'
catches 'floors: upward' 'low/low.c:14: low may not include high/side ("high/side/side.h")' floors
clean
append high/high.c '#include "high/side/side.h"'
catches 'floors: a folder below has its own row' 'high may not include high/side' floors
clean
append low/low.c '#include <zinf/zinf.h>'
catches 'floors: the public API in angle brackets' 'low may not include include' floors
clean
append low/low.c '# include	"high/side/side.h"'
catches 'floors: odd spacing' 'low/low.c:14:' floors
clean
append low/low.c '#include "low.h"'
catches 'floors: no path from the root' 'without its path from the root' floors
clean
append low/low.c '#include "nowhere/x.h"'
catches 'floors: a target without a floor' 'which lies on no floor' floors
clean
mkdir "$tree/other" && printf '%s\n' "$license" >"$tree/other/x.c"
catches 'floors: a folder without a row' 'other/x.c:1: lies in a folder without a floor' floors
clean
append tools/floors 'wide: loww'
catches 'floors: a row that names no row' 'wide: no such row: loww' floors
clean
append tools/floors 'no colon'
catches 'floors: a line that is no row' 'no row: no colon' floors
clean
rm "$tree/tools/floors"
catches 'floors: no table' 'is missing or empty' floors
clean
append tests/test.c '#include "high/side/side.h"' '#include "low/low.h"'
passes 'floors: "*" may include anything' floors

# ---- check_headers
clean
passes 'headers: a clean tree passes' headers
clean
append low/low.h 'size_t low_bytes(void);'
catches 'headers: relies on what comes before' 'low/low.h: does not compile alone' headers
clean
append low/low.h 'static inline int low_bad(void) { int x; return x = 1; ; '
catches 'headers: broken' '1 of 3 headers' headers

# ---- tidy
clean
passes 'tidy: a clean tree passes' tidy
for call in 'sprintf(a, "x")' 'vsprintf(a, "x", v)' 'strcpy(a, b)' 'strcat(a, b)' 'alloca(3)' \
	'usleep(1)' 'gets(a)' 'strtok(a, b)'; do
	clean
	append low/low.c "static int bad = $call;"
	catches "tidy: $call" "low/low.c:14: error: ${call%%(*}() is banned" tidy
done
clean
append low/low.c '/* a comment' ' * strcpy(a, b) ends */ static int bad = strcpy (a, b);'
catches 'tidy: a call behind a comment' 'low/low.c:15: error: strcpy() is banned' tidy
clean
append low/low.c 'static int good = my_strcpy(a, b) + x.strcpy(a) + x->gets(1);' \
	"static char quote = '\"'; /* strcpy(a, b) */"
passes 'tidy: names that only end like a banned one' tidy
for call in 'sleep(1)' 'nanosleep(&a, 0)' 'clock_nanosleep(0, 0, &a, 0)'; do
	clean
	append tests/test.c "static int bad = $call;"
	catches "tidy: $call in a test" "tests/test.c:2: error: ${call%%(*}() in a test" tidy
done
clean
append high/high.c '#include <stdatomic.h>'
catches 'tidy: atomics outside their places' 'high/high.c:9: error: atomic outside' tidy
clean
append tests/test.c '#include <stdatomic.h>' 'static pthread_mutex_t mutex;' \
	'static int x = pthread_mutex_lock(&mutex);'
passes 'tidy: atomics and mutexes in tests' tidy
clean
append tests/test.c 'Test(calls, one)' '{' '}' 'Test(calls, two)' '{' '}'
passes 'tidy: tests of one suite in one file' tidy
printf '%s\nTest(calls, three)\n{\n}\n' "$license" >"$tree/tests/test_more.c"
catches 'tidy: a suite in two files' 'error: suite calls has tests in tests/test.c as well' tidy
clean
append high/high.c 'static int x = pthread_mutex_lock(&mutex);'
catches 'tidy: a mutex without a reason' 'high/high.c:9: error: mutex outside' tidy
clean
append low/low.c "/* $(printf '%0100d' 0) */"
catches 'tidy: a long line' 'low/low.c:14: error: a line of 106 columns' tidy
clean
append low/low.c "$(printf '\t\t\t/* %073d */' 0)"
catches 'tidy: a tab is eight columns' 'error: a line of 103 columns' tidy
clean
append low/low.c "/* $(printf '%093d' 0)… */"
passes 'tidy: a character of three bytes is one column' tidy
for word in TO''DO FIX''ME X''XX; do # this file is checked too
	clean
	append low/low.c "/* $word: later */"
	catches "tidy: $word" 'low/low.c:14: error: unfinished' tidy
done
clean
{ printf 'static int long_one(void)\n{\n' && filled 98 && printf '}\n'; } >>"$tree/low/low.c"
warns 'tidy: a function of 100 lines is warned of' \
	'low/low.c:15: warning: a function of 100 lines' tidy
clean
{ printf 'static int long_one(void)\n{\n' && filled 99 && printf '}\n'; } >>"$tree/low/low.c"
catches 'tidy: a function of 101 lines' 'error: a function of 101 lines' tidy
clean
{ printf 'static int row[] = {\n' && filled 480 && printf '};\n'; } >>"$tree/low/low.c"
warns 'tidy: a file above 400 lines is warned of' 'warning: a file of 495 lines' tidy
clean
{ printf 'static int row[] = {\n' && filled 490 && printf '};\n'; } >>"$tree/low/low.c"
catches 'tidy: a file above 500 lines' 'error: a file of 505 lines' tidy
clean
{ printf 'static int row[] = {\n' && filled 490 && printf '};\n'; } >>"$tree/tests/test.c"
passes 'tidy: a test of 493 lines' quiet_tidy
{ printf 'static int more[] = {\n' && filled 100 && printf '};\n'; } >>"$tree/tests/test.c"
warns 'tidy: a test above 500 lines is warned of' 'warning: a file of 595 lines' tidy
append tests/test.c '' '' '' '' '' ''
catches 'tidy: a test above 600 lines' 'error: a file of 601 lines' tidy
clean
sed -i 1d "$tree/high/side/side.h"
catches 'tidy: no SPDX line' 'high/side/side.h:1: error: no SPDX' tidy
clean
printf 'x = 1\n' >"$tree/high/x.py"
catches 'tidy: no SPDX line in Python' 'high/x.py:1: error: no SPDX' tidy
clean
sed -i '/^\/\* Seven/d' "$tree/low/low.c"
catches 'tidy: an undocumented function' 'low/low.c:9: error: low_get() is not documented' tidy
clean
sed -i 's|^/\* Seven. \*/|&\n|' "$tree/low/low.c"
catches 'tidy: a comment with an empty line below it' 'low_get() is not documented' tidy
clean
sed -i '/^\/\* Seven/d' "$tree/include/zinf/zinf.h"
catches 'tidy: an undocumented public function' 'high/high.c:5: error: zinf_get() is not' tidy
clean
append low/low.c '' '__attribute__((format(printf, 1, 2))) int low_two(int a,' '	int b)' '{' '}'
catches 'tidy: a declaration of several lines' 'low/low.c:15: error: low_two() is not' tidy
clean
mkdir "$tree/low/deep" && printf '%s\n' "$license" >"$tree/low/deep/dead.c"
catches 'tidy: a dead file' 'low/deep/dead.c:1: error: dead file' tidy
clean
mkdir "$tree/docs" && printf 'In `low.c`, `side/side.h` and any `_avx2.c`.\n' >"$tree/docs/ARCHITECTURE.md"
passes 'tidy: names of files that are there' tidy
append docs/ARCHITECTURE.md 'Then in `low/gone.c`.'
catches 'tidy: a lost name' 'docs/ARCHITECTURE.md:2: error: there is no file low/gone.c' tidy
clean
append low/low.c 'int   unformatted ;'
printf 'BasedOnStyle: LLVM\n' >"$tree/.clang-format"
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
	catches 'tidy: format' 'low/low.c:14:' "$tools/tidy" --format "$tree"
else
	warns 'tidy: format without clang-format' 'is not checked' "$tools/tidy" --format "$tree"
fi

# ---- check_links
clean
mkdir -p "$tree/docs"
links() { "$tools/check_links" "$tree"; }
printf '# A page\n[b](docs/B.md#one-two) [web](https://example.org/x)\n```\n[no](link)\n```\n' >"$tree/README.md"
printf '# B\n\n## One: two\n[up](../README.md#a-page) [here](#b)\n' >"$tree/docs/B.md"
warns 'links: a clean tree passes' '3 links, all resolve' links
printf '[gone](docs/C.md)\n' >>"$tree/README.md"
catches 'links: no file' "README.md:6: 'docs/C.md': there is no such file" links
printf '# A page\n[b](docs/B.md#one)\n' >"$tree/README.md"
catches 'links: no heading' "README.md:2: 'docs/B.md#one': there is no such heading" links
rm "$tree/README.md" "$tree/docs/B.md"
catches 'links: no links at all' 'no link was found' links
# ---- subjects of commits
# commit SUBJECT: on a branch of a repository whose main has one commit
commit() {
	clean
	git_here init -q -b main
	git_here add .
	git_here commit -qm 'Whoever was here before: a subject that nobody looks at any more, as it is on main'
	git_here checkout -qb work
	git_here commit -qm "$1" --allow-empty
}
git_here() { git -C "$tree" -c user.name=tester -c user.email=tester@example.org "$@"; }
for subject in 'tier: free the region' 'tests/unit, tools: run a folder as one program' 'Revert "tier: free the region"' \
	"zctl: $(printf '%066d' 0 | tr 0 a)"; do
	commit "$subject"
	passes "tidy: subject '$subject'" tidy
done
commit "zctl: $(printf '%067d' 0 | tr 0 a)"
catches 'tidy: a long subject' 'error: a subject of 73 columns' tidy
commit 'Who leaves is told'
catches 'tidy: a subject without an area' "begins with its area" tidy
for subject in 'tier: freed the region' 'tier: the region is freed' 'tier: Free the region' 'tier: freeing'; do
	commit "$subject"
	catches "tidy: subject '$subject'" "says what to do" tidy
done
commit 'tier: free the region.'
catches 'tidy: a full stop' 'without a full stop' tidy
git_here branch -qf main
passes 'tidy: what is on main is on main' tidy

# ---- run_tests
clean
# program NAME TESTED PASSING LINE…: a double, that does LINE… as well
program() {
	line="[====] Synthesis: Tested: $2 | Passing: $3 | Failing: 0 | Crashing: 0"
	printf '%s\n' '#!/bin/sh' "echo '$line'" >"$tree/$1"
	chmod +x "$tree/$1"
	name=$1
	shift 3
	append "$name" "$@"
}
run_tests() { (cd "$tree" && TEST_TIMEOUT=1 "$tools/run_tests" "$@"); }
program good 3 3 "echo '[SKIP] a::b: no GPU is here'"
program bad 4 3 'exit 1'
program leaks 2 2 'exit 1'
program hangs 2 2 'exec tail -f /dev/null'
printf '#!/bin/sh\nkill -SEGV $$\n' >"$tree/dies" && chmod +x "$tree/dies"
warns 'run_tests: the sum of all' '6 passed, 0 failed, 2 skipped' run_tests ./good ./good
warns 'run_tests: a skip with its reason' 'no GPU is here' run_tests ./good
catches 'run_tests: a test that fails' '6 passed, 1 failed, 1 skipped' run_tests ./good ./bad
program names 2 1 "echo '[FAIL] a::b: (0.1s)'" 'exit 1'
catches 'run_tests: the name of a test that fails' 'failed: a::b' run_tests ./names
catches 'run_tests: a leak at the end' '5 passed, 1 failed' run_tests ./good ./leaks
catches 'run_tests: one that dies' '3 passed, 1 failed' run_tests ./good ./dies
catches 'run_tests: one that hangs' 'ran past 1 s' run_tests ./good ./hangs
catches 'run_tests: one that is not there' 'failed suites: ./gone' run_tests ./good ./gone
catches 'run_tests: nothing to run' 'no program' run_tests

# A double with suites, as Criterion lists and runs them.
cat >"$tree/tests/suites" <<-'END'
	#!/bin/sh
	if [ "$1" = --list ]; then
		printf 'calls: 2 tests\n|-- first\n`-- second\nwaits: 1 test\n`-- third\n'
		exit
	fi
	for pattern in "$@"; do :; done
	case "$pattern" in
	calls/\*) count=2 ;;
	*) count=1 ;;
	esac
	echo "asked for $pattern" >>asked
	echo "[====] Synthesis: Tested: $count | Passing: $count | Failing: 0 | Crashing: 0"
END
chmod +x "$tree/tests/suites"
# asks NAME PATTERNS COMMAND...: filters that the program was given, sorted
asks() {
	name=$1
	wanted=$2
	shift 2
	rm -f "$tree/asked"
	text=$("$@" 2>&1)
	if [ "$(sort "$tree/asked" 2>/dev/null | sed 's/asked for //' | tr '\n' ' ')" = "$wanted" ]; then
		verdict "$name" yes ''
	else
		verdict "$name" no "$text; $(cat "$tree/asked")"
	fi
}
warns 'run_tests: each suite of a program' '3 passed, 0 failed, 0 skipped' run_tests tests/suites
asks 'run_tests: a filter for each suite' 'calls/* waits/* ' run_tests tests/suites
asks 'run_tests: one suite' 'waits/* ' run_tests 'tests/suites@w*'
catches 'run_tests: a suite that is not there' 'no suite matches' run_tests tests/suites@gone
mkdir -p "$tree/build/tests/low" && cp "$tree/tests/suites" "$tree/build/tests/low/run"
printf 'low calls/second it counts to a million\nlow waits/* it waits\n' >"$tree/tests/slow"
asks 'run_tests: without slow tests' 'calls/!(second) ' run_tests build/tests/low/run
SLOW=only asks 'run_tests: slow tests alone' 'calls/@(second) waits/@(*) ' run_tests build/tests/low/run
SLOW=1 asks 'run_tests: slow tests, too' 'calls/* waits/* ' run_tests build/tests/low/run
asks 'run_tests: the list is of one folder' 'calls/* waits/* ' run_tests tests/suites

# As nvcc writes it; one line more is one breach.
ptx() {
	printf '.visible .entry k(\n)\n{\n\tmul.rn.f32 %%f1, %%f2, %%f3; // fma.rn.f32 in a comment\n' >"$tree/k.ptx"
	printf '\tdiv.rn.f32 %%f1, %%f2, %%f3;\n\tmad.lo.s32 %%r1, %%r2, %%r3, %%r4;\n%s\n}\n' "$1" >>"$tree/k.ptx"
}
printf 'float f(float x) { return x * x; }\n' >"$tree/k.h"
printf 'float f(float x) { return fmaf(x, x, x); }\n' >"$tree/fma.h"
ptx '' && passes 'check_ptx: exact operations' ptx_check k.h k.ptx
ptx '	@%p1 add.ftz.f32 %f1, %f2, %f3;' && catches 'check_ptx: flushed' 'denormals' ptx_check k.h k.ptx
ptx '	div.approx.f32 %f1, %f2, %f3;' && catches 'check_ptx: approximate' 'approximate' ptx_check k.h k.ptx
ptx '	div.full.f32 %f1, %f2, %f3;' && catches 'check_ptx: not whole' 'approximate' ptx_check k.h k.ptx
ptx '	ex2.rn.f32 %f1, %f2;' && catches 'check_ptx: free bits' 'fixed bits' ptx_check k.h k.ptx
ptx '	sqrt.rz.f32 %f1, %f2;' && catches 'check_ptx: rounding' 'to nearest' ptx_check k.h k.ptx
ptx '	fma.rn.f32 %f1, %f2, %f3, %f4;' && catches 'check_ptx: fused' 'no source names' ptx_check k.h k.ptx
passes 'check_ptx: fused as named' ptx_check fma.h k.ptx
ptx '	add.f32 %f1, %f2, %f3;' && catches 'check_ptx: to be fused' 'may fuse' ptx_check k.h k.ptx
ptx '	add.rz.f64 %fd1, %fd2, %fd3;' && catches 'check_ptx: rounding of a sum' 'to nearest' ptx_check k.h k.ptx
# The number of fma in each function.
printf '/* check_ptx: fma kern_a_ 2 */ float f(float x) { return fmaf(x, x, x); }\n' >"$tree/count.h"
counted() {
	{
		printf '.func  (.param .b32 func_retval0) _Z4slowf(\n\t.param .b32 _Z4slowf_param_0\n)\n{\n\tadd.rn.f32 %%f1, %%f2, %%f3;\n}\n'
		printf '\t// .globl\tkern_a_f32\n.visible .entry kern_a_f32(\n\t.param .u64 a\n)\n.maxntid 256\n{\n'
		printf '\tcall.uni (retval0), \n\t_Z4slowf, \n\t(\n\tparam0\n\t);\n'
		printf '\tfma.rn.f32 %%f1, %%f2, %%f3, %%f4;\n\t@%%p1 fma.rn.f32 %%f1, %%f2, %%f3, %%f4;\n%s\n}\n' "$1"
		printf '.visible .entry kern_b(\n)\n{\n\tmul.rn.f32 %%f1, %%f2, %%f3;\n%s\n}\n' "$2"
	} >"$tree/k.ptx"
}
fma='	fma.rn.f32 %f1, %f2, %f3, %f4;'
counted '' '' && passes 'check_ptx: counted fma' ptx_check count.h k.ptx
counted "$fma" '' && catches 'check_ptx: one fma more' 'kern_a_f32: 3 fma, the sources name 2' ptx_check count.h k.ptx
counted '' "$fma" && catches 'check_ptx: fma elsewhere' 'kern_b: 1 fma, the sources name 0' ptx_check count.h k.ptx
ptx '' && catches 'check_ptx: a lost function' 'no function has "kern_a_" in its name' ptx_check count.h k.ptx
: >"$tree/k.ptx" && catches 'check_ptx: nothing' 'no instruction' ptx_check k.h k.ptx

printf 'check-tools: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
