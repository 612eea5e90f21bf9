"""PyTorch's fused AdamW without the import of PyTorch's compiler.

``torch.optim`` wraps what an optimizer does, so that optimizers could be compiled. The wrappers import ``torch._dynamo`` when they
are first called: about two seconds of CPU time, a good part of what a short training takes. Optimizers are not compiled here, so
the functions under the wrappers are called. The numbers are PyTorch's, bit for bit.
"""

from __future__ import annotations

import inspect

import torch

# Taken before there is any optimizer: making one wraps ``step`` once more.
_STEP = inspect.unwrap(torch.optim.AdamW.step)


class Uncompiled:
    """Goes before an optimizer among the bases of a class that is not used inside compiled functions."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(Uncompiled, torch.optim.AdamW):
    """``torch.optim.AdamW``."""

    @torch.no_grad()
    def step(self, closure=None):
        """One update of all parameters that have a gradient."""
        return _STEP(self, closure)
