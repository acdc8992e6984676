"""One table of filters, for all that read them: what each keeps of `sample_episodes.write_two_steps`.

Both steps hold the same six rollouts: "03" are ep-0 and ep-3 of each.
"""

BOTH, NONE = "012345", ""
EXAMPLES = {
    "": BOTH,
    "reward<0.6": "34",
    "reward < 0.6": "34",
    "reward<=0.6": "234",
    "reward>0.6": "01",
    "reward>=0.6 turns>5": "01",
    "reward=0.6": "2",
    "reward==0.6": "2",
    "reward:0.6": "2",
    "reward!=1": "234",  # unscored is not "another reward"
    "not reward=1": "2345",
    "!reward=1": "2345",
    "reward:none": "5",
    "reward != unscored": "01234",
    "unscored": "5",
    "!unscored and ! tool:stock": "23",
    "not unscored not tool:stock": "23",
    "reward<inf": "01234",
    "reward>-inf reward<+1e-1": "3",
    "turns>8": NONE,
    "turns>=8": "0",
    "turns=.4e1": "34",
    "tokens>=3_19 tokens<400.": "234",
    "charges>0": "03",
    "charges:0": "1245",
    "charged>0.2": "3",
    "charged=0.2": "0",
    "not charged=0": "03",
    "credit<-0.03": "03",  # ep-4 has just that
    "credit<-0.04": "3",
    "credit>0.005": "01",
    "!credit>0.005": "2345",
    "error:INVALID": "03",
    "error=invalid_arguments": "03",
    "error=invalid": NONE,
    "error!=invalid_arguments": "1245",
    "!error:invalid": "1245",
    "error:timeout": NONE,
    "tool:sto": "014",
    "tool=stock": "014",
    "tool=Stock": NONE,
    "tool!=order": "5",
    "stop:infra": "5",
    "stop=DONE": NONE,
    "stop!=done": "5",
    "split:train": BOTH,
    "split!=train": NONE,
    "group:/S4 id:3": {4: "3"},
    'group:"boards-40/s12" id=ep-1': {12: "1"},
    'task:"40"': BOTH,
    'task="boards 40"': NONE,
    "env:shop and task=boards-40 and id:EP-2": "2",
    "step=4": {4: BOTH},
    "step>4 step<=12 reward=1": {12: "01"},
    "id!=ep-0 reward>0.9": "1",
}
"""Filter -> rollouts of both steps, or of each step."""

FROM_EPISODES = {
    "credit=0": "0125",
    "credit!=0 reward=0": "3",
    "advantage>0.2": "01",
    "not advantage>0.2 advantage<-0.3": "3",
}
"""Filters that no index answers."""

REFUSED = {
    "reward<high": "expected a number after 'reward<', found 'high'",
    "reward<0x1": "expected a number after 'reward<', found '0x1'",
    "reward<nan": "expected a number after 'reward<', found 'nan'",
    "turns>": "expected a number after 'turns>', found its end",
    "tool: ": "expected a text after 'tool:', found its end",
    "tool>python": "expected '=', '!=' or ':' after 'tool', which is a text, found '>",
    "reward<none": "an unscored episode has no place in the order, found 'none'",
    "reward<0 or turns>8": "expected a field: conditions are joined by 'and' only",
}
"""Filter -> what every reader of it says."""


def kept(expected: str | dict[int, str]) -> list[tuple[int, str]]:
    """Return the steps and ids of an example, in the order written."""
    steps = expected if isinstance(expected, dict) else dict.fromkeys((4, 12), expected)
    return [(step, f"ep-{name}") for step, names in steps.items() for name in names]
