"""Where code breaks, down to the tokens of the message that wrote it: exactly those, never more, never others.

The place that has to pay is marked with ⟦ and ⟧ in each program; a program without marks pays with its whole call.
"""

import json
import os

import numpy as np
import pytest

from accredit.credit import CallStatus, StopReason
from accredit.envs.catalogue.code import Interpreter
from accredit.envs.catalogue.python_math import PythonMath
from accredit.envs.recorder import Decision, RecordCredit
from accredit.sandboxes import Limits, SandboxError
from accredit.sandboxes.select import select

BROKEN = {
    "key of a dict": 'print(1)\nd = {}\nx = ⟦d["k"]⟧',
    "index of a list": "values = [1, 2]\nprint(values[0] + ⟦values[7]⟧)",
    "an operation": "print(⟦1 / 0⟧)",
    "an attribute in a function": "def f(n):\n    return ⟦n.upper⟧()\nprint(f(3))",
    "an unknown name": "total = 1\nprint(⟦totl⟧)",
    "an expression over several lines": "x = [\n    1,\n    ⟦int(\n        'a'\n    )⟧,\n]",
    "a call over several lines": "⟦sum(\n    [1, 'b'],\n)⟧",
    "letters beyond ASCII before it": 'd = {}\ns = "é😀ü日" + ⟦d["k"]⟧\n',
    "letters beyond ASCII in it": 'd = {}\ns = ⟦d["é😀\\u00e9日"]⟧\n',
    "names beyond ASCII": "größe = 1\nprint(größe + ⟦länge⟧)",
    "tabs": "if True:\n\tx = 1\n\ty = ⟦x / 0⟧",
    "Windows line ends": "a = 1\r\nb = ⟦a / 0⟧\r\nc = 2\r\n",
    "old line ends": "a = 1\rb = ⟦a / 0⟧\rc = 2",
    "form feed": "a = 1\n\x0cb = ⟦a / 0⟧",
    "nested calls": "print(str(abs(⟦int('x')⟧)))",
    "an f-string": "d = {}\nprint(f'{1} {⟦d[2]⟧}')",
    "a lambda": "f = lambda n: ⟦1 / n⟧\nf(0)",
    "a comprehension": "print([⟦1 / n⟧ for n in (2, 1, 0)])",
    "a generator": "print(sum(⟦1 / n⟧ for n in (2, 1, 0)))",
    "a decorator": "def bad(f):\n    return ⟦f.missing⟧\n@bad\ndef g(): pass",
    "an unknown decorator": "@⟦missing⟧\ndef g(): pass",
    "a default argument": "def f(x=⟦1 / 0⟧): pass",
    "a class body": "class A:\n    x = ⟦1 / 0⟧",
    "a method": "class A:\n    def f(self): return ⟦self.x⟧\nA().f()",
    "an assertion": "assert ⟦1 == 2⟧, 'no'",
    "raise": "⟦raise ValueError('no')⟧",
    "an import": "⟦import no_such_module⟧",
    "unpacking": "⟦a, b⟧ = 1, 2, 3",
    "the library": "import json\nvalue = ⟦json.loads('{')⟧",
    "a callback of the library": "import functools\nfunctools.reduce(lambda a, b: ⟦a + b⟧, [1, 'x'])",
    "text that is executed": "x = 1\n⟦exec('y = 1\\nz = 1 / 0')⟧",
    "text that is evaluated": "print(⟦eval('1 +')⟧)",
    "text executed under another name": "x = 1\n⟦exec(compile('1/0', '<other>', 'exec'))⟧",
    "an exception in a handler": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    x = ⟦{}['k']⟧",
    "an exception again": "try:\n    x = 1 / 0\nexcept ZeroDivisionError as e:\n    ⟦raise ValueError from e⟧",
    "with": "with ⟦open('/no/such/file')⟧ as f: pass",
    "an awaited coroutine": "import asyncio\nasync def f(): return ⟦1 / 0⟧\nasyncio.run(f())",
    "endless recursion": "def f(n):\n    return ⟦f(n + 1)⟧\nf(0)",
    "escapes of JSON before it": 'x = "\\t\\\\ \\" / \\b"\ny = ⟦x["\\""]⟧',
    "a wrong token": "x = 1\ny = ⟦)⟧\n",
    "a bracket never closed": "x = ⟦(⟧1 + 2\ny = 3",
    "two expressions": "x = 1 ⟦2⟧",
    "a statement that ends too soon": "x = 1 +⟦⟧\n",
    "the end of the program": "def f():⟦⟧",
    "no indent": "if True:\n⟦x⟧ = 1",
    "too much indent": "x = 1\n ⟦ ⟧y = 2",
    "indent that goes back nowhere": "if 1:\n    x = 1\n  y = 2⟦⟧",
    "a string without end": "x = 1\ny = ⟦'⟧abc\n",
    "a text block without end": "y = ⟦'⟧''abc\n",
    "return outside": "⟦return 1⟧",
    "a name that cannot be assigned": "⟦None⟧ = 1",
    "an assignment to a call": "⟦f()⟧ = 1",
    "null bytes": "x = 1\0",
    "only a comment that fails to decode": "x = ⟦\u2028⟧1",
    "leaving with a code": "import sys\nsys.exit(3)",
    "leaving for good": "import os\nos._exit(4)",
}

