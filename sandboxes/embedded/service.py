"""What a slot does for its client: one request, one answer, one at a time.

A request names its operation: run something, read or write a file of the session's folder, list or copy the folder.
What the caller asked wrongly is answered with `refused`; what the host failed at is a fault in the evidence.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from accredit.sandboxes.protocol import Limits
from accredit.sandboxes.verdict import Status

from . import kernel, live, wire
from .folder import Refused
from .namespaces import Way
from .processes import Order
from .runs import Result, Supervisor

_IDLE_S = 30 * 24 * 3600.0
SEND_S = 60.0
"""How long the client may take to read an answer."""

_Answer = tuple[dict[str, Any], list[bytes]]


def serve_one(supervisor: Supervisor) -> bool:
    """Wait for a request and answer it; False when the client is gone."""
    frame = wire.receive(supervisor.control, _IDLE_S)
    while frame is not None and "run" not in frame.header:  # a cancellation that came after its run had ended
        frame = wire.receive(supervisor.control, _IDLE_S)
    if frame is None:
        return False
    try:
        answer, blobs = _OPERATIONS[frame.header["op"]](supervisor, frame)
    except Refused as error:
        answer, blobs = {"refused": str(error)}, []
    except OSError as error:
        answer, blobs = {"evidence": {"fault": "start_failed", "detail": str(error)}}, []
    supervisor.control.settimeout(SEND_S)
    wire.send(supervisor.control, {"run": frame.header["run"], **answer}, *blobs)
    return True


def _run(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    head, (source, stdin) = frame.header, frame.blobs
    order = Order(
        _possible(supervisor, Limits(**head["limits"])), source, head.get("argv"), stdin, len(supervisor.living())
    )
    return _told(_unhindered(supervisor, partial(supervisor.run, head["run"], order)))


def _unhindered(supervisor: Supervisor, do: Callable[[], Result]) -> Result:
    """Run something; without live interpreters if beside them it could not start.

    Where there are no process namespaces, what a cell has left in its interpreter can stop or kill whatever starts
    beside it. That would be a fault of the host for the policy to cause.
    """
    if supervisor.plan.way is Way.NONE and supervisor.interpreters:
        with suppress(OSError):
            result = do()
            if result.evidence.get("fault") != Status.START_FAILED:
                return result
        live.silence(supervisor)
        supervisor.discard_spare()
    return do()


def _possible(supervisor: Supervisor, limits: Limits) -> Limits:
    """Return limits that this slot can hold to: a container stays as large as it was made."""
    group = supervisor.plan.cgroup
    if group is not None and group.fixed and group.limits is not None and limits.memory_mb > group.limits[0]:
        raise Refused(
            f"expected memory_mb of at most {group.limits[0]}, for which this container was made, actually "
            f"{limits.memory_mb}: open the session with the larger limit"
        )
    return limits


def _told(result: Result) -> _Answer:
    output = result.output
    header = {"evidence": result.evidence, "usage": result.usage, "sizes": output.sizes}
    return header, [bytes(output.kept[0]), bytes(output.kept[1]), result.report]


def _read(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    return {}, [supervisor.plan.folder.read(frame.header["path"], frame.header["most_bytes"])]


def _write(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    supervisor.plan.folder.write(frame.header["path"], frame.blobs[0])
    return {}, []


def _list(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    return {"entries": supervisor.plan.folder.entries(frame.header["path"])}, []


def _unpack(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    supervisor.plan.folder.unpack(frame.header["facts"], frame.blobs[0])
    return {}, []


def _cell(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    if supervisor.plan.contained and _no_pidfds():  # a cell's end could not be told for sure
        raise Refused("cells need a kernel with pidfds, and gVisor's has none: use run(), or another backend for cells")
    head = frame.header
    limits, most = _possible(supervisor, Limits(**head["limits"])), Limits(**head["most"])
    cell = partial(live.run_cell, supervisor, head["run"], head["session"], frame.blobs[0], limits, most)
    return _told(_unhindered(supervisor, cell))


def _no_pidfds() -> bool:
    fd = kernel.pidfd_open(os.getpid())
    if fd is not None:
        os.close(fd)
    return fd is None


def _branch(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    number = live.branch(supervisor, frame.header["session"])
    if number is not None:
        return {"session": number}, []
    facts, joined = supervisor.plan.folder.pack()
    return {"facts": facts}, [joined]


def _drop(supervisor: Supervisor, frame: wire.Frame) -> _Answer:
    live.forget(supervisor, frame.header["session"])
    return {}, []


_OPERATIONS: dict[str, Callable[[Supervisor, wire.Frame], _Answer]] = {
    "run": _run,
    "cell": _cell,
    "read": _read,
    "write": _write,
    "list": _list,
    "branch": _branch,
    "drop": _drop,
    "unpack": _unpack,
}
