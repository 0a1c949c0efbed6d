#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: what `make install` puts into a DESTDIR is whole: programs start, a C and a C++ program build
# and link through pkg-config against the installed header and library, the programs of the README
# compile and train, links between documents resolve, the units are well-formed.
# Method: an empty temporary DESTDIR, removed at the end; a private zinfd for the programs.
set -eu
cd "$(dirname "$0")/../.."

root=$(mktemp -d)
daemon=""
trap '[ -z "$daemon" ] || kill -KILL "$daemon"; rm -rf "$root"' EXIT
make -s install DESTDIR="$root" PREFIX=/usr >"$root/install.log" 2>&1 || {
	cat "$root/install.log"
	exit 1
}

for program in sbin/zinfd bin/zctl bin/zinf-gpt; do
	"$root/usr/$program" --version >/dev/null || {
		echo "install: $program does not start"
		exit 1
	}
done

cat >"$root/use.c" <<'END'
#include <zinf/zinf.h>
#include <stdio.h>
int main(void)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *zinf = NULL;
	options.socket_path = "/nonexistent/zinfd.sock";
	int r = zinf_attach(&options, &zinf);
	printf("%s: %s\n", zinf_version(), zinf_attach_error());
	return r == 0 || !*zinf_attach_error();
}
END
cp "$root/use.c" "$root/use.cc"
export PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" \
	PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
flags=$(pkg-config --cflags --libs zinf)
gcc -o "$root/use-c" "$root/use.c" $flags
g++ -o "$root/use-cc" "$root/use.cc" $flags
for program in use-c use-cc; do
	LD_LIBRARY_PATH="$root/usr/lib" "$root/$program" >"$root/$program.out" || {
		echo "install: a program built through pkg-config fails:"
		cat "$root/$program.out"
		exit 1
	}
done

# What C++ projects ask their compilers for must not fail at our initialisers.
cat >"$root/strict.cc" <<'END'
#include <zinf/coll.h>
#include <zinf/tensor.h>
int main()
{
	zinf_options options = ZINF_OPTIONS_INIT;
	zinf_coll_options coll = ZINF_COLL_OPTIONS_INIT;
	zinf_group_options group = ZINF_GROUP_OPTIONS_INIT;
	return options.bytes && coll.bytes && group.bytes ? 0 : 1;
}
END
for compiler in g++ clang++; do
	if ! command -v "$compiler" >/dev/null 2>&1; then
		echo "install: skipped: the headers under $compiler (not installed)"
		continue
	fi
	"$compiler" -std=c++17 -Wall -Wextra -pedantic -Werror -c -o "$root/strict.o" \
		"$root/strict.cc" $(pkg-config --cflags zinf) || {
		echo "install: $compiler -Wall -Wextra -pedantic warns of the headers"
		exit 1
	}
done

# Links between the installed documents, headers and examples resolve.
tools/check_links "$root/usr/share/doc/zinf" >"$root/links.log" || {
	cat "$root/links.log"
	exit 1
}

# The programs of the README compile as they stand, and do under the installed launcher and daemon
# what the README says.
awk -v root="$root" '/^```c$/ { file = root "/readme-" ++count ".c"; next }
/^```/ { file = "" }
file { print >file }
END { exit count != 2 }' "$root/usr/share/doc/zinf/README.md" || {
	echo "install: the README does not have two programs in C"
	exit 1
}
for program in 1 2; do
	gcc -Wall -Wextra -Werror -o "$root/readme-$program" "$root/readme-$program.c" $flags
done
mkfifo "$root/ready"
"$root/usr/sbin/zinfd" --user --dir "$root/zinf" --size 64M --set tier.cpu.capacity=128M \
	--ready-fd 3 3>"$root/ready" 2>"$root/zinfd.log" &
daemon=$!
[ "$(cat "$root/ready")" = ready ] || {
	cat "$root/zinfd.log"
	exit 1
}
# runs PROGRAM WORDS: two ranks of it end well, and one of them says WORDS.
runs() {
	ZINF_SOCKET="$root/zinf/zinfd.sock" LD_LIBRARY_PATH="$root/usr/lib" "$root/usr/bin/zctl" launch \
		--nproc-per-node 2 "$root/$1" >"$root/$1.out" 2>&1 && grep -qF "$2" "$root/$1.out" || {
		echo "install: $1 of the README does not say '$2':"
		cat "$root/$1.out"
		exit 1
	}
}
runs readme-1 'step 400: y = 3.00 x + 1.00'
runs readme-2 'rank 1: the sum of all ranks is 1'

# The Python package finds the library and the programs of its prefix.
if [ -x /usr/bin/python3 ]; then
	env -u ZINF_LIBRARY -u ZINF_PREFIX PYTHONDONTWRITEBYTECODE=1 ZINF_SOCKET="$root/zinf/zinfd.sock" \
		PYTHONPATH="$root/usr/lib/python3/dist-packages" /usr/bin/python3 - >"$root/python.out" 2>&1 <<'END' &&
import zinf
with zinf.Session() as session:
    session.ping()
    print(session.job, len(zinf.admin.jobs()))
END
		grep -q '^default [1-9]' "$root/python.out" || {
		echo "install: the Python package does not attach:"
		cat "$root/python.out"
		exit 1
	}
else
	echo "install: skipped: the Python package (no /usr/bin/python3)"
fi

kill -TERM "$daemon"
wait "$daemon" || {
	cat "$root/zinfd.log"
	exit 1
}
daemon=""

if command -v systemd-analyze >/dev/null 2>&1; then
	# systemd-analyze answers 0 to an unknown key: any output is a failure.
	mkdir -p "$root/units"
	sed "s|/usr/sbin/zinfd|$root/usr/sbin/zinfd|" "$root/usr/lib/systemd/system/zinfd.service" \
		>"$root/units/zinfd.service"
	cp "$root/usr/lib/systemd/system/zinfd.socket" "$root/units/"
	words=$(systemd-analyze verify --man=no "$root/units/zinfd.service" 2>&1 | grep zinf || true)
	[ -z "$words" ] || {
		echo "install: systemd-analyze: $words"
		exit 1
	}
	# Its scale is tenths: 20 is an exposure of 2.0.
	systemd-analyze security --no-pager --offline=true --threshold=20 \
		"$root/units/zinfd.service" >"$root/exposure" || {
		grep '^✗' "$root/exposure" || true
		echo "install: the unit's exposure exceeds 2.0: $(tail -n 1 "$root/exposure")"
		exit 1
	}
else
	echo "install: skipped: unit verification (no systemd-analyze here)"
fi
echo "install: ok"
