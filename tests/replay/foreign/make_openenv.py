"""Writes openenv.json with the package itself: pip install openenv==0.10.0, then python make_openenv.py.

One `TrainingTrace` of three calls: the second extends the first's exact prefix, with a partial mask; the third starts
anew (the harness rewrote the history), fully masked. It is validated by the package as it is made.
"""
# pyright: reportMissingImports=false

from pathlib import Path

from openenv.core.harness.training import TrainingTrace, TrainingTurn

FIRST = [1, 13, 14, 2, 1, 3]


def turn(name, prompt, sampled, logps, mask, said, messages):
    return TrainingTurn(
        node_id=name,
        prompt_token_ids=prompt,
        completion_token_ids=sampled,
        per_token_logps=logps,
        loss_mask=[0] * len(prompt) + mask,
        request={"messages": messages, "tools": []},
        response={"choices": [{"message": said, "finish_reason": "stop"}]},
        metadata={"index": int(name[1:]), "model": "small"},
    )


def trace():
    call = {"id": "c1", "type": "function", "function": {"name": "price", "arguments": '{"item": "oak"}'}}
    asked = {"role": "assistant", "content": "I ask.", "tool_calls": [call]}
    user = {"role": "user", "content": "Buy oak."}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "5 coins"}
    return TrainingTrace(
        turns=[
            turn("n0", FIRST, [20, 21, 2], [-0.5, -0.25, -0.125], [1, 1, 1], asked, [user]),
            turn(
                "n1",
                [*FIRST, 20, 21, 2, 1, 30, 2, 1, 3],
                [40, 41, 2],
                [-0.75, -1.5, -0.0625],
                [1, 1, 0],
                {"role": "assistant", "content": "Bought."},
                [user, asked, answer],
            ),
            turn("n2", [1, 70, 2, 1, 3], [80, 2], [-0.5, -0.5], [0, 0], {"role": "assistant", "content": "Done."}, []),
        ]
    )


if __name__ == "__main__":
    (Path(__file__).parent / "openenv.json").write_text(trace().model_dump_json() + "\n")
