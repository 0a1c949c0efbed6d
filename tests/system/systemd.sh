#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: the installed service under a real systemd as PID 1: it becomes ready (Type=notify), its socket
# takes a client of another user, a training run commits, a kill -9 brings it back with the same
# committed step, `systemctl stop` ends it with success, its exposure is 2.0 or less, and what the service is allowed (address families,
# system calls, no capabilities) is enough for ranks on two nodes. Method: a minimal Debian tree made by debootstrap,
# `make install` into it, booted in systemd-nspawn, the other node a second service there; a unit of the test does the work, writes its
# verdict and powers off. Needs root, debootstrap, systemd-nspawn and a Debian mirror; prints why it is
# skipped otherwise. ZINF_TREE=DIR keeps the tree for the next run.
set -eu
cd "$(dirname "$0")/../.."

[ "$(id -u)" = 0 ] || { echo "check-systemd: skipped: needs root" && exit 0; }
for program in debootstrap systemd-nspawn; do
	command -v $program >/dev/null || { echo "check-systemd: skipped: no $program here" && exit 0; }
done
keep=${ZINF_TREE:-}
tree=${keep:-$(mktemp -d /var/tmp/zinf-tree.XXXXXX)}
trap '[ -n "$keep" ] || rm -rf "$tree"' EXIT
libraries=systemd,systemd-sysv,dbus,liburing2,libhwloc15,libnuma1,libsqlite3-0,libjansson4,libinih1,libopenblas0,libgloo0
[ -e "$tree/sbin/init" ] || debootstrap --variant=minbase --include=$libraries bookworm "$tree" \
	"${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$tree.log" 2>&1 || {
	tail -5 "$tree.log"
	exit 1
}
rm -f "$tree.log"
make -s install DESTDIR="$tree" PREFIX=/usr
rm -rf "$tree/var/lib/zinf" "$tree/verdict"
cat >"$tree/etc/zinf/zinfd.conf" <<END
[tier.cpu]
capacity = 256M
[nvme disk]
path = /var/lib/zinf/store
size = 64M
END
# The other node: the same service with folders of its own.
mkdir -p "$tree/etc/zinf-far"
cat >"$tree/etc/zinf-far/zinfd.conf" <<END
[daemon]
socket = /run/zinf-far/zinfd.sock
state_dir = /var/lib/zinf-far
[tier.cpu]
capacity = 256M
END
sed -e 's|/etc/zinf/|/etc/zinf-far/|' -e 's|Directory=zinf$|Directory=zinf-far|' -e 's|/var/lib/zinf$|&-far|' \
	-e '/^Also=/d' "$tree/usr/lib/systemd/system/zinfd.service" >"$tree/etc/systemd/system/zinfd-far.service"
cat >"$tree/root/work" <<'END'
#!/bin/sh
exec >/verdict 2>&1
set -eux
id user 2>/dev/null || useradd user
train() { # as another user, through the system's socket
	setpriv --reuid=user --regid=user --clear-groups zinf-gpt --job train --ranks 2 --layers 1 --heads 1 \
		--d-model 16 --seq-len 16 --batch-size 1 --bf16 --steps "$1" --quiet --wait-daemon
}
systemctl start zinfd.service
systemctl is-active zinfd.service
systemd-analyze security --no-pager --threshold=20 zinfd.service | tail -n 1
train 3
zctl jobs train
before=$(systemctl show -p MainPID --value zinfd.service)
systemctl kill -s KILL zinfd.service
train 6
after=$(systemctl show -p MainPID --value zinfd.service)
[ "$before" != "$after" ]
zctl --json jobs | grep '"committed_step": 6'
if [ -e /usr/sbin/zinf-net ]; then
	systemctl start zinfd-far.service
	sum() { # of one rank on node $1, as srun would start it
		setpriv --reuid=user --regid=user --clear-groups env MASTER_ADDR=127.0.0.1 ZINF_PORT=29888 \
			SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 'SLURM_STEP_TASKS_PER_NODE=1(x2)' \
			SLURM_NODEID="$1" SLURM_PROCID="$1" ZINF_SOCKET="$2" zinf-allreduce
	}
	sum 1 /run/zinf-far/zinfd.sock &
	sum 0 /run/zinf/zinfd.sock
	wait $!
	systemctl stop zinfd-far.service
	[ "$(systemctl show -p Result --value zinfd-far.service)" = success ]
	echo FAR
fi
systemctl stop zinfd.service
[ "$(systemctl show -p Result --value zinfd.service)" = success ]
echo PASSED
END
chmod +x "$tree/root/work"
cat >"$tree/etc/systemd/system/work.service" <<END
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/root/work
ExecStopPost=/bin/systemctl --no-block poweroff
TimeoutStartSec=120
[Install]
WantedBy=multi-user.target
END
chroot "$tree" systemctl -q enable work.service zinfd.socket
chroot "$tree" systemd-sysusers 2>/dev/null
timeout 240 systemd-nspawn -q -D "$tree" --register=no --keep-unit --private-network \
	--capability=CAP_IPC_LOCK -b >"$tree/boot.log" 2>&1 || true
if grep -q '^PASSED' "$tree/verdict" 2>/dev/null; then
	echo "check-systemd: ready, trained, restarted after a kill, resumed and stopped under systemd"
	if grep -q '^FAR' "$tree/verdict"; then
		echo "check-systemd: ranks on two nodes have their sums"
	else
		echo "check-systemd: two nodes skipped: zinf-net is not built (libgloo-dev)"
	fi
else
	tail -40 "$tree/verdict" 2>/dev/null || tail -40 "$tree/boot.log"
	chroot "$tree" journalctl -u zinfd -n 30 --no-pager 2>/dev/null || true
	echo "check-systemd: failed"
	exit 1
fi
