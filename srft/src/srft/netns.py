# SPDX-License-Identifier: Apache-2.0
"""Network namespaces: a socket belongs to the namespace that the thread is in when it is made, and stays there.

So a tester needs to be inside a namespace only for the moment of `socket()`, and one process has sockets in all of them.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000  # linux/sched.h
DIRECTORY = Path("/run/netns")

_libc = ctypes.CDLL(None, use_errno=True)


def _enter(descriptor: int, what: str) -> None:
    # os.setns is there from Python 3.12 on only.
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter network namespace {what}: {os.strerror(number)}; it takes CAP_SYS_ADMIN")


@contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """Runs a block in a named network namespace (of `ip netns`); `None` is the one that the process is in.

    Only the calling thread changes. Raises OSError if there is no such namespace, or the process may not enter it.
    """
    if namespace is None:
        yield
        return
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        other = os.open(DIRECTORY / namespace, os.O_RDONLY)
        try:
            _enter(other, namespace)
        finally:
            os.close(other)
        try:
            yield
        finally:
            _enter(own, "that was left")
    finally:
        os.close(own)
