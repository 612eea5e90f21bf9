"""Block attention residuals: each sub-layer reads a softmax mix of the embedding and of block sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


def depth_sources(layers: int, length: int) -> int:
    """Sources that all readers of attention residuals mix: 1 + ceil(k / length) for sub-layer k, and all for the head."""
    return sum(1 + -(-k // length) for k in range(1, 2 * layers + 1))


def depth_sources_as_printed(layers: int, length: int) -> int:
    """DepthBench's count of the same, 2 + floor(k / length): one too many wherever a block has just been finished."""
    sublayers = 2 * layers
    return sum(2 + k // length for k in range(1, sublayers)) + 1 + -(-sublayers // length)


def attention_parameters(model: ModelSpec) -> dict[str, int]:
    """One query and one key norm for every sub-layer but the first, and for the head."""
    each = 2 * model.layers * model.width
    return {"norms": each, "routing": each}


def attention_flops(model: ModelSpec, context: int, length: int) -> dict[str, int]:
    """Scores and mixes, one of each per reader and source."""
    each = 2 * context * model.width * depth_sources(model.layers, length)
    return {"depth_scores": each, "depth_mix": each}


class BlockAttnResSpec(StreamSpec):
    """As full_attnres, over sums of ``length`` sub-layers each."""

    kind: Literal["block_attnres"]
    length: int = Field(ge=1)
    """Sub-layers per block; variants may write ``blocks: 8`` instead and get 2L/8."""

    @classmethod
    def resolve(cls, fields: Mapping[str, Any], layers: int) -> Mapping[str, Any]:
        """A number of blocks becomes their length."""
        blocks = fields.get("blocks")
        if not isinstance(blocks, int):
            return fields
        if blocks < 1 or 2 * layers % blocks:
            raise ValueError(f"{2 * layers} sub-layers do not divide into {blocks} blocks")
        rest = {name: value for name, value in fields.items() if name != "blocks"}
        return {**rest, "length": 2 * layers // blocks}

    def check(self, model: ModelSpec) -> None:
        """Blocks that fit."""
        if self.length > 2 * model.layers:
            raise ValueError(
                f"a block of {self.length} sub-layers is longer than the model's {2 * model.layers}"
            )

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Queries and key norms."""
        return attention_parameters(model)

    def flops(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """Scores and mixes of the sources that the code reads."""
        return attention_flops(model, context, self.length)

    def as_printed(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """Scores and mixes by the paper's number of sources."""
        sources = depth_sources_as_printed(model.layers, self.length)
        return {"depth_by_the_papers_count": 4 * context * model.width * sources}
