"""The group `model` of every task; `trainers.tasks.unread` knows what reads each of its fields."""

import dataclasses
from typing import Annotated

from trainers.models import blocks, heads, recurrent, trellis
from trainers.models.fields import (
    COUNT,
    CYCLE,
    DEPTHS,
    FINITE,
    FROM_ZERO,
    RATE,
    TOKEN,
    one_of,
    or_none,
)
from trainers.models.heads import HEADS
from trainers.models.layers import LAYERS


@dataclasses.dataclass(frozen=True)
class Range:
    """The least and the greatest value of a uniform distribution."""

    minval: Annotated[float, FINITE] = -0.1
    maxval: Annotated[float, FINITE] = 0.1


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Initial word vectors."""

    class_name: Annotated[str, one_of("RandomUniform")] = "RandomUniform"
    config: Range = Range()


@dataclasses.dataclass(frozen=True)
class Stem:
    """Strided causal convolutions before the layer, with as many values in each field; (): none."""

    filters: Annotated[tuple[int, ...], DEPTHS] = ()
    kernel_size: Annotated[tuple[int, ...], DEPTHS] = ()
    strides: Annotated[tuple[int, ...], DEPTHS] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(trellis.Fields, recurrent.Fields, blocks.Fields, heads.Fields):
    """The group, with the fields that several kinds have.

    Attributes:
        depth: the number of levels of a trellis network, or of blocks of "tcn".
        layers: the number of recurrent layers, or of blocks of "transformer".
        output_units: None: the size of a word vector, or all units for tasks without words.
        embedding_units: the size of a word vector.
        dtype: Keras's dtype policy of all layers. With "mixed_bfloat16" they compute in bfloat16;
            their variables and the loss are float32.
    """

    units: Annotated[int, COUNT]
    dtype: Annotated[str, one_of("float32", "mixed_bfloat16")] = "float32"
    layer: Annotated[str, one_of(*LAYERS)] = "trellis"
    head: Annotated[str, one_of(*HEADS)] = "tied"
    depth: Annotated[int, COUNT] = 1
    layers: Annotated[int, COUNT] = 1
    kernel_size: Annotated[int, COUNT] = 2
    dilation_rate: Annotated[tuple[int, ...], CYCLE] = (1,)
    output_units: Annotated[int | None, or_none(COUNT)] = None
    embedding_units: Annotated[int | None, or_none(COUNT)] = None
    initial_deviation: Annotated[float, FROM_ZERO] = 0.0
    embedding_dropout: Annotated[float, RATE] = 0.0
    dropout: Annotated[float, RATE] = 0.0
    recurrent_dropout: Annotated[float, RATE] = 0.0
    weight_dropout: Annotated[float, RATE] = 0.0
    output_dropout: Annotated[float, RATE] = 0.0
    activation_weight: Annotated[float, FROM_ZERO] = 0.0
    temporal_weight: Annotated[float, FROM_ZERO] = 0.0
    untrained_input_id: Annotated[int | None, or_none(TOKEN)] = None
    embeddings_initializer: Initializer = Initializer()
    stem: Stem = Stem()
