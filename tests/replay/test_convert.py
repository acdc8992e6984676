"""Episodes to and from verifiers and OpenEnv. `foreign/` holds files made by those packages, and what made them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_episodes import write_shop_run

from accredit.cli import main
from accredit.credit import CallStatus, Credit, Group, Ledger, Recorder, SpanKind, StopReason, TraceError
from accredit.credit.traces import StoredEpisode, TraceReader, TraceWriter, open_run
from accredit.replay.convert import IMPORTED, read_foreign, write_foreign, write_run

FOREIGN = Path(__file__).parent / "foreign"


def branches(nodes: list[dict[str, Any]]) -> list[dict[str, list[Any]]]:
    """The training samples of a trace, as verifiers makes them: node columns joined along each path."""
    found = []
    for leaf in set(range(len(nodes))) - {node.get("parent") for node in nodes}:
        path, at = [], leaf
        while at is not None:
            path.append(nodes[at])
            at = nodes[at].get("parent")
        columns = ("token_ids", "mask", "logprobs", "advantages")
        found.append({c: [x for node in path[::-1] for x in node.get(c) or []] for c in columns})
    return sorted(found, key=lambda branch: branch["token_ids"])


def assert_trained_alike(left: StoredEpisode, right: StoredEpisode) -> None:
    a, b = left.trajectory, right.trajectory
    assert np.array_equal(a.token_ids, b.token_ids) and np.array_equal(a.credit_mask, b.credit_mask)
    assert np.array_equal(a.logprobs, b.logprobs, equal_nan=True)
    assert (left.credit is None) == (right.credit is None)
    if left.credit is not None and right.credit is not None:
        assert np.array_equal(left.credit.advantage.total, right.credit.advantage.total)


def test_a_file_of_verifiers_is_read() -> None:
    linear, branched = read_foreign(FOREIGN / "verifiers.jsonl").episodes
    t = linear.trajectory
    assert (t.episode_id, t.group, t.env_id, t.task_id, linear.step, t.policy_versions) == (
        "linear", "group-7", "boards", "boards-7", 3, (2, 2)
    )  # fmt: skip
    assert t.reward == 1.25 and t.stop is StopReason.DONE and t.turns == 2
    assert t.token_ids[t.credit_mask].tolist() == [20, 21, 22, 2, 40, 2]
    assert t.logprobs[t.credit_mask].tolist() == [-0.5, -0.25, -1.0, -0.125, -0.75, -2.5]
    assert linear.credit is not None and list(linear.credit.advantage.terms) == [IMPORTED]
    assert linear.credit.advantage.total[t.credit_mask].tolist() == [0.5] * 4 + [-0.25] * 2
    assert [(c.name, c.arguments, c.result, c.status) for c in t.calls] == [
        ("price", {"item": "oak"}, "5 coins", CallStatus.OK)
    ]
    kinds = [(span.kind, span.turn) for span in t.spans if len(span) > 1]
    assert kinds == [(SpanKind.PROMPT, -1), (SpanKind.PROMPT, -1), (SpanKind.SCAFFOLD, -1), (SpanKind.DECISION, 0),
                     (SpanKind.FEEDBACK, 0), (SpanKind.SCAFFOLD, 0), (SpanKind.DECISION, 1)]  # fmt: skip
    t = branched.trajectory
    assert t.reward is None and t.error == "RuntimeError: the shop closed" and branched.credit is None
    # the second branch repeats the first message: there it is prompt, and no sampled token is trained twice
    assert [segment.start for segment in t.segments] == [0, 9] and int(t.credit_mask.sum()) == 5


def test_a_file_of_openenv_is_read() -> None:
    conversion = read_foreign(FOREIGN / "openenv.json")
    (episode,) = conversion.episodes
    t = episode.trajectory
    assert t.token_ids.tolist() == [1, 13, 14, 2, 1, 3, 20, 21, 2, 1, 30, 2, 1, 3, 40, 41, 2, 1, 70, 2, 1, 3, 80, 2]
    assert t.token_ids[t.credit_mask].tolist() == [20, 21, 2, 40, 41] and t.turns == 3
    assert t.logprobs[t.credit_mask].tolist() == [-0.5, -0.25, -0.125, -0.75, -1.5]
    assert [segment.start for segment in t.segments] == [0, 17] and t.reward is None
    assert [(c.name, c.result) for c in t.calls] == [("price", "5 coins")]
    said = " ".join(conversion.notes)
    assert "the format has no reward" in said and "loss mask 0 are not kept" in said


def test_verifiers_there_and_back_gives_the_same_training_samples(tmp_path: Path) -> None:
    write_run(read_foreign(FOREIGN / "verifiers.jsonl"), tmp_path / "run")
    write_foreign(open_run(tmp_path / "run").episodes(), tmp_path / "out.jsonl", "verifiers")
    before = [json.loads(line) for line in (FOREIGN / "verifiers.jsonl").read_text().splitlines()]
    after = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for old, new in zip(before, after, strict=True):
        (trace,), (again,) = old["traces"], new["traces"]
        assert branches(trace["nodes"]) == branches(again["nodes"])
        assert (trace["id"], trace["stop_condition"]) == (again["id"], again["stop_condition"]) or not trace["ok"]
        assert sum(r["score"] * r["weight"] for r in trace["rewards"].values()) == sum(
            r["score"] * r["weight"] for r in again["rewards"].values()
        )
        assert old["group"] == new["group"] and old["run"]["work"] == new["run"]["work"] and old["env"] == new["env"]


def test_openenv_there_and_back_gives_the_same_trained_calls(tmp_path: Path) -> None:
    write_run(read_foreign(FOREIGN / "openenv.json"), tmp_path / "run")
    write_foreign(open_run(tmp_path / "run").episodes(), tmp_path / "out.jsonl", "openenv")
    before = json.loads((FOREIGN / "openenv.json").read_text())["turns"]
    after = json.loads((tmp_path / "out.jsonl").read_text())["turns"]
    for old, new in zip([turn for turn in before if any(turn["loss_mask"])], after, strict=True):
        trained = sum(old["loss_mask"])
        assert new["prompt_token_ids"] == old["prompt_token_ids"]
        assert new["completion_token_ids"] == old["completion_token_ids"][:trained]
        assert new["per_token_logps"] == old["per_token_logps"][:trained]
        assert sum(new["loss_mask"]) == trained and not any(new["loss_mask"][: len(new["prompt_token_ids"])])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    return open_run(write_shop_run(tmp_path_factory.mktemp("runs") / "shop"))


@pytest.mark.parametrize("to", ["verifiers", "openenv"])
def test_our_episodes_come_back_whole(reader: TraceReader, tmp_path: Path, to: str) -> None:
    given = list(reader.episodes())
    entropy_T = np.where(given[0].trajectory.credit_mask, np.float32(0.1), np.nan).astype(np.float32)
    given[0] = replace(given[0], signals={"entropy": entropy_T})
    lost = write_foreign(given, tmp_path / "out.jsonl", to)
    assert any("the sum of the advantage's terms is kept" in note for note in lost)
    write_run(read_foreign(tmp_path / "out.jsonl"), tmp_path / "back")
    for ours, theirs in zip(given, open_run(tmp_path / "back").episodes(), strict=True):
        assert_trained_alike(ours, theirs)
        a, b = ours.trajectory, theirs.trajectory
        for name in ("spans", "calls", "charges", "segments", "reward", "stop", "seeds", "state_keys", "seconds",
                     "policy_versions", "task_id", "group", "episode_id", "error"):  # fmt: skip
            assert getattr(a, name) == getattr(b, name), name
        assert ours.token_bytes == theirs.token_bytes and (ours.step, ours.split) == (theirs.step, theirs.split)
        assert ours.signals.keys() == theirs.signals.keys()
        assert all(np.array_equal(ours.signals[n], theirs.signals[n], equal_nan=True) for n in ours.signals)


@pytest.mark.parametrize("to", ["verifiers", "openenv"])
def test_what_another_tool_changed_in_the_file_counts(reader: TraceReader, tmp_path: Path, to: str) -> None:
    write_foreign(reader.episodes(where="id=ep-0"), tmp_path / "out.jsonl", to)
    line = json.loads((tmp_path / "out.jsonl").read_text())
    if to == "verifiers":
        node = next(node for node in line["traces"][0]["nodes"] if node["sampled"])
        node["advantages"] = [9.0] * len(node["logprobs"])
        line["traces"][0]["nodes"][0]["token_ids"][0] += 1
    else:
        line["turns"][0]["metadata"]["advantages"] = [9.0] * len(line["turns"][0]["completion_token_ids"])
    (tmp_path / "out.jsonl").write_text(json.dumps(line))
    (episode,) = read_foreign(tmp_path / "out.jsonl").episodes
    assert episode.credit is not None
    first = episode.trajectory.decisions[0]
    assert set(episode.credit.advantage.total[first.start : first.end]) == {9.0}


def test_messages_have_their_roles_and_calls(reader: TraceReader, tmp_path: Path) -> None:
    write_foreign(reader.episodes(where="id=ep-0"), tmp_path / "out.jsonl", "verifiers")
    nodes = json.loads((tmp_path / "out.jsonl").read_text())["traces"][0]["nodes"]
    roles = [node["message"]["role"] for node in nodes]
    assert roles[:4] == ["system", "user", "assistant", "tool"] and nodes[0]["parent"] is None
    call = nodes[2]["message"]["tool_calls"][0]
    assert call["name"] == "price" and json.loads(call["arguments"]) == {"item": "oak"}
    assert nodes[3]["message"]["tool_call_id"] == call["id"]
    assert nodes[3]["message"]["content"] == '{"item": "oak", "price": 5}'
    assert all(len(n["mask"]) == len(n["token_ids"]) == len(n["is_content"]) for n in nodes)


def test_the_packages_themselves_read_what_is_written(reader: TraceReader, tmp_path: Path) -> None:
    trace_store = pytest.importorskip("verifiers.v1.utils.trace_store", reason="verifiers is not installed")
    trace = pytest.importorskip("verifiers.v1.trace")
    write_foreign(reader.episodes(), tmp_path / "traces.jsonl", "verifiers")
    for ours, theirs in zip(reader.episodes(), trace_store.read_episodes(tmp_path, trace.WireTrace), strict=True):
        (branch,) = theirs.traces[0].branches
        assert branch.token_ids == ours.trajectory.token_ids.tolist()
        assert branch.sampled_mask == ours.trajectory.credit_mask.tolist()
        assert ours.credit is not None and branch.advantages == ours.credit.advantage.total.tolist()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "is of no known format: expected 'traces' or 'nodes' (verifiers) or 'turns' (OpenEnv), found []"),
        ('{"turns": []}\n{"turns"', "line 2 of"),
        ('{"schema_version": 2, "turns": []}', "has schema_version 2, but version 1 is read here"),
        ('{"version": 9, "id": "a", "nodes": []}', "has trace version 9, but version 1 is read here"),
        ('{"turns": [{"node_id": "a", "prompt_token_ids": [1], "completion_token_ids": [2], "per_token_logps": [], '
         '"loss_mask": [0, 1]}]}', "call a has 1 + 1 ids, 0 log-probabilities and a mask of 2"),
        ('{"id": "a", "task": {}, "nodes": [{"message": {"role": "user"}, "token_ids": [1], "mask": [true], '
         '"logprobs": []}]}', "node 0 has 1 ids, a mask of 1, 1 sampled and 0 log-probabilities"),
        ('{"id": "a", "nodes": [{"parent": 1, "message": {"role": "user"}, "token_ids": [1], "mask": [false], '
         '"logprobs": []}, {"parent": 0, "message": {"role": "user"}, "token_ids": [1], "mask": [false], '
         '"logprobs": []}]}', "no"),
    ],
)  # fmt: skip
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(TraceError, match=re.escape(told)):
        write_run(read_foreign(tmp_path / "bad.jsonl"), tmp_path / "run")


def test_a_tokenizer_gives_every_token_its_own_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(100)}, unk_token="w0"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    source = str(FOREIGN / "verifiers.jsonl")
    assert main(["convert", source, str(tmp_path / "run"), "--tokenizer", str(tmp_path)]) == 0
    assert "wrote 2 episodes" in capsys.readouterr().out
    assert b"".join(open_run(tmp_path / "run").episode("linear").token_bytes).startswith(b"w1w11w12w2")


def test_the_command_converts_both_ways_and_overwrites_nothing(
    reader: TraceReader, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(reader.folder.parent), str(tmp_path / "out.jsonl")
    assert main(["convert", run, out, "--to", "verifiers", "--where", "reward>0.5"]) == 0
    assert main(["convert", out, str(tmp_path / "back")]) == 0
    said = capsys.readouterr().out
    assert "note: of credit and advantage the sum of the advantage's terms is kept, not the terms (3)" in said
    assert [row.episode_id for row in open_run(tmp_path / "back").index()] == ["ep-0", "ep-1", "ep-2"]
    assert main(["convert", run, out, "--to", "verifiers"]) == 1
    assert main(["convert", out, str(tmp_path / "back")]) == 1
    assert main(["convert", run, out, "--to", "trl"]) == 2
    assert capsys.readouterr().err.count("nothing was overwritten") == 2


def test_separators_of_lines_inside_a_text_do_not_cut_it(tmp_path: Path) -> None:
    recorder = Recorder("e", "t", "a", "g")
    recorder.prompt([1])
    recorder.decision([2], [-0.5])
    t = recorder.finish(1.0, StopReason.DONE)
    ledger = Ledger(2, {"outcome": np.array([0.0, 1.0])})
    TraceWriter(tmp_path / "traces").write(
        0, [Group((t,))], [[Credit(ledger, ledger)]], lambda ids: ["\u2028".encode() for _ in ids]
    )
    write_foreign(open_run(tmp_path).episodes(), tmp_path / "out.jsonl", "verifiers")
    raw = (tmp_path / "out.jsonl").read_text()
    (tmp_path / "two.jsonl").write_text((raw + raw).replace("\\u2028", "\u2028"))
    assert len(read_foreign(tmp_path / "two.jsonl").episodes) == 2
