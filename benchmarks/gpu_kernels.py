"""Every attention kernel against the definition (``eager`` in float64, on the same rounded numbers), forward and backward.

The error of an output or gradient is taken token by token: over batch, heads and head size, the norm of the difference over the
norm of the right answer (at a token where that is small, over its root mean square over all tokens); the worst token counts. So an
error in one block of queries, at a window's edge or in the padding of the last block shows, however long the sequence is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.gpu_part import Part
from benchmarks.variants import SIZES, resized
from respath.model import build_model, kernels
from respath.model.depth_attention import attend_over_depth
from respath.model.kernels import Visibility, attend, band
from respath.model.loss import next_token_loss
from respath.model.values.cross_layer import attend_jointly
from respath.papers.resolve import Resolver, papers_at
from tests.unit.noise import with_noise

#: Largest error by dtype, forward and backward, and why there.
LIMITS = {
    "fp32": {
        "forward": 2e-5,
        "backward": 5e-5,
        "why": "fp32 rounds by 6e-8 and sums of hundreds of terms come to about 1e-6; TF32 rounds by 5e-4. So a kernel that "
        "quietly multiplies in TF32 fails, and one that adds up in another order does not.",
    },
    "bf16": {
        "forward": 2**-7,
        "backward": 2**-6,
        "why": "bf16 rounds by 2^-8 at most, relative. Fused kernels round the softmax's weights and the output, and in the "
        "backward pass the gradients of the weights and of the result as well: two and four roundings at their worst. One key "
        "too many or too few among n moves a token by 1 / sqrt(n), 0.04 in the longest case.",
    },
}
#: Of a whole model: loss (relative) and gradient (norm of the difference over the norm, over all parameters).
MODEL_LIMITS = {
    "forward": 1e-5,
    "backward": 1e-4,
    "why": "in fp32 the roundings of all layers come to 1e-7 of the loss and 1e-6 of the gradient (measured on a CPU); TF32 "
    "rounds by 5e-4 in each product.",
}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
KERNELS = ("eager", "sdpa", "auto", "flash_attn")
#: Models whose attention is something else than one plain call.
MODELS = (
    "resformer/neutreno",
    "resformer/gqa2",
    "resformer/svformer-gqa4",
    "resformer/cross-layer-attention",
    "resformer/attention-residual",
    "resformer/query-residual",
    "resformer/dense",
    "resformer/cla2",
    "bov/bov",
    "bov/v1-last-third",
    "depthbench/moda",
    "depthbench/hc",
)


class Case(NamedTuple):
    """One call of attention. ``keys`` None: as many as queries. ``how``: plain, joint (cross-layer), depth (MoDA), ragged."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    time: int
    keys: int | None = None
    window: int | None = None
    how: str = "plain"

    @property
    def square(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.keys is None

    def visibility(self, batch: int, device: str) -> Visibility:
        """What each query sees, as ``Transformer.place`` says it."""
        if self.square:
            return Visibility(square=True, aligned=True, mask=None, window=self.window)
        if self.how == "ragged":
            # Row b has b tokens fewer before the chunk, and its last keys are nobody's.
            offsets = torch.arange(batch, device=device)[:, None, None]
            seen = self.keys - self.time - offsets + torch.arange(self.time, device=device)[:, None]
            mask = torch.arange(self.keys, device=device) <= seen
            return Visibility(square=False, aligned=False, mask=mask[:, None])
        mask = None if self.time == 1 else band(self.time, self.keys, self.window, device)
        return Visibility(square=False, aligned=True, mask=mask, window=self.window)


def cases(small: bool) -> list[Case]:
    """Head counts, head sizes, windows and caches of the papers' models, shorter than theirs."""
    t, w = (80, 8) if small else (512, 128)
    return [
        Case("82M: 8 heads of 64", 8, 8, 64, t),
        Case("d12: 6 heads of 128", 6, 6, 128, t),
        Case("400M-L16: 16 heads of 76", 16, 16, 76, t),
        Case("fixed-L84: 16 heads of 34", 16, 16, 34, t),
        Case("four queries to a key head", 8, 2, 64, t),
        Case("one key head", 8, 1, 64, t),
        Case("odd length", 8, 8, 64, t - 3),
        # Long enough for blocks of 128 queries or half a window, the last of them short.
        Case("d12: window, by blocks", 6, 6, 128, 200 if small else 1100, window=4 * w),
        Case("window, grouped, odd length", 8, 2, 64, t - 3, window=w - 1),
        Case("decoding: one token", 8, 8, 64, 1, keys=t),
        Case("decoding: one token, grouped", 8, 2, 64, 1, keys=t - 3),
        Case("decoding: one token in a window", 6, 6, 128, 1, keys=w + 1, window=w),
        Case("decoding: a chunk", 8, 8, 64, 64, keys=t),
        Case("decoding: a chunk in a window", 6, 6, 128, 64, keys=w + 64, window=w),
        Case("decoding: rows of unequal length", 8, 2, 64, 16, keys=t, how="ragged"),
        Case("cross-layer attention", 8, 8, 64, t, how="joint"),
        Case("depth keys (MoDA)", 8, 4, 64, t, how="depth"),
    ]


def operands(case: Case, dtype: torch.dtype, device: str, batch: int = 2) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs by name and the output's gradient, the same numbers on every device."""
    generator = torch.Generator().manual_seed(case.time * case.head_dim + case.heads)

    def draw(time: int, heads: int) -> Tensor:
        numbers = torch.randn(batch, time, heads, case.head_dim, generator=generator)
        return numbers.to(device=device, dtype=dtype)

    keys = case.keys or case.time
    names = {"k": keys, "v": keys}
    if case.how == "joint":
        names |= {"k1": keys, "v1": keys}
    if case.how == "depth":
        names |= {f"{kind}{i}": case.time for i in (1, 2, 3) for kind in ("k", "v")}
    given = {"q": draw(case.time, case.heads)} | {
        name: draw(time, case.kv_heads) for name, time in names.items()
    }
    return given, draw(case.time, case.heads)


def computed(case: Case, given: dict[str, Tensor], seen: Visibility, kernel: str) -> Tensor:
    """The case's attention by a kernel."""
    q, k, v = given["q"], given["k"], given["v"]
    if case.how == "joint":
        return attend_jointly(q, ((k, v), (given["k1"], given["v1"])), seen, kernel)
    if case.how == "depth":
        depth = [(given[f"k{i}"], given[f"v{i}"]) for i in (1, 2, 3)]
        return attend_over_depth(q, k, v, depth, seen, kernel)
    return attend(q, k, v, seen, kernel)


def both_ways(
    case: Case, given: dict[str, Tensor], gradient: Tensor, kernel: str, backward: bool
) -> dict[str, Tensor]:
    """Output, and where wanted the gradients of all inputs, by name."""
    seen = case.visibility(gradient.shape[0], str(gradient.device))
    if not backward:
        with torch.no_grad():
            return {"out": computed(case, given, seen, kernel)}
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in given.items()}
    out = computed(case, leaves, seen, kernel)
    return {"out": out.detach()} | dict(
        zip(leaves, torch.autograd.grad(out, list(leaves.values()), gradient), strict=True)
    )


