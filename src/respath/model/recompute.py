"""Calls that are made again in the backward pass instead of keeping their activations, on the weights of the forward pass."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


class _Carrier(nn.Module):
    """Calls a function while a module's weights are replaced."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, function, *arguments):
        return function(*arguments)


def recomputed(module: nn.Module, function, *arguments):
    """``function(*arguments)``, which uses ``module``'s weights; only its arguments are kept.

    Where the weights are not the module's own (low-precision copies, put in place for one forward pass), they are gone by the
    time of the backward pass: the call then takes along what it sees now.
    """
    # A graph that is being compiled takes in whatever weights it sees, and would break at the call that replaces them.
    if torch.compiler.is_compiling():
        return checkpoint(function, *arguments, use_reentrant=False)
    weights = {f"module.{name}": weight for name, weight in module.named_parameters()}
    if all(isinstance(weight, nn.Parameter) for weight in weights.values()):
        return checkpoint(function, *arguments, use_reentrant=False)
    carrier = _Carrier(module)

    def again(*given):
        return functional_call(carrier, weights, (function, *given))

    return checkpoint(again, *arguments, use_reentrant=False)
