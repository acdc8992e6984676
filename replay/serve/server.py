"""The server of the replay page.

    GET /, /NAME.js, /NAME.css    the page's own files
    GET /api/run                  what the page asks for first
    GET /api/listing?from=CURSOR  the rows after CURSOR, as a block; all rows, if `generation` is another by now
    GET /api/bundle?episode=...   episodes as blocks, each behind its length
    GET /api/events?from=POSITION server-sent events: `listing`, `metrics`, `metrics_anew`
    GET /traces/NAME              the stored files themselves, by byte ranges (for DuckDB, pandas, another tool)

`replay/page/data.js` says what the page expects of each. The server only reads, and only for this machine: it binds
127.0.0.1, and answers no request whose `Host` is another name, so that no page of the web can reach it by a name that
it points here. Texts of transcripts are data to it; it never builds HTML from them.
"""

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accredit.sandboxes.errors import AccreditError

from .metric_events import Position, metrics_since
from .run import ServedRun, Unknown

__all__ = ["ServeError", "application", "serve"]


class ServeError(AccreditError, RuntimeError):
    """The page cannot be served."""


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGE_FILE = re.compile(r"[\w-]+\.(js|css|svg)")
_TRACE_FILE = re.compile(r"episodes\.jsonl|index\.jsonl|tokens-\d+(\.\d+)?\.parquet")
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_BLOCK = "application/octet-stream"
_POLL_S = 1.0
_RETRY_MS = 1000  # after which a browser connects again
_SILENCE_S = 15.0  # after which an idle stream of events says that it lives
_PARTING_S = 2  # how long requests in progress may go on after Ctrl-C


