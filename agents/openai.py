"""Any server that speaks the OpenAI protocol, as the policy of an evaluation; nothing trains on what it says.

Three forms of asking, the first that the server offers:

- `ids`: /completions with token ids in and out. vLLM offers it; nothing is lost.
- `text`: /completions with the rendered text. Lost: sampled ids are encoded again, so their borders are not the
  sampler's; there are no log-probabilities; a special token that somebody wrote as plain text becomes special; a
  server that drops special tokens from its text, and cannot be told not to, drops the marks of calls with them.
- `chat`: /chat/completions with the messages of a ChatML prompt. Lost, besides: the server's own template stands in
  place of ours. Tools are told in the system message, and calls are read from the text.

What a server's sampler does with temperature, top-p and seed is its own affair; they are sent with every request.
"""

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from typing import Any, Literal

import httpx
import numpy as np
from numpy.typing import NDArray

from accredit.envs.execution import LoopThread
from accredit.envs.rendering import Renderer

from .policy import Decision, EngineError, Request, turn_seed

__all__ = ["Form", "OpenAIPolicy"]

Form = Literal["ids", "text", "chat"]

_LOST = {
    "text": "ids are encoded again from its text, and there are no log-probabilities",
    "chat": "it renders the messages by a template of its own, ids are encoded again from its text, and there are no "
    "log-probabilities",
}
_PAUSES_S = (1.0, 4.0, 16.0)
_BLOCK = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|$)", re.DOTALL)
_PROBE = 'A probe: 3.5 + {"two": "words"}'

_log = logging.getLogger(__name__)


