"""Word lists of the catalogue: what a small model has to copy from a result into its next call.

Every word is a common lower-case English word. The lists share no word, and no word is part of another one, so that a
tokenizer may hold each of them as a single token without cutting other text apart. Nothing here is random.
"""

__all__ = ["ITEMS", "NAMES", "WORDS"]

WORDS: tuple[str, ...] = tuple(
    """
    acorn atlas beacon blossom canyon cliff copper crane crystal dawn dolphin eagle fern flame galaxy granite
    hawk hickory jasmine kernel laurel linden mango meadow moss oasis opal otter pebble pine quartz raven
    robin salmon spruce sunset tiger valley willow zenith
    """.split()
)
"""Stock numbers and coupon codes."""

ITEMS: tuple[str, ...] = tuple(
    """
    apron basket bench bottle brush candle chair cup desk fork guitar helmet kettle ladder mirror needle
    pencil plate rope shelf sofa table towel wallet
    """.split()
)
"""Things a shop sells."""

NAMES: tuple[str, ...] = tuple(
    """
    adam carla diana fiona henry jacob laura nadia paula sarah tobias yusuf
    """.split()
)
"""People who buy them."""
