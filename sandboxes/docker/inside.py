"""The first process of a container: carries bytes between the container's standard streams and its slot.

It is the init as well. When its standard input ends (the client closed it, or died), or the slot ends, this process
ends, and the kernel ends everything else in the container. It knows nothing of what it carries.
"""

import os
import socket
import sys
import threading

from accredit.sandboxes.embedded import slot

_PART = 1 << 16


def main(options: str) -> None:
    """Start the slot with these options and serve until either side ends."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        slot.main(theirs.detach(), 0, options)
        os._exit(0)
    theirs.close()
    inward = threading.Thread(target=_carry, args=(0, ours.fileno(), True), daemon=True)
    outward = threading.Thread(target=_carry, args=(ours.fileno(), 1, False), daemon=True)
    inward.start()
    outward.start()
    while os.wait()[0] != child:  # orphans come here too
        pass
    outward.join()  # the slot's last answer
    sys.stderr.flush()
    os._exit(0)


def _carry(source: int, target: int, ends_all: bool) -> None:
    try:
        while part := os.read(source, _PART):
            left = memoryview(part)
            while left:
                left = left[os.write(target, left) :]
    except OSError:
        pass
    if ends_all:
        os._exit(0)
