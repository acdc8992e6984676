"""A replica behind HTTP: `vllm serve`, started by somebody else, with VLLM_SERVER_DEV_MODE=1 for new weights.

Every setting of the sampler is sent with every request, so that the server's own defaults do not matter; what a request
cannot set is read from the server, and refused.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from accredit.agents.policy import EngineError

from .options import VLLMOptions
from .replica import Asked, ReplicaLost, Sampled

__all__ = ["NEUTRAL", "ServerReplica"]

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
        """Let the server read the weights in `folder` and clear its prefix cache."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self._ask("POST", "/collective_rpc", body)
        cleared = await self._ask("POST", "/reset_prefix_cache")
        if not cleared.get("success"):
            raise EngineError(f"{self.name} holds keys and values of requests in flight: is it used by others?")

    async def close(self) -> None:
        """Close the connections; the server goes on."""
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
        if answer.status_code == 404 and not path.startswith("/v1/"):
            raise EngineError(f"{self.name} has no {path}: start it with VLLM_SERVER_DEV_MODE=1 in its environment")
        if answer.status_code >= 500:
            raise ReplicaLost(f"{self.name} failed in {path}: {answer.status_code} {answer.text[:300]}")
        if answer.status_code >= 400:
            raise EngineError(f"{self.name} refuses {path}: {answer.status_code} {answer.text[:300]}")
        return answer.json() if answer.content else {}
