"""The process above a bubblewrap: it starts it, and ends it when the trainer is gone.

bubblewrap dies with the *thread* that started it, and a trainer's thread may end long before a session does. This
process has one thread, lives as long as bubblewrap does, and watches the trainer through a descriptor, which no fork of
the trainer can keep alive.

Started by root, it gives root up first: limits on the number of processes do not bind root. Folders that only root may
enter (an interpreter in root's home) are bound to where another user finds them, in a mount namespace of its own.
"""

import os
import select
import signal
from contextlib import suppress
from typing import NoReturn

from .embedded import kernel
from .embedded.kernel import MS_BIND, MS_NODEV, MS_NOSUID, MS_PRIVATE, MS_REC

__all__ = ["BOUND", "stand"]

BOUND = "/tmp"
"""Where folders of root are bound, by number: what bubblewrap finds as `/tmp/0` is the first of them."""


def stand(trainer_pid: int, uid: int, folders: list[str], command: list[str]) -> None:
    """Run a command until it ends or the trainer does; a `uid` of 0 changes neither user nor mounts."""
    kernel.be_fresh()
    trainer = os.pidfd_open(trainer_pid)
    if os.getppid() != trainer_pid:
        return  # it died before we could watch it
    if uid:
        bind(folders)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # bubblewrap does not wait for the first process inside
    pid = os.fork()
    if pid == 0:
        _execute(command)
    os.closerange(3, trainer)
    os.closerange(trainer + 1, 1 << 16)  # above all the slot's stream: its end must show at the client
    child = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(trainer, select.POLLIN)
    poll.register(child, select.POLLIN)
    if child not in {fd for fd, _ in poll.poll()}:
        signal.pidfd_send_signal(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def bind(folders: list[str]) -> None:
    """Bind folders, as root, below `BOUND` in a new mount namespace."""
    kernel.unshare(kernel.NEWNS)
    kernel.mount(None, "/", None, MS_REC | MS_PRIVATE)
    sources = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in folders]  # one may lie below `BOUND`
    kernel.mount("tmpfs", BOUND, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for number, source in enumerate(sources):
        os.mkdir(f"{BOUND}/{number}")
        kernel.mount(f"/proc/self/fd/{source}", f"{BOUND}/{number}", None, MS_BIND | MS_REC)
        os.close(source)


def _execute(command: list[str]) -> NoReturn:
    try:
        os.execve(command[0], command, {})  # an environment would be in /proc/1/environ, for every program to read
    except OSError as error:
        os.write(2, f"{command[0]} could not be executed: {error}\n".encode())
    os._exit(127)
