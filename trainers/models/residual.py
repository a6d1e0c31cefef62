"""The depths that residual networks of images have (He et al. 2016)."""

from trainers.models.fields import Field

# Table 1 there: four stages of blocks of two convolutions.
_OF_TABLE = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
EXPECTED = "18, 34 or 6 n + 2, as 8, 14 or 20"


def stages(depth: int) -> tuple[int, ...]:
    """Returns the number of blocks in each stage of a network.

    A network has an entry convolution, two convolutions a block, and a dense layer. 6 n + 2 are
    the networks of three stages for small images, section 4.2 of the paper.

    Args:
        depth: the number of these layers.

    Raises:
        ValueError: no network has so many.
    """
    if not is_depth(depth):
        raise ValueError(f"`depth` must be {EXPECTED}. Received: depth={depth!r}")
    return _OF_TABLE.get(depth, ((depth - 2) // 6,) * 3)


def is_depth(value: object) -> bool:
    """Returns whether a value is the depth of a network."""
    if type(value) is not int:
        return False
    return value in _OF_TABLE or (value >= 8 and value % 6 == 2)


DEPTH = Field(EXPECTED, is_depth)
