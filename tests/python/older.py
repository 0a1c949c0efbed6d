# SPDX-License-Identifier: Apache-2.0
"""A test double of an older zinfd: the daemon of the tests behind a socket that hides features.

It passes every message on, with its descriptors, but clears feature bits in HELLO of both sides, so
that client and daemon agree as with a daemon that does not know them. docs/PROTOCOL.md has the
layout of HELLO.
"""

from __future__ import annotations

import array
import os
import selectors
import socket
import struct
import threading
from typing import Any

_HELLO_BYTES = 128
_MAJOR, _FEATURES = 16, 24  # offsets
_MESSAGE_BYTES = 1 << 16
_FDS_MAX = 64


class OlderDaemon:
    """Listens at `path` for one client. hidden: feature bits that neither side sees.

    major: the version that HELLO of the daemon names; None: its own.
    """

    def __init__(self, path: str, daemon_path: str, hidden: int, major: int | None = None) -> None:
        self._daemon_path = daemon_path
        self._hidden = hidden
        self._major = major
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End when the client has gone."""
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        daemon.connect(self._daemon_path)
        with client, daemon, selectors.DefaultSelector() as selector:
            for source, target, major in ((client, daemon, None), (daemon, client, self._major)):
                selector.register(source, selectors.EVENT_READ, (target, major))
            seen: set[int] = set()
            while True:
                for key, _ in selector.select():
                    target, major = key.data
                    is_hello = key.fd not in seen
                    seen.add(key.fd)
                    if not self._pass_on(key.fileobj, target, is_hello, major):
                        return

    def _pass_on(
        self, source: Any, target: socket.socket, is_hello: bool, major: int | None
    ) -> bool:
        space = socket.CMSG_SPACE(_FDS_MAX * 4)
        data, ancillary, _, _ = source.recvmsg(_MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        if is_hello:
            hello = bytearray(data)
            assert len(hello) >= _HELLO_BYTES
            features = struct.unpack_from("<Q", hello, _FEATURES)[0] & ~self._hidden
            struct.pack_into("<Q", hello, _FEATURES, features)
            if major is not None:
                struct.pack_into("<H", hello, _MAJOR, major)
            data = bytes(hello)
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % 4])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else []
        target.sendmsg([data], rights)
        for fd in fds:
            os.close(fd)
        return True