class OpenAIPolicy:
    """Samples from the model that a server offers under `model`, or from its first one.

    `form` None takes the best form that the server offers. The key in `OPENAI_API_KEY` is sent, if there is one.
    """

    lockstep = False
    version = 0

    def __init__(
        self,
        address: str,
        renderer: Renderer,
        model: str | None = None,
        form: Form | None = None,
        *,
        at_once: int = 64,
        request_s: float = 300.0,
    ) -> None:
        self.address = address.rstrip("/").removesuffix("/v1") + "/v1"
        self.model, self.form = model, form
        self._renderer, self._request_s = renderer, request_s
        self._thread = LoopThread("openai")
        self._gate = asyncio.Semaphore(at_once)
        self._meeting = asyncio.Lock()
        key = os.environ.get("OPENAI_API_KEY")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client: httpx.AsyncClient | None = None
        self._kept: dict[str, Any] = {}
        self._met = False

    async def sample(self, requests: Sequence[Request]) -> list[Decision]:
        """Ask for one decision a request.

        Raises:
            EngineError: the server does not answer, or refuses.

        """
        work = asyncio.run_coroutine_threadsafe(self._sample(requests), self._thread.loop)
        return await asyncio.wrap_future(work)

    def forget(self, episode_id: str) -> None:
        """Nothing is kept of an episode."""

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            asyncio.run_coroutine_threadsafe(self._client.aclose(), self._thread.loop).result(10)
        self._thread.close()

    async def _sample(self, requests: Sequence[Request]) -> list[Decision]:
        async with self._meeting:
            if not self._met:
                await self._meet()
                self._met = True
        return list(await asyncio.gather(*[self._decide(request) for request in requests]))

    async def _meet(self) -> None:
        """Find the model, and the best form that the server offers."""
        if self._client is None:
            timeout = httpx.Timeout(self._request_s, connect=10.0)
            self._client = httpx.AsyncClient(headers=self._headers, timeout=timeout)
        if self.model is None:
            offered = (await self._ask("GET", f"{self.address}/models")).get("data")
            if not offered:
                raise EngineError(f"{self.address} offers no model: name one")
            self.model = offered[0]["id"]
        if self.form is None and await self._takes_ids():
            self.form = "ids"
        if self.form == "ids":
            return
        asked: list[tuple[Form, str, dict[str, Any]]] = [
            ("text", "/completions", {"prompt": "A"}),
            ("chat", "/chat/completions", {"messages": [{"role": "user", "content": "A"}]}),
        ]
        for form, path, body in asked:
            if self.form in (None, form) and await self._offers(path, body):
                self.form = form
                _log.warning("%s is asked in the form '%s': %s", self.address, form, _LOST[form])
                return
        raise EngineError(f"{self.address} does not offer {self.form or '/completions, nor /chat/completions'}")

    async def _offers(self, path: str, body: dict[str, Any]) -> bool:
        """Whether the server answers there; it is told to keep special tokens in its text, if it can be told."""
        for kept in ({"skip_special_tokens": False}, {}):
            if await self._try(self.address + path, self._common(1) | kept | body) is not None:
                self._kept = kept
                return True
        return False

    async def _takes_ids(self) -> bool:
        """Whether the server takes and returns ids, and means the same by them as the renderer."""
        ids = self._renderer.encode(_PROBE)[:-1]
        asked = {"model": self.model, "prompt": _PROBE, "add_special_tokens": False}
        answer = await self._try(f"{self.address.removesuffix('/v1')}/tokenize", asked)
        if answer is None or answer.get("tokens") != ids:
            return False
        asked = {"model": self.model, "prompt": ids, "max_tokens": 1, "return_token_ids": True}
        answer = await self._try(f"{self.address}/completions", asked)
        return answer is not None and bool(answer["choices"][0].get("token_ids"))

    async def _decide(self, request: Request) -> Decision:
        body = self._common(request.limit) | {
            "temperature": request.temperature,
            "top_p": 1.0,
            "seed": turn_seed(request.seed, request.turn),
        }
        async with self._gate:
            if self.form == "ids":
                return await self._by_ids(request, body)
            text = b"".join(self._renderer.token_bytes(request.token_ids)).decode("utf-8", errors="replace")
            if self.form == "text":
                body |= {"prompt": text, "stop": self._stops()[:4], **self._kept}
                answer = await self._ask("POST", f"{self.address}/completions", body)
                said = answer["choices"][0]["text"]
            else:
                body |= {"messages": _messages(text), **self._kept}
                answer = await self._ask("POST", f"{self.address}/chat/completions", body)
                said = answer["choices"][0]["message"].get("content") or ""
        cut = answer["choices"][0].get("finish_reason") == "length"
        return Decision(self._ids(said, request.limit, cut), None, 0)

    async def _by_ids(self, request: Request, body: dict[str, Any]) -> Decision:
        body |= {
            "prompt": request.token_ids.tolist(),
            "stop_token_ids": sorted(request.stop_ids),
            "ignore_eos": True,
            "skip_special_tokens": False,
            "logprobs": 0,
            "return_token_ids": True,
        }
        choice = (await self._ask("POST", f"{self.address}/completions", body))["choices"][0]
        logprobs = np.array(choice["logprobs"]["token_logprobs"], dtype=np.float32)
        return Decision(np.array(choice["token_ids"], dtype=np.int32), logprobs, 0)

    def _ids(self, said: str, limit: int, cut: bool) -> NDArray[np.int32]:
        """Return what was said as ids, with the stop id unless it was cut for length."""
        for stop in self._stops():
            said = said.removesuffix(stop)
        ids = self._renderer.encode(said)
        return np.array((ids[:-1] if cut and len(ids) > 1 else ids)[:limit], dtype=np.int32)

    def _common(self, limit: int) -> dict[str, Any]:
        return {"model": self.model, "max_tokens": limit}

    def _stops(self) -> list[str]:
        return [self._renderer.token_bytes([stop])[0].decode() for stop in sorted(self._renderer.stop_ids)]

    async def _try(self, url: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer, or None where the server does not offer what is asked."""
        try:
            return await self._ask("POST", url, body)
        except _Refused as error:
            _log.debug("%s", error)
            return None

    async def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request; a busy or failing server is asked again after each of `_PAUSES_S`."""
        assert self._client is not None
        for pause_s in (*_PAUSES_S, None):
            try:
                answer = await self._client.request(method, url, json=body)
            except httpx.TransportError as error:
                trouble = f"{url} does not answer: {type(error).__name__}: {error}"
            else:
                if answer.is_success:
                    return answer.json()
                trouble = f"{url} answers {answer.status_code}: {answer.text[:300]}"
                if answer.status_code != 429 and answer.status_code < 500:
                    raise _Refused(trouble)
            if pause_s is not None:
                await asyncio.sleep(pause_s)
        raise EngineError(f"{trouble}; asked {len(_PAUSES_S) + 1} times")


class _Refused(EngineError):
    """The server understood and will not."""


def _messages(text: str) -> list[dict[str, str]]:
    """Take a ChatML prompt apart; its last block, which the assistant is about to write, is left out."""
    blocks = [(role, content) for role, content in _BLOCK.findall(text) if content]
    if not blocks:
        raise EngineError(
            "the form 'chat' takes a ChatML prompt apart, and this renderer writes another: use a server that offers "
            "/completions"
        )
    return [{"role": role if role != "tool" else "user", "content": content} for role, content in blocks]
