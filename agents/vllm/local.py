"""A replica that this process starts: vLLM's asynchronous engine, whose core runs in a process of its own."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np

from accredit.agents.policy import EngineError

from .options import VLLMOptions, engine_environment
from .replica import Asked, ReplicaLost, Sampled

__all__ = ["LocalReplica"]


class LocalReplica:
    """Samples from the weights in `folder`, until `load` brings others."""

    def __init__(self, name: str, folder: Path, options: VLLMOptions) -> None:
        self.name = name
        self._folder, self._options = folder, options
        self.engine: Any = None  # vLLM's AsyncLLM, once it is started
        self._numbers = itertools.count()
        self._adapters = itertools.count(1)
        self._adapter: Any = None  # vLLM's LoRARequest

    async def start(self) -> None:
        """Start the engine; this blocks the event loop until it stands.

        Raises:
            EngineError: vLLM is not installed, or its engine does not start.

        """
        import torch

        on_gpu = torch.cuda.is_available()
        with engine_environment(self._options, on_gpu):
            try:
                from vllm import AsyncEngineArgs
                from vllm.v1.engine.async_llm import AsyncLLM
            except ImportError as error:
                raise EngineError(
                    f"rollout.engine vllm needs vLLM, which cannot be imported here ({error}): pip install "
                    "'accredit[vllm]' beside a GPU; docs/how-to/engines.md says how to install it for a CPU"
                ) from error
            try:
                self.engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._arguments(on_gpu)))
            except Exception as error:
                raise EngineError(
                    f"vLLM's engine does not start: {type(error).__name__}: {error}. With rollout.vllm.logs=true it "
                    "says more; too little memory is the usual reason (rollout.vllm.gpu_memory, cpu_cache_gb)"
                ) from error

    async def sample(self, asked: Asked) -> Sampled:
        """Sample one decision, batched with whatever else the engine is asked."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        settings = SamplingParams(
            temperature=asked.temperature,
            seed=asked.seed,
            max_tokens=asked.limit,
            stop_token_ids=sorted(asked.stop_ids),
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        last: Any = None
        prompt = {"prompt_token_ids": asked.ids.tolist()}
        name = f"{self.name}-{next(self._numbers)}"
        with self._asked_to("sample"):
            async for output in self.engine.generate(prompt, settings, name, lora_request=self._adapter):
                last = output.outputs[0]
        if last is None or last.finish_reason not in ("stop", "length"):
            raise EngineError(f"{self.name} gave a decision up: {getattr(last, 'finish_reason', 'no output')}")
        ids = np.array(last.token_ids, dtype=np.int32)
        pairs = zip(last.token_ids, last.logprobs, strict=True)
        return Sampled(ids, np.array([row[token].logprob for token, row in pairs], dtype=np.float32))

    async def load(self, folder: Path) -> None:
        """Take over the weights, or the adapter, in `folder`, and clear the prefix cache."""
        if self._options.lora_rank is None:
            await self.call("reload_weights", weights_path=str(folder))
        else:
            await self._swap(folder)
        await self.clear()

    async def _swap(self, folder: Path) -> None:
        """Let requests from now on use the adapter in `folder`, and drop the one before it."""
        from vllm.lora.request import LoRARequest

        number = next(self._adapters)  # vLLM knows adapters by number and name: each version has its own
        newest, old = LoRARequest(f"version-{number}", number, str(folder)), self._adapter
        with self._asked_to("take an adapter"):
            if old is not None:
                await self.engine.remove_lora(old.lora_int_id)
            await self.engine.add_lora(newest)
        self._adapter = newest

    async def call(self, method: str, **arguments: Any) -> None:
        """Call a method of vLLM's workers."""
        with self._asked_to(method):
            await self.engine.collective_rpc(method, kwargs=arguments)

    async def clear(self) -> None:
        """Clear the prefix cache."""
        with self._asked_to("clear its prefix cache"):
            cleared = await self.engine.reset_prefix_cache()
        if not cleared:
            raise EngineError(f"{self.name} holds keys and values of requests in flight: update between rollouts")

    async def close(self) -> None:
        """Stop the engine and its process."""
        if self.engine is not None:
            engine, self.engine = self.engine, None
            if engine.output_handler is not None:
                engine.output_handler.cancel()  # or it takes the end for a death
            await asyncio.to_thread(engine.shutdown, 2.0)

    @contextmanager
    def _asked_to(self, work: str) -> Iterator[None]:
        """Tell an engine that died from one that failed at `work`."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except EngineDeadError as error:
            raise ReplicaLost(f"the engine of {self.name} died") from error
        except Exception as error:
            why = error.__cause__ or error
            raise EngineError(f"{self.name} cannot {work}: {type(error).__name__}: {why}") from error

    def _arguments(self, on_gpu: bool) -> dict[str, Any]:
        options = self._options
        return {
            **({} if on_gpu else _on_cpu(options)),
            "model": str(self._folder),
            "dtype": options.dtype,
            "max_model_len": options.context_tokens,
            "max_num_seqs": options.sequences,
            "gpu_memory_utilization": options.gpu_memory,
            "logprobs_mode": "raw_logprobs",
            "generation_config": "vllm",
            "enable_prefix_caching": True,
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            "use_tqdm_on_load": options.logs,
            "seed": 0,
            **({"weight_transfer_config": {"backend": "ipc"}} if options.weights == "ipc" else {}),
            **({} if options.lora_rank is None else _with_adapters(options.lora_rank)),
            **options.engine_args,
        }


def _with_adapters(rank: int) -> dict[str, Any]:
    """Return what adapters need: one at a time, in the least of vLLM's ranks that holds them."""
    from vllm.config.lora import MaxLoRARanks

    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": min(r for r in get_args(MaxLoRARanks) if r >= rank)}


def _on_cpu(options: VLLMOptions) -> dict[str, Any]:
    """Return what the CPU needs: no compiler, and prompts in one piece.

    vLLM rewinds the generator of a request with a seed after each piece, which a generator on the CPU cannot be.
    """
    return {
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(4096, options.context_tokens),
    }
