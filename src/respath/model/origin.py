"""Where a token's values can come from before the first layer: its id and its embedding."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Origin(NamedTuple):
    """What one call of the model hands to the value path before the first layer.

    ``ids`` (batch, time): this chunk's token ids. ``history`` (batch, keys): the ids of all tokens that
    attention can see, column by column as its keys; the chunk's own ids when nothing is cached. ``near``: the
    same for layers with a short window. ``x0`` (batch, time, width): the normed embedding, after smear where
    the backbone smears; None where no layer projects it.
    """

    ids: Tensor
    history: Tensor
    near: Tensor
    x0: Tensor | None
