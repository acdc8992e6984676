"""A pool of sandboxes over HTTP.

    POST   /sessions                  {"id": ID, "limits": LIMITS or null}     open
    POST   /sessions/ID/WHAT          {"number": 1, "arguments": {...}}        run, run_cell, read, write, list, branch
    POST   /sessions/ID/interrupt     {}                                       stop what runs
    DELETE /sessions/ID                                                        close
    POST   /renew                     {"sessions": [ID, ...]}                  a sign of life
    GET    /health                                                             counters

Values are written as `wire` does. An answer is {"value": ...} with 200, {"error": ...} with 409 for what the caller
did, or {"error": ..., "fault": STATUS} with 503 (overloaded) or 502. It encrypts nothing: it is for a private network.
"""

import asyncio
import hmac
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.pool import Pool
from accredit.sandboxes.protocol import Limits
from accredit.sandboxes.verdict import Status

from .desk import TOKEN_VARIABLE, Answer, Desk
from .wire import decode, encode

__all__ = ["TOKEN_VARIABLE", "application", "serve"]

_log = logging.getLogger(__name__)
_ID = re.compile(r"[0-9a-f]{32}")
_MOST_BODY = 64 << 20
_PARTING_S = 5  # how long requests in progress may go on after SIGTERM


class _Plain(JSONResponse):
    """JSON in ASCII: texts of programs may hold halves of characters, which no UTF-8 can carry."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class _BadRequest(Exception):
    """The request is not one; `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def application(desk: Desk, token: str | None = None) -> Starlette:
    """Return the ASGI application of a desk; with a token, only who knows it is answered."""

    def route(path: str, method: str, handle: Callable[[Request], Awaitable[_Plain]]) -> Route:
        async def guarded(request: Request) -> _Plain:
            try:
                _check_token(request, token)
                return await handle(request)
            except _BadRequest as error:
                return _Plain({"error": str(error)}, error.code)

        return Route(path, guarded, methods=[method])

    async def open_session(request: Request) -> _Plain:
        body = await _body(request)
        limits = _decoded(body.get("limits"))
        if not isinstance(limits, Limits | None):
            raise _BadRequest(400, f"expected limits, found a {type(limits).__name__}")
        answer = await desk.open(_checked_id(body.get("id")), limits)
        return _response(answer, lease_s=desk.lease_s)

    async def ask(request: Request) -> _Plain:
        body = await _body(request)
        number, arguments = body.get("number"), body.get("arguments")
        if not isinstance(number, int) or number < 1 or not isinstance(arguments, dict):
            raise _BadRequest(400, "expected a number from 1 on and arguments")
        if "new" in arguments:
            _checked_id(arguments["new"])
        known = {name: _decoded(value) for name, value in arguments.items()}
        return _response(await desk.ask(_session_id(request), number, request.path_params["what"], known))

    async def interrupt(request: Request) -> _Plain:
        return _response(await desk.interrupt(_session_id(request)))

    async def close(request: Request) -> _Plain:
        return _response(await desk.close(_session_id(request)))

    async def renew(request: Request) -> _Plain:
        sessions = (await _body(request)).get("sessions")
        if not isinstance(sessions, list):
            raise _BadRequest(400, "expected a list of sessions")
        return _response(desk.renew(tuple(map(_checked_id, sessions))))

    async def health(request: Request) -> _Plain:
        return _Plain({"sandbox": desk.pool.name, "lease_s": desk.lease_s, **desk.counts()})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await desk.shut()

    return Starlette(
        routes=[
            route("/sessions", "POST", open_session),
            route("/sessions/{id}/interrupt", "POST", interrupt),
            route("/sessions/{id}/{what}", "POST", ask),
            route("/sessions/{id}", "DELETE", close),
            route("/renew", "POST", renew),
            route("/health", "GET", health),
        ],
        lifespan=lifespan,
    )


def serve(
    pool: Pool,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    token: str | None = None,
    lease_s: float = 60.0,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a pool until SIGTERM or SIGINT, and end its sessions then. `started` is told the address.

    Raises:
        SandboxError: the address is not to be had, or others than this machine could use it without a token.

    """
    if token is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise SandboxError(f"expected a token for {host}: without one, anybody who reaches it could run programs")
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SandboxError(f"{host}:{port} cannot be served: {error}") from error
    desk = Desk(pool, lease_s)
    config = uvicorn.Config(
        application(desk, token), log_level="warning", access_log=False, timeout_graceful_shutdown=_PARTING_S
    )
    started(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
    try:
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
    finally:
        pool.close()


def _check_token(request: Request, token: str | None) -> None:
    given = request.headers.get("authorization", "").encode()
    if token is not None and not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise _BadRequest(401, "expected the header 'Authorization: Bearer TOKEN' with the server's token")


async def _body(request: Request) -> dict[str, Any]:
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > _MOST_BODY:
            raise _BadRequest(413, f"expected a body of at most {_MOST_BODY} bytes")
    try:
        body = json.loads(read)
    except (ValueError, RecursionError) as error:
        raise _BadRequest(400, f"expected JSON: {error}") from None
    if not isinstance(body, dict):
        raise _BadRequest(400, f"expected an object, found a {type(body).__name__}")
    return body


def _decoded(value: Any) -> Any:
    try:
        return decode(value)
    except (ValueError, RecursionError) as error:
        raise _BadRequest(400, str(error)) from None


def _session_id(request: Request) -> str:
    return _checked_id(request.path_params["id"])


def _checked_id(found: Any) -> str:
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise _BadRequest(400, f"expected a session id of 32 hexadecimal digits, found {found!r:.80}")
    return found


def _response(answer: Answer, **more: Any) -> _Plain:
    if answer.fault is not None:
        code = 503 if answer.fault is Status.OVERLOADED else 502
        return _Plain({"error": answer.error, "fault": str(answer.fault)}, code)
    if answer.error is not None:
        return _Plain({"error": answer.error}, 409)
    return _Plain({"value": encode(answer.value), **more})
