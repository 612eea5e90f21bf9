"""Compute in a low precision with fp32 master weights, without autocast."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from respath.model.build import WIDE_ROLES, parameter_roles


class LowPrecision(nn.Module):
    """A module computed with copies of its weights in ``dtype``, made once per call; gradients reach the masters.

    Parameters of the roles ``wide`` stay as they are: rounding lambda to bf16 would hide its small steps.
    Everything downstream of the embedding runs in ``dtype``; softmax and loss in fp32. Compared with autocast
    this casts each weight once and no activation.
    """

    def __init__(
        self, module: nn.Module, dtype: torch.dtype = torch.bfloat16, wide: Iterable[str] = WIDE_ROLES
    ):
        super().__init__()
        self.module, self.dtype = module, dtype
        self.kept = frozenset(name for name, role in parameter_roles(module).items() if role in wide)

    def copies(self) -> dict[str, Tensor]:
        """Weights in the compute dtype, by name."""
        return {
            name: parameter if name in self.kept else parameter.to(self.dtype)
            for name, parameter in self.module.named_parameters()
        }

    def forward(self, *arguments, **keywords):
        """What the module returns."""
        return functional_call(self.module, self.copies(), arguments, keywords)
