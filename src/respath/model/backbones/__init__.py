"""Backbones: what stands around the residual stream and the value path, one module per kind.

A backbone is a plain object that makes a model's modules and knows its constants;
``respath.model.backbones.llama.Llama`` is the base and says what the others may do differently. Parameters
have the same names in all of them where they exist.
"""

from __future__ import annotations

import importlib

from respath.model.backbones.llama import Llama
from respath.spec.model import ModelSpec

#: Class of each backbone, in the module of its name.
BACKBONES = {"llama": "Llama", "gpt2": "GPT2", "nanochat": "Nanochat"}


def backbone(spec: ModelSpec) -> Llama:
    """The backbone of a spec; its module is imported when it is asked for."""
    module = importlib.import_module(f"respath.model.backbones.{spec.backbone}")
    return getattr(module, BACKBONES[spec.backbone])(spec)
