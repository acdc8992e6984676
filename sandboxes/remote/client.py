"""Sandboxes of another machine over HTTP: `RemoteSandbox("http://host:8080")`.

A question whose answer was lost is asked again under its number, and the server answers without doing it twice. What
cannot be had after some tries is a fault: an outcome for a run, a `SandboxFault` for everything else.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx

from accredit.sandboxes.errors import SandboxError, SandboxFault
from accredit.sandboxes.protocol import IsolationReport, Limits
from accredit.sandboxes.threads import ThreadedSession, adopt, in_thread
from accredit.sandboxes.verdict import FAULTS, Status

from .desk import TOKEN_VARIABLE, Answer
from .far import FarSession, new_id, value_of
from .wire import decode, encode

__all__ = ["RemoteSandbox"]

_log = logging.getLogger(__name__)
_JSON = {"content-type": "application/json"}
_PAUSES_S = (0.1, 0.4, 1.6)  # before the second, third and fourth try
_CONNECT_S = 5.0
_CLOSE_S = 5.0
_RENEWALS = 3  # signs of life in one lease


class RemoteSandbox:
    """Opens sessions on a server (`accredit.sandboxes.remote.server`).

    `open_s` bounds an opening, its wait for a place included. Without a token that of the environment variable
    `ACCREDIT_SANDBOX_TOKEN` is sent, if there is one.
    """

    name = "remote"

    def __init__(self, url: str, token: str | None = None, *, open_s: float = 200.0) -> None:
        self.url, self.open_s = url.rstrip("/"), open_s
        self._token = token or os.environ.get(TOKEN_VARIABLE) or None
        self._lock = threading.Lock()
        self._process = 0
        self._client: httpx.Client | None = None
        self._sessions: set[str] = set()
        self._renewing: threading.Thread | None = None
        self._lease_s = 60.0

    def open_blocking(self, limits: Limits | None = None) -> FarSession:
        """Open a session; raise `SandboxFault` where the server cannot be reached or cannot open one."""
        session_id = new_id()
        try:
            body = {"id": session_id, "limits": encode(limits)}
            answer, more = self._post("POST", "/sessions", body, self.open_s)
            report: IsolationReport = value_of(answer, IsolationReport)
        except BaseException:
            self.close(session_id)  # it may be there for all we know
            raise
        self._lease_s = float(more.get("lease_s", self._lease_s))
        self._keep(session_id)
        return FarSession(self, session_id, report, limits or Limits())

    async def open(self, limits: Limits | None = None) -> ThreadedSession:
        """Do what `open_blocking` does, without blocking."""
        return ThreadedSession(await adopt(in_thread(lambda: self.open_blocking(limits))))

    def health(self) -> dict[str, Any]:
        """Return the server's counters."""
        return self._exchange("GET", "/health", None, _CLOSE_S)[1]

    def ask(self, session_id: str, number: int, what: str, arguments: Mapping[str, Any], timeout_s: float) -> Answer:
        """Ask a question of a session."""
        body = {"number": number, "arguments": {name: encode(value) for name, value in arguments.items()}}
        answer, _ = self._post("POST", f"/sessions/{session_id}/{what}", body, timeout_s)
        if what == "branch" and answer.error is None:
            self._keep(arguments["new"])
        return answer

    def interrupt(self, session_id: str) -> None:
        """Stop what a session runs now."""
        self._post("POST", f"/sessions/{session_id}/interrupt", {}, _CLOSE_S)

    def close(self, session_id: str) -> None:
        """End a session; where the server is out of reach, its lease ends it."""
        with self._lock:
            self._sessions.discard(session_id)
        try:
            self._exchange("DELETE", f"/sessions/{session_id}", None, _CLOSE_S)
        except SandboxError as error:
            _log.info("session %s is left to its lease: %s", session_id, error)

    def _post(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[Answer, dict[str, Any]]:
        """Ask until there is an answer, the tries are used up, or the time is."""
        until = time.monotonic() + timeout_s
        for pause_s in (*_PAUSES_S, None):
            try:
                return self._exchange(method, path, body, until - time.monotonic())
            except SandboxFault as fault:
                if pause_s is None or time.monotonic() + pause_s >= until:
                    raise
                _log.info("asking %s again: %s", self.url, fault)
                time.sleep(pause_s)
        raise AssertionError("unreachable: the last try returns or raises")

    def _exchange(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[Answer, dict[str, Any]]:
        where = f"{self.url}{path}"
        timeout = httpx.Timeout(max(0.1, timeout_s), connect=min(_CONNECT_S, max(0.1, timeout_s)))
        try:
            content = None if body is None else json.dumps(body).encode("ascii")  # halves of characters are no UTF-8
            response = self._http().request(method, where, content=content, headers=_JSON, timeout=timeout)
        except httpx.ConnectError as error:
            raise SandboxFault(f"{self.url} cannot be reached: {error}", Status.LOST) from error
        except httpx.TimeoutException as error:
            kind = type(error).__name__
            raise SandboxFault(f"{where} gave no answer in time ({kind})", Status.BACKEND_TIMEOUT) from error
        except httpx.HTTPError as error:
            raise SandboxFault(f"the connection to {where} was cut: {error}", Status.LOST) from error
        return self._understood(response, where)

    def _understood(self, response: httpx.Response, where: str) -> tuple[Answer, dict[str, Any]]:
        code = response.status_code
        try:
            body = response.json()
            fields = dict(body)
            fault = Status(body["fault"]) if "fault" in body else None
            answer = Answer(decode(fields.pop("value", None)), body.get("error"), fault)
        except (ValueError, TypeError, KeyError) as error:
            if code == 503:
                raise SandboxFault(f"{where} is overloaded (503)", Status.OVERLOADED) from None
            if code >= 500:
                raise SandboxFault(f"{where} failed ({code})", Status.LOST) from None
            message = f"{where} did not answer as a server of sandboxes does: {error}"
            raise SandboxFault(message, Status.PROTOCOL) from None
        if fault is not None and fault not in FAULTS:
            raise SandboxFault(f"{where} named the fault {fault}, which is none", Status.PROTOCOL)
        if fault is Status.OVERLOADED:
            raise SandboxFault(answer.error or "overloaded", fault)
        if code in (400, 401, 404, 405, 413):
            raise SandboxError(f"{where} refused ({code}): {answer.error}")
        return answer, fields

    def _http(self) -> httpx.Client:
        """Return the connections of this process: a fork must not share them with its parent."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
                self._client = httpx.Client(headers=headers, limits=limits, trust_env=False)
                self._process, self._renewing = os.getpid(), None
            return self._client

    def _keep(self, session_id: str) -> None:
        with self._lock:
            self._sessions.add(session_id)
            if self._renewing is None:
                self._renewing = threading.Thread(target=self._renew, name="accredit-renew", daemon=True)
                self._renewing.start()

    def _renew(self) -> None:
        """Give signs of life for as long as there are sessions."""
        while True:
            time.sleep(self._lease_s / _RENEWALS)
            with self._lock:
                sessions = sorted(self._sessions)
                if not sessions:
                    self._renewing = None
                    return
            try:
                self._exchange("POST", "/renew", {"sessions": sessions}, self._lease_s / _RENEWALS)
            except SandboxError as error:
                _log.info("no sign of life for %d sessions: %s", len(sessions), error)