def error_of(got: Tensor, right: Tensor) -> float:
    """The worst token's error, see the module. (batch, time, heads, head_dim) each; infinite where numbers are not finite."""
    difference = (got.double() - right).square().sum((0, 2, 3)).sqrt()
    size = right.square().sum((0, 2, 3)).sqrt()
    floor = size.square().mean().sqrt()
    worst = (difference / torch.maximum(size, floor)).max().item()
    return worst if worst == worst else float("inf")


def refusal(case: Case, kernel: str, dtype: str, cuda: bool) -> str | None:
    """Why a kernel does not compute a case here, None where it has to."""
    if kernel == "flash_attn":
        if kernels.flash_attn_function() is None:
            return "the package flash-attn is not installed"
        if not cuda:
            return "needs a GPU"
        if dtype != "bf16":
            return "computes bf16 and fp16 alone"
    if kernel in ("flash_attn", "flex") and case.how != "plain":
        return "such calls go to PyTorch's kernel or the definition"
    return None


def check_case(part: Part, case: Case, kernel: str, dtype: str) -> None:
    """One row: a kernel's errors in one case and precision."""
    limits = LIMITS[dtype]
    given, gradient = operands(case, DTYPES[dtype], part.device)
    # Decoding has no backward pass, FlexAttention none on a CPU.
    backward = case.time > 1 and not (kernel == "flex" and not part.cuda)
    wide = {name: tensor.double() for name, tensor in given.items()}
    right = both_ways(case, wide, gradient.double(), "eager", backward)
    got = both_ways(case, given, gradient, kernel, backward)
    errors = {name: error_of(got[name], right[name]) for name in got}
    forward = errors.pop("out")
    back = max(errors.values(), default=None)
    ok = forward <= limits["forward"] and (back is None or back <= limits["backward"])
    part.row(case=case.name, kernel=kernel, dtype=dtype, forward=forward, backward=back, ok=ok)


