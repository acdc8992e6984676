"""Tokens a second: plain vLLM, our engine over it, and the transformers engine, on the same prompts.

    python benchmarks/engine_speed.py                     # the base policy
    python benchmarks/engine_speed.py --model smollm2     # 135 M parameters

All sample as many tokens from the same contexts at temperature 1, with log-probabilities and a seed a request. The
repeats of the three take turns, so that what else the machine does hits all of them; the prefix cache is cleared before
each. Plain vLLM is its asynchronous engine asked by the shortest loop that returns ids and log-probabilities; both
share one engine, so that only what stands above it differs.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from accredit.agents.models import load_model
from accredit.agents.policy import Policy, Request
from accredit.agents.transformers import TransformersPolicy
from accredit.agents.vllm.local import LocalReplica
from accredit.agents.vllm.options import VLLMOptions
from accredit.agents.vllm.policy import VLLMPolicy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--context", type=int, default=256, help="tokens of a context")
    parser.add_argument("--tokens", type=int, default=64, help="tokens sampled a request")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    model = load_model(options.model).model
    draw = np.random.default_rng(0)
    asked = [
        Request(
            f"ep-{place}",
            draw.integers(5, model.config.vocab_size, options.context).astype(np.int32),
            0,
            place,
            options.tokens,
            frozenset(),
        )
        for place in range(options.requests)
    ]
    policy = Measured(model, VLLMOptions(context_tokens=options.context + options.tokens))
    embedded = TransformersPolicy(model)
    ways: dict[str, Callable[[], int]] = {
        "plain vLLM": lambda: policy.plain(asked),
        "engine vllm": lambda: ours(policy, asked),
        "engine transformers": lambda: ours(embedded, asked),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(options.repeats + 1):  # the first warms up
        for name, way in ways.items():
            policy.updated(repeat)
            embedded.updated(repeat)
            started = time.perf_counter()
            count = way()
            if repeat:
                rates[name].append(count / (time.perf_counter() - started))
                print(f"repeat {repeat}, {name}: {rates[name][-1]:,.0f} tokens/s", file=sys.stderr, flush=True)
    policy.close()
    peer = statistics.median(rates["plain vLLM"])
    print(f"{options.model}: {options.requests} requests, {options.context} + {options.tokens} tokens, medians of")
    print(f"{options.repeats} repeats\n")
    print("| | tokens/s | of plain vLLM | lowest | highest |\n|---|---|---|---|---|")
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"| {name} | {middle:,.0f} | {middle / peer:.3f} | {min(found):,.0f} | {max(found):,.0f} |")


def ours(policy: Policy, asked: list[Request]) -> int:
    async def each() -> int:  # as a rollout asks: every episode for itself
        decisions = await asyncio.gather(*[policy.sample([request]) for request in asked])
        return sum(len(np.asarray(decision.ids)) for (decision,) in decisions)

    async def batch() -> int:
        return sum(len(np.asarray(decision.ids)) for decision in await policy.sample(asked))

    return asyncio.run(batch() if policy.lockstep else each())


class Measured(VLLMPolicy):
    """Our engine, whose vLLM can be asked without what stands above it."""

    def plain(self, asked: list[Request]) -> int:
        """Return how many tokens plain vLLM sampled."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        (replica,) = self._replicas
        assert isinstance(replica, LocalReplica)
        engine = replica.engine

        async def one(place: int, request: Request) -> int:
            settings = SamplingParams(
                max_tokens=request.limit,
                seed=place,
                logprobs=0,
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            last = None
            name = f"plain-{time.perf_counter()}-{place}"
            async for output in engine.generate({"prompt_token_ids": request.token_ids.tolist()}, settings, name):
                last = output.outputs[0]
            assert last is not None
            logprobs = [row[token].logprob for token, row in zip(last.token_ids, last.logprobs, strict=True)]
            return len(logprobs)

        async def every() -> int:
            return sum(await asyncio.gather(*[one(place, request) for place, request in enumerate(asked)]))

        return self._wait(every(), 600)


if __name__ == "__main__":
    main()
