"""A replica behind HTTP: `vllm serve`, started by somebody else, with VLLM_SERVER_DEV_MODE=1 for new weights.

Every setting of the sampler is sent with every request, so that the server's own defaults do not matter; what a request
cannot set is read from the server, and refused.
"""

import asyncio
import logging
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from accredit.agents.policy import EngineError

from .options import VLLMOptions
from .replica import Asked, ReplicaLost, Sampled

__all__ = ["NEUTRAL", "ServerReplica"]

_log = logging.getLogger(__name__)

NEUTRAL = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
}
"""Settings under which the sampler draws from the policy itself."""


class ServerReplica:
    """One server, named by its address."""

    def __init__(self, address: str, options: VLLMOptions) -> None:
        self.name = address.rstrip("/").removesuffix("/v1")
        self._options = options
        self._client: httpx.AsyncClient | None = None
        self._model = ""
        self._adapter: str | None = None

    async def start(self) -> None:
        """Wait for the server, and check that it offers what is needed.

        Raises:
            EngineError: it does not answer, is too small, or its settings make another policy of the model.

        """
        self._client = httpx.AsyncClient(
            base_url=self.name,
            timeout=httpx.Timeout(self._options.request_s, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=self._options.sequences),
        )
        served = (await self._first_answer())["data"][0]
        self._model = served["id"]
        if served.get("max_model_len", 0) < self._options.context_tokens:
            raise EngineError(
                f"{self.name} holds {served.get('max_model_len')} tokens, expected at least rollout.episode_tokens = "
                f"{self._options.context_tokens}: start it with --max-model-len {self._options.context_tokens}"
            )
        settings = (await self._ask("GET", "/server_info?config_format=json"))["vllm_config"]
        mode = settings["model_config"]["logprobs_mode"]
        if mode != "raw_logprobs":
            raise EngineError(
                f"{self.name} gives log-probabilities of mode '{mode}', which are not the policy's: start it with "
                "--logprobs-mode raw_logprobs"
            )
        if self._options.lora_rank is not None:
            _check_adapters(self.name, settings.get("lora_config"), self._options.lora_rank)
        on_cpu = "cpu" in str(settings["device_config"])
        if on_cpu and settings["scheduler_config"]["enable_chunked_prefill"]:
            raise EngineError(
                f"{self.name} runs on a CPU and prefills prompts in pieces, which ends vLLM at the first prompt with a "
                "seed that it cuts: start it with --no-enable-chunked-prefill"
            )

    async def sample(self, asked: Asked) -> Sampled:
        """Sample one decision over /v1/completions, ids in and ids out."""
        body = {
            **NEUTRAL,
            "model": self._model,
            "prompt": asked.ids.tolist(),
            "max_tokens": asked.limit,
            "temperature": asked.temperature,
            "seed": asked.seed,
            "stop_token_ids": sorted(asked.stop_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        answer = await self._ask("POST", "/v1/completions", body)
        choice = answer["choices"][0]
        if choice["finish_reason"] not in ("stop", "length"):
            raise EngineError(f"{self.name} gave a decision up: {choice['finish_reason']}")
        ids = np.array(choice["token_ids"], dtype=np.int32)
        logprobs = np.array(choice["logprobs"]["token_logprobs"], dtype=np.float32)
        if len(ids) != len(logprobs):
            raise EngineError(f"{self.name} returned {len(ids)} ids with {len(logprobs)} log-probabilities")
        return Sampled(ids, logprobs)

    async def load(self, folder: Path) -> None:
        """Let the server read the weights, or the adapter, in `folder` and clear its prefix cache."""
        if self._options.lora_rank is None:
            body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            await self._ask("POST", "/collective_rpc", body)
        else:
            await self._swap(folder)
        cleared = await self._ask("POST", "/reset_prefix_cache")
        if not cleared.get("success"):
            raise EngineError(f"{self.name} holds keys and values of requests in flight: is it used by others?")

    async def _swap(self, folder: Path) -> None:
        """Let requests from now on use the adapter in `folder`, and drop the one before it."""
        name, old = f"accredit-{uuid.uuid4().hex}", self._adapter  # never a name that the server knows
        await self._ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        self._model = self._adapter = name
        if old is not None:
            await self._drop(old)

    async def _drop(self, adapter: str) -> None:
        try:
            await self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": adapter})
        except EngineError as error:  # the server was started anew, and has none of the old ones
            _log.info("%s", error)

    async def close(self) -> None:
        """Drop the adapter and close the connections; the server goes on."""
        if self._client is not None and self._adapter is not None:
            await self._drop(self._adapter)
        if self._client is not None:
            await self._client.aclose()

    async def _first_answer(self) -> dict[str, Any]:
        until = time.monotonic() + self._options.start_s
        while True:
            try:
                return await self._ask("GET", "/v1/models")
            except ReplicaLost as error:
                if time.monotonic() > until:
                    raise EngineError(
                        f"no vLLM server answered at {self.name} within {self._options.start_s:g} s ({error}): start "
                        "it with `vllm serve`, as docs/how-to/engines.md says"
                    ) from error
            await asyncio.sleep(1.0)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        assert self._client is not None, "start comes first"
        try:
            answer = await self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            raise ReplicaLost(f"{self.name} does not answer: {type(error).__name__}: {error}") from error
        if answer.status_code == 404 and path == "/v1/load_lora_adapter":
            raise EngineError(
                f"{self.name} takes no adapters: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
            )
        if answer.status_code == 404 and not path.startswith("/v1/"):
            raise EngineError(f"{self.name} has no {path}: start it with VLLM_SERVER_DEV_MODE=1 in its environment")
        if answer.status_code >= 500:
            raise ReplicaLost(f"{self.name} failed in {path}: {answer.status_code} {answer.text[:300]}")
        if answer.status_code >= 400:
            raise EngineError(f"{self.name} refuses {path}: {answer.status_code} {answer.text[:300]}")
        as_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.json() if answer.content and as_json else {}


def _check_adapters(name: str, found: Any, rank: int) -> None:
    """Raise `EngineError` unless the server's settings of adapters hold one of `rank`."""
    if not isinstance(found, dict):
        raise EngineError(f"{name} takes no adapters, expected for model.lora: start it with --enable-lora")
    most = int(found.get("max_lora_rank", 0))
    if most < rank:
        raise EngineError(
            f"{name} takes adapters up to rank {most}, expected {rank} for model.lora.rank: start it with a larger "
            "--max-lora-rank"
        )
