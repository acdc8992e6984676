"""The smallest environment: one task, one tool.

accredit check examples/prices.py:Prices
accredit play examples/prices.py:Prices
python examples/prices.py
"""

from accredit.envs import Task, ToolEnv, make, register, tool


class Prices(ToolEnv):
    """Asks for a price that must be looked up."""

    def tasks(self, rng):
        """Return all tasks."""
        return [Task("What does a candle cost?", answer=2.0)]

    @tool
    def price(self, item: str) -> float:
        """Unit price of an item, in euros."""
        return {"candle": 2.0}[item]

    def reward(self) -> float:
        """Full marks for an answer that names the price."""
        return float(str(self.task.answer) in self.answer)


register("Prices-v0", Prices)


def main() -> None:
    """Play one episode as a model would, with a failed call in it."""
    env = make("Prices-v0")
    messages, _ = env.reset(seed=0)
    print(messages[-1].content)
    for text in (
        '<tool_call>{"name": "price", "arguments": {"item": "candles"}}</tool_call>',
        '<tool_call>{"name": "price", "arguments": {"item": "candle"}}</tool_call>',
        "It costs 2.0 euros.",
    ):
        messages, reward, terminated, _, _ = env.step(text)
        print(text, "->", messages[-1].content if messages else f"reward {reward}, ended: {terminated}")


if __name__ == "__main__":
    main()
