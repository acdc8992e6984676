"""`accredit sandbox`: which sandboxes this machine has, and one program run in one of them."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from accredit.sandboxes import Limits, Outcome
from accredit.sandboxes.doctor import Examination, Finding, examine_all
from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.protocol import Level
from accredit.sandboxes.select import BACKENDS, check_name, probe, select
from accredit.sandboxes.selfcheck import Report, attack
from accredit.table import print_table

__all__ = ["app"]

app = typer.Typer(help="Look after what runs untrusted code.", no_args_is_help=True)

_BACKENDS = f"{', '.join(BACKENDS)}, or the http:// address of a pool"


@app.command("doctor")
def doctor_command(
    backend: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Examine this one only: {_BACKENDS}; may be given several times."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    hostile: Annotated[
        bool,
        typer.Option("--hostile", help="Also attack the default, or those named, with hostile programs."),
    ] = False,
) -> None:
    """Try every sandbox on this machine: what works, how strong it is, how fast, and which one is the default.

    Found by doing: each backend is opened and runs a program. Exit code 1 if there is no default, or if a hostile
    program came through.
    """
    for name in backend or ():
        _refuse_unknown(name)
    examination = examine_all(backend or ())
    attacked = [name for name in _isolating(examination) if backend or name == examination.default] if hostile else []
    reports = {name: attack(name) for name in attacked}
    if as_json:
        found = {"default": examination.default, "refusal": examination.refusal}
        found["backends"] = [finding.to_json() for finding in examination.findings]
        if hostile:
            found["hostile"] = {name: report.to_json() for name, report in reports.items()}
        print(json.dumps(found, indent=1))
    else:
        _print(examination)
        for name, report in reports.items():
            _print_attack(name, report)
        if hostile and not reports:
            print("\nhostile: nothing here isolates programs, so there is nothing to attack")
    if examination.default is None or any(report.problems for report in reports.values()):
        raise typer.Exit(1)


@app.command("run")
def run_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python program.", exists=True, dir_okay=False)],
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"One of {_BACKENDS}.", show_default="the default")
    ] = None,
    allow_weaker: Annotated[bool, typer.Option(help="Accept a backend below level L3.")] = False,
    wall_s: Annotated[float, typer.Option(help="Seconds it may take.", min=0.1)] = 10.0,
    memory_mb: Annotated[int, typer.Option(help="MiB of memory it may use.", min=32)] = 256,
) -> None:
    """Run one program in a sandbox; print what it printed, and the verdict. Exit code 1 unless the program is ok."""
    if backend is not None:
        _refuse_unknown(backend)
    sandbox = select(backend, allow_weaker or None)
    session = sandbox.open_blocking(Limits(wall_s=wall_s, cpu_s=wall_s, memory_mb=memory_mb))
    try:
        outcome = session.run(file.read_text(encoding="utf-8"))
    finally:
        session.close()
    sys.stdout.write(outcome.stdout.decode("utf-8", "backslashreplace"))
    sys.stdout.flush()
    sys.stderr.write(outcome.stderr.decode("utf-8", "backslashreplace"))
    print(_verdict(outcome), file=sys.stderr)
    if not outcome.ok:
        raise typer.Exit(1)


@app.command("serve")
def serve_command(
    host: Annotated[str, typer.Option(help="Address to listen at; others than this machine's own need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)] = 8080,
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"One of {_BACKENDS}.", show_default="the default")
    ] = None,
    allow_weaker: Annotated[bool, typer.Option(help="Accept a backend below level L3.")] = False,
    most: Annotated[int, typer.Option(help="Sessions in use at once.", min=1)] = 16,
    warm: Annotated[int, typer.Option(help="Sessions opened ahead.", min=0)] = 2,
    queue: Annotated[int, typer.Option(help="Callers that may wait for a session.", min=0)] = 64,
    lease_s: Annotated[float, typer.Option(help="Seconds of silence after which a session is ended.", min=1.0)] = 60.0,
) -> None:
    """Serve a pool of sandboxes to other machines over HTTP, until it is stopped.

    A run uses it with ACCREDIT_SANDBOX=http://HOST:PORT. With ACCREDIT_SANDBOX_TOKEN set, here and there, only who
    knows the token is answered.
    """
    from accredit.sandboxes.pool import Pool, PoolOptions
    from accredit.sandboxes.remote.server import TOKEN_VARIABLE, serve

    if backend is not None:
        _refuse_unknown(backend)
    pool = Pool(select(backend, allow_weaker or None), PoolOptions(most=most, warm=warm, queue=queue))
    token = os.environ.get(TOKEN_VARIABLE) or None
    with pool:
        serve(pool, host=host, port=port, token=token, lease_s=lease_s, started=lambda url: print(url, flush=True))


def _refuse_unknown(name: str) -> None:
    try:
        check_name(name)
    except SandboxError as error:
        raise typer.BadParameter(str(error), param_hint="--backend") from error


def _print(examination: Examination) -> None:
    rows = [_row(finding, examination.default) for finding in examination.findings]
    print_table(["backend", "works", "level", "open", "warm run", "note"], rows)
    print()
    print_table(["backend", "layer", "on", "reason"], [row for f in examination.findings for row in _layers(f)])
    print()
    if examination.default is None:
        print(examination.refusal)
        return
    report = probe(select())
    print(f"default: {examination.default}, {report.level.name} ({report.isolation_id})")
    for finding in examination.findings:
        if not finding.works:
            print(f"for {finding.name}: {finding.advice}")


def _isolating(examination: Examination) -> list[str]:
    return [f.name for f in examination.findings if f.works and f.report is not None and f.report.level >= Level.L3]


def _print_attack(name: str, report: Report) -> None:
    print(f"\n{name}: {len(report.findings)} hostile programs, {len(report.problems)} problems")
    for problem in report.problems:
        print(f"  {problem}")
    if report.refused:
        print(f"  not run, since it refuses them: {', '.join(report.refused)}")


def _row(finding: Finding, default: str | None) -> list[str]:
    weak = finding.report is not None and finding.report.level < Level.L3
    note = finding.problem or ("the default" if finding.name == default else "only with allow_weaker" if weak else "")
    return [
        finding.name,
        "yes" if finding.works else "NO",
        finding.report.level.name if finding.report else "-",
        _milliseconds(finding.open_s),
        _milliseconds(finding.warm_s),
        note,
    ]


def _layers(finding: Finding) -> list[list[str]]:
    layers = finding.report.layers if finding.report else ()
    return [[finding.name, layer.name, "yes" if layer.on else "NO", layer.reason] for layer in layers]


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def _verdict(outcome: Outcome) -> str:
    places = "".join(f" (line {span.line}: {span.error})" for span in outcome.error_spans)
    used = f"{outcome.usage.wall_s:.2f} s"
    return f"{outcome.status}, blame: {outcome.blame}{places}, {used}, {outcome.isolation_id}"
