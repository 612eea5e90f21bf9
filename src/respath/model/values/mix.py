"""Mixed values: V'_n = lambda_{n,1} V_source + lambda_{n,2} V_n on the target layers.

V_source is the source layer's own projection, never mixed itself, never detached; ``previous`` takes V_{n-1}
likewise, or V'_{n-1} with ``cache: post_mix``: then earlier values reach far layers diluted.
Identity-ResFormer has constant 1/2 and 1/2, Constant-ResFormer lambda and 1, Learnable-ResFormer one pair of
free scalars per layer. ResFormer-Plus writes lambda_{n,1} = scale * softmax(logits)_n with one shared scale:

* ``softmax_all``: over all N layers; layer 1 is not mixed, its logit only takes mass.
* ``softmax_targets``: over the target layers.

Parameters (learnable only): free: ``source`` and ``own``, (targets,). Plus: ``logits`` (N or targets,),
``scale`` (), ``own``.
Initialisation: the spec's two numbers; logits 0, and scale such that lambda_{n,1} starts at the spec's
number. The softmax is part of every forward pass, so that learning keeps the coefficients' sum equal to the
scale. ``rescale`` multiplies the mix, per token over all heads or per token and head, so that it has the norm
of V_n (Table 11).

Source: ResFormer (arXiv 2410.17897), Eq. 5 and Section 3.2; layer 1 unmixed as in the authors' code. The
authors published no code of Plus: this reading is a recorded decision.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.combine import combine, scalars
from respath.model.origin import Origin
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.model import ModelSpec
from respath.spec.values.mix import MixSpec


class _WithNormOf(torch.autograd.Function):
    """``with_norm_of``; its own backward reads activations less often than what autograd derives (docs/log.md)."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, size: int) -> Tensor:
        parts, model = x.unflatten(-1, (-1, size)), y.unflatten(-1, (-1, size))
        dtype = torch.promote_types(x.dtype, torch.float32)
        wanted = torch.linalg.vector_norm(model, dim=-1, keepdim=True, dtype=dtype)
        smallest = torch.finfo(x.dtype).tiny ** 0.5
        norm = torch.linalg.vector_norm(parts, dim=-1, keepdim=True, dtype=dtype).clamp_min(smallest)
        ctx.save_for_backward(x, y, norm, wanted)
        return (parts * (wanted / norm).to(x.dtype)).flatten(-2)

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, y, norm, wanted = ctx.saved_tensors
        parts, model, grad = (t.unflatten(-1, (norm.shape[-2], -1)) for t in (x, y, grad))
        ratio = wanted / norm
        along = (grad * parts).sum(-1, keepdim=True, dtype=norm.dtype) / norm
        to_x = (grad * ratio.to(grad.dtype)).addcmul_(parts, (along * ratio / norm).to(grad.dtype), value=-1)
        to_y = model * (along / wanted).nan_to_num_(0.0, 0.0, 0.0).to(grad.dtype)
        return to_x.flatten(-2), to_y.flatten(-2), None


def with_norm_of(x: Tensor, y: Tensor, size: int) -> Tensor:
    """x |y| / |x|, part by part of ``size`` numbers along the last dimension. x, y (..., width) -> (..., width).

    Norms are fp32 at least. A part of zeros stays one, and no gradient passes through its norm.
    """
    return _WithNormOf.apply(x, y, size)


class MixedValues(ValuePath):
    """A source layer's value and the layer's own, weighted."""

    document = MixSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.origin = None if spec.values.source == "previous" else spec.values.source - 1
        self.keeps_mixed = spec.values.cache == "post_mix"
        self.rescale, self.head_dim = spec.values.rescale, spec.head_dim
        self.settings = coefficients = spec.values.coefficients
        if not coefficients.learnable:
            return
        self.own = nn.Parameter(torch.empty(len(self.targets)))
        if coefficients.parameterisation == "free":
            self.source = nn.Parameter(torch.empty(len(self.targets)))
        else:
            shares = spec.layers if coefficients.parameterisation == "softmax_all" else len(self.targets)
            self.logits = nn.Parameter(torch.empty(shares))
            self.scale = nn.Parameter(
                torch.empty(1)
            )  # DeepSpeed's ZeRO refuses a parameter without a dimension

    def weights(self) -> tuple[tuple[Tensor | float, ...], tuple[Tensor | float, ...]]:
        """lambda_{n,1} and lambda_{n,2} of each target layer."""
        if not self.settings.learnable:
            count = len(self.targets)
            return (self.settings.source,) * count, (self.settings.own,) * count
        if self.settings.parameterisation == "free":
            source = self.source
        else:
            source = self.scale * torch.softmax(self.logits, dim=0)
            if self.settings.parameterisation == "softmax_all":
                source = source[list(self.targets)]
        return scalars(source), scalars(self.own)

    def rescaled(self, value: Tensor, own: Tensor) -> Tensor:
        """The mix with the norm of the own value, if the spec asks for it."""
        if self.rescale == "none":
            return value
        return with_norm_of(value, own, self.head_dim if self.rescale == "token_head" else own.shape[-1])

    def open(self, origin: Origin) -> tuple:
        """Carried: the coefficients, worked out once per pass, and the source's value once it is known."""
        return self.weights(), None

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The weighted sum on target layers, the own value elsewhere."""
        weights, source = carried
        value = own
        if n in self.targets:
            at = self.targets.index(n)
            value = self.rescaled(combine([source, own], [weights[0][at], weights[1][at]]), own)
        if self.origin is None or n == self.origin:
            source = value if self.keeps_mixed else own
        return value, (weights, source)

    def coefficients(self) -> Coefficients:
        """lambda_1 and lambda_2; of Plus what the softmax gives, times the scale."""
        return dict(zip(("source", "own"), self.weights(), strict=True))

    def initial(self, draw) -> dict[str, Tensor]:
        """The spec's numbers."""
        start = {name: torch.zeros(parameter.shape) for name, parameter in self.named_parameters()}
        if start:
            start["own"] += self.settings.own
        if "source" in start:
            start["source"] += self.settings.source
        if "scale" in start:
            start["scale"] += self.settings.source * len(start["logits"])
        return start
