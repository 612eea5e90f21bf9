"""Backbones: what stands around the residual stream and the value path, one module per kind.

A backbone is a plain object that makes a model's modules and knows its constants;
``respath.model.backbones.llama.Llama`` is the base and says what the others may do differently. Parameters
have the same names in all of them where they exist.
"""

from __future__ import annotations

from respath.model.backbones.gpt2 import GPT2
from respath.model.backbones.llama import Llama
from respath.model.backbones.nanochat import Nanochat
from respath.spec.model import ModelSpec

BACKBONES: dict[str, type[Llama]] = {"llama": Llama, "gpt2": GPT2, "nanochat": Nanochat}


def backbone(spec: ModelSpec) -> Llama:
    """The backbone of a spec."""
    return BACKBONES[spec.backbone](spec)