def check_kernels(part: Part, names: tuple[str, ...]) -> None:
    """All cases in all precisions, by these kernels."""
    chosen, slowest = cases(part.small), 0.0
    # Where time will not do for all of them: windows and groups first.
    chosen.sort(key=lambda case: (case.window is None) + (case.kv_heads == case.heads))
    for kernel in names:
        whys = {refusal(case, kernel, dtype, part.cuda) for case in chosen for dtype in DTYPES}
        if None not in whys:
            part.skip(kernel, refusal(chosen[0], kernel, "bf16", part.cuda) or "")
            continue
        if kernel == "flex" and not part.cuda:
            part.skip("flex, backward", "FlexAttention has no backward pass on a CPU")
        late = []
        for case in chosen:
            for dtype in DTYPES:
                if refusal(case, kernel, dtype, part.cuda):
                    continue
                name = {"case": case.name, "kernel": kernel, "dtype": dtype}
                before = part.left
                if before < (slowest if kernel == "flex" else 0):
                    late.append(f"{case.name} in {dtype}")
                    continue
                part.doing = " ".join(name.values())
                part.write()
                if kernel == "flex" and part.cuda:
                    # One process compiles many shapes; the compiler keeps at most eight per function.
                    torch.compiler.reset()
                part.attempt(
                    name,
                    lambda case=case, kernel=kernel, dtype=dtype: check_case(part, case, kernel, dtype),
                    check=True,
                )
                if kernel == "flex":
                    slowest = max(slowest, before - part.left)
        if late:
            part.skip(f"{kernel}: {len(late)} cases, from {late[0]} on", "no time")
        part.free()


def loss_and_gradient(model: torch.nn.Module, ids: Tensor, kernel: str) -> tuple[float, Tensor]:
    """Loss, and the gradient of all parameters as one vector in float64."""
    model.kernel = kernel
    loss = next_token_loss(model, ids)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    flat = [
        torch.zeros_like(parameter).flatten() if gradient is None else gradient.flatten()
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]
    return loss.item(), torch.cat([each.double() for each in flat])


def check_model(part: Part, project: Resolver, paper: str, variant: str) -> None:
    """One row for each kernel: a small model's loss and gradient in fp32, beside float64 by the definition."""
    width, context = (64, 40) if part.small else (256, 192)
    spec = resized(project, paper, SIZES[paper], variant, width, context)
    # Noise: at their start some output projections are zero, and a check of what comes before them would be empty.
    model = with_noise(build_model(spec), amount=0.05).to(part.device)
    reference = build_model(spec, dtype=torch.float64)
    reference.load_state_dict(model.state_dict())
    reference.to(part.device)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(spec.vocab_size, (2, context + 1), generator=generator).to(part.device)
    right_loss, right = loss_and_gradient(reference, ids, "eager")
    for kernel in ("eager", "sdpa"):
        loss, got = loss_and_gradient(model, ids, kernel)
        forward = abs(loss - right_loss) / abs(right_loss)
        backward = ((got - right).norm() / right.norm()).item()
        ok = forward <= MODEL_LIMITS["forward"] and backward <= MODEL_LIMITS["backward"]
        part.row(
            case=f"model {paper}/{variant}",
            kernel=kernel,
            dtype="fp32",
            forward=forward,
            backward=backward,
            ok=ok,
        )


def check_models(part: Part) -> None:
    """Whole models: that attention is handed the right operands on this device too."""
    project = papers_at("smoke")
    for name in MODELS[::3] if part.small else MODELS:
        paper, variant = name.split("/")
        if part.affords(f"model {name}"):
            part.attempt(
                {"case": f"model {name}"},
                lambda paper=paper, variant=variant: check_model(part, project, paper, variant),
                check=True,
            )
            part.free()


def run(part: Part) -> None:
    """Kernels and models; last FlexAttention, which is compiled for each case."""
    # Whatever the environment says: in TF32 products and flex would be what they are not in training.
    torch.set_float32_matmul_precision("highest")
    part.about = {"limits": {**LIMITS, "whole models": MODEL_LIMITS}}
    check_kernels(part, KERNELS)
    check_models(part)
    check_kernels(part, ("flex",))
