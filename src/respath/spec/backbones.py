"""Backbones: what stands around the residual stream and the value path, as far as counts and checks go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec

#: Channels of the embedding that smear's gate reads (nanochat).
SMEAR_CHANNELS = 24


class BackboneSpec:
    """The llama backbone; the base of the others, which say what differs."""

    bias = 0
    """1: a bias beside every weight but the head's."""
    mlp_matrices = 3
    norm_vectors = 1
    """Vectors of ``width`` numbers that each norm has: a gain, a bias."""
    learns_positions = False
    has_smear = False

    def check(self, model: ModelSpec) -> None:
        """Raise ValueError for fields of another backbone."""
        name = model.backbone
        if not self.learns_positions and (model.max_positions is not None or model.dropout):
            raise ValueError(f"max_positions and dropout belong to the gpt2 backbone, not to {name}")
        if not self.has_smear and model.x0_scalars:
            raise ValueError(f"x0_scalars belong to the nanochat backbone, not to {name}")
        if not self.has_smear and not model.smear:
            raise ValueError(f"smear belongs to the nanochat backbone; {name} has none to leave out")

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """What it has beside the matrices and gains of every backbone, by group."""
        return {}


class Gpt2Spec(BackboneSpec):
    """Learned positions, biases, LayerNorm with a bias, an MLP without a gate."""

    bias, mlp_matrices, norm_vectors, learns_positions = 1, 2, 2, True

    def check(self, model: ModelSpec) -> None:
        """Positions are learned, so their number is given."""
        super().check(model)
        if model.max_positions is None:
            raise ValueError("the gpt2 backbone learns positions: give max_positions")

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Positions and the norms' biases."""
        return {
            "norm_biases": (2 * model.layers + 1) * model.width,
            "positions": (model.max_positions or 0) * model.width,
        }


class NanochatSpec(BackboneSpec):
    """Norms without a gain, smear, an MLP without a gate."""

    mlp_matrices, norm_vectors, has_smear = 2, 0, True

    def check(self, model: ModelSpec) -> None:
        """Smear reads channels that are there; the scalars rescale the plain residual."""
        super().check(model)
        if model.x0_scalars and not model.stream.plain:
            raise ValueError(
                f"x0_scalars rescale the pre_ln residual; they exclude the stream {model.stream.kind}"
            )
        if model.smear and model.width < SMEAR_CHANNELS:
            raise ValueError(
                f"smear's gate reads {SMEAR_CHANNELS} channels and the model has {model.width}; set smear: false"
            )

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Smear, and the scalars of the residual."""
        return {
            "coefficients": 2 * model.layers if model.x0_scalars else 0,
            "smear": SMEAR_CHANNELS + 1 if model.smear else 0,
        }


BACKBONES: dict[str, BackboneSpec] = {
    "llama": BackboneSpec(),
    "gpt2": Gpt2Spec(),
    "nanochat": NanochatSpec(),
}
