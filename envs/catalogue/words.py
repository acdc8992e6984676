"""Word lists of the catalogue: what a small model has to copy from a result into its next call.

Every word is a common lower-case English word. The lists share no word, and no word is part of another one, so that a
tokenizer may hold each of them as a single token without cutting other text apart. Nothing here is random.
"""

__all__ = ["ITEMS", "NAMES", "WORDS"]

WORDS: tuple[str, ...] = tuple(
    """
    acorn amber anvil atlas badger bamboo basil beacon birch bison blossom bronze cactus canyon cedar cherry cliff
    cloud
    cobalt comet copper coral cosmos crane crater crow crystal cypress daisy dawn delta desert diamond dolphin
    dragon dune eagle ebony falcon fern finch fjord flame flint forest frost galaxy ginger glacier granite grape
    harbor hawk hazel heron hickory ivory island jade jasmine jungle juniper kernel kiwi lagoon laurel lemon lily
    linden
    lotus lunar magnet mango maple marble meadow meteor mint moss nebula nectar oasis ocean olive onyx opal orbit
    orchid
    otter owl panda pebble pepper phoenix pine planet poppy prairie quartz quill rabbit raven reef river robin ruby
    saffron salmon shadow silver sparrow spruce storm summit sunset swan thunder tiger topaz tulip valley velvet
    violet
    walnut willow wolf zebra zenith
    """.split()
)
"""Stock numbers and coupon codes."""

ITEMS: tuple[str, ...] = tuple(
    """
    apron backpack basket belt bench blanket boots bottle tray brush bucket candle carpet chair clock couch cup
    curtain
    desk drum fork glove guitar hammer helmet jacket jug kettle knife ladder lamp mirror mug needle oven pencil piano
    pillow plate radio rope scarf shelf shirt sofa spoon stool table tent towel vase wallet
    """.split()
)
"""Things a shop sells."""

NAMES: tuple[str, ...] = tuple(
    """
    adam alice bella bruno carla clara david diana edgar emma felix fiona george grace henry helen igor irene jacob
    julia kevin laura louis maria marcus nadia nora oscar paula peter quinn rosa sarah simon tessa tobias ursula victor
    wendy
    yusuf
    """.split()
)
"""People who buy them."""