def serve(
    folder: str | Path,
    *,
    title: str,
    port: int = 0,
    functions: Sequence[str] = (),
    where: str = "",
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the page of a traces folder on 127.0.0.1 until SIGINT or SIGTERM; `started` is told the address.

    With `where`, a filter, there is nothing but the episodes that fit, and the stored files are not given.

    Raises:
        ServeError: the port is not to be had.
        TraceError: the traces or the filter cannot be read.
        KeyboardInterrupt: after SIGINT, once everything is closed.

    """
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ServeError(
            f"port {port} of 127.0.0.1 cannot be served ({error.strerror or error}): choose another with --port, or 0 "
            "for one that is free"
        ) from error
    with listener:
        run = ServedRun(Path(folder), title, functions, where)
        parting = asyncio.Event()
        config = uvicorn.Config(
            application(run, parting), log_level="warning", access_log=False, timeout_graceful_shutdown=_PARTING_S,
            ws="none",
        )  # fmt: skip
        server = _Server(config, parting)
        started(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        asyncio.run(server.serve(sockets=[listener]))


class _Server(uvicorn.Server):
    """Ends the streams of events as soon as a signal comes; uvicorn would wait for them."""

    def __init__(self, config: uvicorn.Config, parting: asyncio.Event) -> None:
        super().__init__(config)
        self._parting = parting

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self._parting.set()


def application(run: ServedRun, parting: asyncio.Event | None = None) -> ASGIApp:
    """Return the ASGI application of a run; streams of events end when `parting` is set."""
    parting = parting or asyncio.Event()

    def page(_: Request) -> Response:
        return Response(_page_file("index.html"), media_type="text/html; charset=utf-8")

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if not _PAGE_FILE.fullmatch(name) or not (_page() / name).is_file():
            return PlainTextResponse(f"the page has no file '{name}'", 404)
        return Response(_page_file(name), media_type=f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")

    def about(_: Request) -> Response:
        return JSONResponse(run.about())

    def listing(request: Request) -> Response:
        cursor = request.query_params.get("from", "0")
        if not cursor.isdecimal():
            return PlainTextResponse(f"expected from=NUMBER, found '{cursor[:40]}'", 400)
        return Response(run.listing(int(cursor), request.query_params.get("generation", "")), media_type=_BLOCK)

    def bundle(request: Request) -> Response:
        wanted, labels = request.query_params.getlist("episode"), request.query_params.getlist("credit")
        parts: list[bytes] = []
        for name in wanted:
            step, slash, episode_id = name.partition("/")
            if not (step.isdecimal() and slash):
                return PlainTextResponse(f"expected episode=STEP/ID, found '{name[:80]}'", 400)
            found = run.episode(int(step), episode_id, labels)
            parts += [struct.pack("<I", len(found)), found]
        return Response(b"".join(parts), media_type=_BLOCK)

    async def events(request: Request) -> Response:
        told = request.headers.get("last-event-id") or request.query_params.get("from", "")
        cursor = await asyncio.to_thread(run.refresh)  # before the answer begins: with it, the page asks for the rest
        return StreamingResponse(_events(run, parting, cursor, told), media_type="text/event-stream")

    def trace(request: Request) -> Response:
        name = request.path_params["name"]
        path = run.folder / name
        if run.chosen is not None:
            return PlainTextResponse("with --where the stored files, which hold every episode, are not given", 404)
        if not _TRACE_FILE.fullmatch(name) or path.is_symlink() or not path.is_file():
            return PlainTextResponse(f"the traces have no file '{name}'", 404)
        return FileResponse(path, media_type=_BLOCK)

    def unknown(_: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), 404)

    def failed(_: Request, error: Exception) -> Response:
        return PlainTextResponse(f"{type(error).__name__}: {error}", 500)

    routes = [
        Route("/", page), Route("/api/run", about), Route("/api/listing", listing), Route("/api/bundle", bundle),
        Route("/api/events", events), Route("/traces/{name}", trace), Route("/{name}", asset),
    ]  # fmt: skip
    handlers: Any = {Unknown: unknown, AccreditError: failed}
    return _Guard(Starlette(routes=routes, exception_handlers=handlers))


class _Guard:
    """Refuses other hosts' names, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        app = self._app if re.sub(r":\d+$", "", host.lower()) in HOSTS else _refused(host)
        await app(scope, receive, guarded)


def _refused(host: str) -> ASGIApp:
    return PlainTextResponse(f"this server answers to {' and '.join(HOSTS)} only, found Host '{host[:80]}'", 403)


async def _events(run: ServedRun, parting: asyncio.Event, cursor: int, told: str) -> AsyncIterator[str]:
    """Yield what the run writes after `cursor` and after the metrics position `told`, as server-sent events.

    Events of metrics carry their position as `id`, which a browser sends back as it connects again. From a position
    that does not hold any more (or that is none) all metrics are told, as one event `metrics_anew`.
    """
    yield f": the run is watched\nretry: {_RETRY_MS}\n\n"
    position, now, silent_s = Position.parse(told), cursor, 0.0
    while not parting.is_set():
        news = await asyncio.to_thread(metrics_since, run.metrics_path, position)
        events = [f"event: listing\ndata: {json.dumps({'next': now})}\n\n"] if now != cursor else []
        if news.anew:
            events.append(_metrics_event("metrics_anew", [line for line, _ in news.lines], news.end))
        else:
            events += [_metrics_event("metrics", line, behind) for line, behind in news.lines]
        cursor, position = now, news.end
        if not events and silent_s >= _SILENCE_S:
            events = [": still here\n\n"]
        for text in events:
            yield text
            silent_s = 0.0
        with suppress(TimeoutError):
            await asyncio.wait_for(parting.wait(), _POLL_S)
        silent_s += _POLL_S
        now = await asyncio.to_thread(run.refresh)


def _metrics_event(name: str, data: Any, position: Position) -> str:
    return f"event: {name}\nid: {position}\ndata: {json.dumps(data)}\n\n"


def _page() -> Any:
    return files("accredit.replay") / "page"


def _page_file(name: str) -> bytes:
    return (_page() / name).read_bytes()