FINE = {
    "a warning": "import warnings\nwarnings.warn('careful')\nprint(1)",
    "a syntax warning": "x = 1\nprint(x is 1)",
    "standard error": "import sys\nprint('careful', file=sys.stderr)",
    "a printed traceback": "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()",
    "an exception in a finaliser": "class A:\n    def __del__(self): 1 / 0\nA()\nprint(1)",
    "leaving with 0": "import sys\nsys.exit(0)",
    "nothing": "",
}


@pytest.fixture(scope="module")
def interpreter():
    """One interpreter for all: each run is a fresh process, and each program is run once for all tokenizers."""
    try:
        select()
    except SandboxError as error:
        if os.environ.get("REQUIRE_SANDBOX"):
            raise
        pytest.skip(f"no sandbox on this machine: {error}")
    kept = Interpreter(Limits(wall_s=20.0, cpu_s=10.0))
    outcomes = {}

    class Remembering:
        def run(self, code):
            if code not in outcomes:
                outcomes[code] = kept.run(code)
            return outcomes[code]

        def close(self):
            pass

    yield Remembering()
    kept.close()


def played(interpreter, renderer, text):
    class Shared(PythonMath):
        def setup(self):
            self.interpreter = interpreter

    record = RecordCredit(Shared(), renderer)
    record.reset(seed=1)
    ids = renderer.encode(text)
    assert renderer.text(ids) == text
    record.step(Decision(ids, np.full(len(ids), -0.25)))
    trajectory = record.finish(StopReason.CANCELLED)
    return trajectory, ids, trajectory.decisions[0].start


def owners(renderer, ids, chars):
    """Return the first and last token with any byte of the characters, by counting bytes."""
    text = renderer.text(ids)
    low = len(text[: chars[0]].encode())
    high = low + len(text[slice(*chars)].encode())
    ends = np.cumsum([len(part) for part in renderer.token_bytes(ids[:-1])])
    starts = np.concatenate(([0], ends[:-1]))
    found = np.flatnonzero((starts < high) & (ends > low) & (ends > starts)).tolist()
    return found[0], found[-1] + 1


def written(code, ascii_only):
    return json.dumps(code, ensure_ascii=ascii_only)[1:-1]


@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "as it is"])
@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_pays_with_its_own_tokens(interpreter, renderer, name, ascii_only):
    before, opened, rest = BROKEN[name].partition("⟦")
    marked, _, after = rest.partition("⟧")
    code = before + marked + after
    text = f'<tool_call>{{"name": "python", "arguments": {{"code": "{written(code, ascii_only)}"}}}}</tool_call>'
    trajectory, ids, start = played(interpreter, renderer, text)
    (charge,) = trajectory.charges
    (call,) = trajectory.calls
    assert call.status in (CallStatus.TOOL_ERROR, CallStatus.NONZERO_EXIT)
    found = (charge.start - start, charge.end - start)
    head = text.index('"code": "') + len('"code": "')
    low = head + len(written(before, ascii_only))
    if not opened:
        assert found == owners(renderer, ids, (0, len(text)))
    elif not marked:  # the end of a line or of the program: somewhere in the line's last characters
        line = before.rstrip("\n").rpartition("\n")[2]
        first, last = owners(
            renderer, ids, (low - len(written(line, ascii_only)), head + len(written(code, ascii_only)))
        )
        assert first <= found[0] < found[1] <= last
    else:
        assert found == owners(renderer, ids, (low, low + len(written(marked, ascii_only)))), text
    assert call.start <= charge.start < charge.end <= call.end


@pytest.mark.parametrize("name", FINE)
def test_what_only_complains_pays_nothing(interpreter, renderer, name):
    text = f'<tool_call>{{"name": "python", "arguments": {{"code": "{written(FINE[name], True)}"}}}}</tool_call>'
    trajectory, _, _ = played(interpreter, renderer, text)
    assert trajectory.calls[0].status is CallStatus.OK
    assert not trajectory.charges


@pytest.mark.parametrize("code", ["x = '\\ud800' + y", "\\ud800", "d = {}\\nd['\\udfff']"])
def test_lone_surrogates_pay_inside_their_call(interpreter, renderer, code):
    text = f'<tool_call>{{"name": "python", "arguments": {{"code": "{code}"}}}}</tool_call>'
    trajectory, _, _ = played(interpreter, renderer, text)
    (charge,), (call,) = trajectory.charges, trajectory.calls
    assert call.status is CallStatus.TOOL_ERROR
    assert call.start <= charge.start < charge.end <= call.end


def test_of_two_calls_in_a_turn_only_the_broken_one_pays(interpreter, renderer):
    def call(code):
        return f'<tool_call>{{"name": "python", "arguments": {{"code": "{written(code, True)}"}}}}</tool_call>'

    text = call("print(1)") + call("print(1)\nx = {}['é']") + call("print(3)")
    trajectory, ids, start = played(interpreter, renderer, text)
    (charge,) = trajectory.charges
    low = text.index("{}['")
    assert (charge.start - start, charge.end - start) == owners(renderer, ids, (low, text.index("']", low) + 2))
    assert charge.call == 1
    assert [found.status.ran for found in trajectory.calls] == [True, False, True]
