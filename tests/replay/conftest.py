import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # lets the tests of this folder import sample_episodes and opened_page

from opened_page import ARGUMENTS, WIDE, Opened
from sample_episodes import write_shop_run, write_two_steps


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium. Skips with its reason without it, unless REQUIRE_CHROMIUM=1.

    While it is open, an event loop runs in the tests' thread.
    """
    executable = shutil.which("chromium")
    reason = ""
    if executable is None:
        reason = "there is no chromium on the PATH (Debian: apt-get install chromium)"
    elif importlib.util.find_spec("playwright") is None:
        reason = "the Python package playwright is not installed"
    if reason and os.environ.get("REQUIRE_CHROMIUM") == "1":
        pytest.fail(f"REQUIRE_CHROMIUM=1 but {reason}")
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:  # each launch has a fresh user-data folder
        launched = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    """A page of its own; at the end it must have logged nothing and asked for nothing but its file."""
    context = browser.new_context(viewport=WIDE)
    found = Opened(context.new_page())
    yield found
    context.close()
    assert found.troubles == []
    assert all(url.startswith("file:") for url in found.requests) and len(set(found.requests)) <= 2


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the sample run, under the stored credit function and two others."""
    from accredit.replay import export

    folder = tmp_path_factory.mktemp("page")
    return export(write_shop_run(folder / "shop"), folder / "shop.html", functions=["rloo", "anchored,lam=0"])


@pytest.fixture(scope="session")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of two steps, under the stored credit function and one other."""
    from accredit.replay import export

    folder = tmp_path_factory.mktemp("steps")
    return export(write_two_steps(folder / "shop"), folder / "shop.html", functions=["rloo"])
