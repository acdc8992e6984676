"""A replica that this process starts: vLLM's asynchronous engine, whose core runs in a process of its own."""

import asyncio
import itertools
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
        self._engine: Any = None
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
                self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._arguments(on_gpu)))
            except Exception as error:
                raise EngineError(
                    f"vLLM's engine does not start: {type(error).__name__}: {error}. With rollout.vllm.logs=true it "
                    "says more; too little memory is the usual reason (rollout.vllm.gpu_memory, cpu_cache_gb)"
                ) from error

    async def sample(self, asked: Asked) -> Sampled:
        """Sample one decision, batched with whatever else the engine is asked."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

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
        try:
            prompt = {"prompt_token_ids": asked.ids.tolist()}
            name = f"{self.name}-{next(self._numbers)}"
            async for output in self._engine.generate(prompt, settings, name, lora_request=self._adapter):
                last = output.outputs[0]
        except EngineDeadError as error:
            raise ReplicaLost(f"the engine of {self.name} died") from error
        except Exception as error:
            raise EngineError(f"{self.name}: {type(error).__name__}: {error.__cause__ or error}") from error
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
        from vllm.v1.engine.exceptions import EngineDeadError

        number = next(self._adapters)  # vLLM knows adapters by number and name: each version has its own
        newest, old = LoRARequest(f"version-{number}", number, str(folder)), self._adapter
        try:
            if old is not None:
                await self._engine.remove_lora(old.lora_int_id)
            await self._engine.add_lora(newest)
        except EngineDeadError as error:
            raise ReplicaLost(f"the engine of {self.name} died") from error
        except Exception as error:
            raise EngineError(f"{self.name} cannot take an adapter: {type(error).__name__}: {error}") from error
        self._adapter = newest

    async def call(self, method: str, **arguments: Any) -> None:
        """Call a method of vLLM's workers."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            await self._engine.collective_rpc(method, kwargs=arguments)
        except EngineDeadError as error:
            raise ReplicaLost(f"the engine of {self.name} died") from error
        except Exception as error:
            raise EngineError(f"{self.name} cannot {method}: {type(error).__name__}: {error}") from error

    async def clear(self) -> None:
        """Clear the prefix cache."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            cleared = await self._engine.reset_prefix_cache()
        except EngineDeadError as error:
            raise ReplicaLost(f"the engine of {self.name} died") from error
        if not cleared:
            raise EngineError(f"{self.name} holds keys and values of requests in flight: update between rollouts")

    async def close(self) -> None:
        """Stop the engine and its process."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            if engine.output_handler is not None:
                engine.output_handler.cancel()  # or it takes the end for a death
            await asyncio.to_thread(engine.shutdown, 2.0)

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
