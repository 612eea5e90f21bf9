"""DeepSpeed's ZeRO-2, as in ResFormer's recipe: gradients and moments are shared out over the ranks, weights are not.

Everything that is part of a run stays ours, so that both engines compute the same: the objective with its precision (DeepSpeed's own
bf16 mode would cast coefficients too, and its fp16 mode does not exist on CPUs), the loss scale, the schedule, the checkpoints.
DeepSpeed reduces, clips, steps AdamW on its flat partitions, and gathers the weights.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from respath.errors import UserError
from respath.spec.recipe import Recipe
from respath.training.objective import LossScale, pieces
from respath.training.planning import Plan
from respath.training.steps import Steps
from respath.training.world import World

#: Elements that are reduced at once, at most; the buffer is allocated in full, so a small model gets a small one.
BUCKET = 200_000_000


def deepspeed_config(recipe: Recipe, plan: Plan, rows: int, elements: int) -> dict[str, Any]:
    """DeepSpeed's configuration. ``rows``: sequences of this rank per step; ``elements``: of all parameters.

    Each number says what the run's spec says: DeepSpeed clips to a norm of 1 unless told otherwise, and the batch is the spec's
    whatever the number of ranks. No precision mode is on: parameters are fp32 and the objective computes in the run's precision.
    """
    bucket = 2 * math.ceil(min(BUCKET, elements) / 2)
    return {
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": rows // plan.micro_batch,
        "gradient_clipping": recipe.grad_clip or 0.0,
        "zero_allow_untested_optimizer": True,  # PyTorch's AdamW, under a class of ours
        "zero_optimization": {
            "stage": 2,
            "overlap_comm": False,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
        },
    }


def _import_deepspeed(device: torch.device):
    if device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    # Launchers set it; a single process has none.
    os.environ.setdefault("LOCAL_RANK", "0")
    import deepspeed

    # DeepSpeed calls what newer PyTorch versions have renamed; nothing that a user could mend.
    warnings.filterwarnings("ignore", r".*is deprecated", FutureWarning, r"torch\.distributed")
    # On a CPU with a compiler it builds shared-memory collectives on first use, for minutes; gloo suffices.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


class ZeroEngine:
    """Steps of AdamW under ZeRO-2. See ``respath.training.engine`` for what an engine is."""

    def __init__(
        self,
        objective: nn.Module,
        optimizer: torch.optim.AdamW,
        recipe: Recipe,
        world: World,
        plan: Plan,
        rows: int,
        parameters: Mapping[str, nn.Parameter],
    ):
        if rows % plan.micro_batch:
            fits = max(n for n in range(1, plan.micro_batch) if rows % n == 0)
            raise UserError(
                f"--runtime: micro_batch: {plan.micro_batch} does not divide the {rows} sequences of a process, which engine: "
                f"deepspeed needs; give {fits}"
            )
        self.optimizer, self.parameters, self.micro_batch = optimizer, dict(parameters), plan.micro_batch
        self.scale = LossScale(recipe.precision == "fp16")
        self.deepspeed = _import_deepspeed(world.device)
        elements = sum(parameter.numel() for parameter in self.parameters.values())
        self.engine, *_ = self.deepspeed.initialize(
            model=torch.compile(objective) if plan.compile else objective,
            optimizer=optimizer,
            config=deepspeed_config(recipe, plan, rows, elements),
        )

    def step(self, ids: Tensor) -> tuple[float, float]:
        """One step; see ``respath.training.engine``."""
        if self.scale.enabled:
            self.engine.optimizer.override_loss_scale(self.scale.value)
        total = torch.zeros((), device=ids.device)
        for part, share, last in pieces(ids, self.micro_batch):
            self.engine.set_gradient_accumulation_boundary(last)
            loss = self.engine(part) * share
            self.engine.backward(loss, scale_wrt_gas=False)
            total += loss.detach()
        self.engine.step()
        return total.item(), float(self.engine.get_global_grad_norm())

    def _fragments(self):
        """Of each parameter: its name, its flat partition on this rank, and where the part that this rank owns lies in both."""
        for group in self.optimizer.param_groups:
            (flat,) = group["params"]
            for name in group["names"]:
                mapping = self.parameters[name]._hp_mapping
                if mapping is None:
                    yield name, flat, None, None
                    continue
                here, whole = mapping.hp_fragment_address, mapping.lp_fragment_address
                yield (
                    name,
                    flat,
                    slice(here.start, here.start + here.numel),
                    slice(whole.start, whole.start + whole.numel),
                )

    def tensors(self) -> dict[str, Tensor]:
        """Each moment put together from its fragments; on the first rank only, in main memory."""
        gathered = {}
        for name, flat, here, whole in self._fragments():
            parameter, state = self.parameters[name], self.optimizer.state.get(flat, {})
            for moment in ("exp_avg", "exp_avg_sq") if state else ():
                tensor = torch.zeros(parameter.numel(), dtype=torch.float32, device=flat.device)
                if here is not None:
                    tensor[whole] = state[moment][here]
                # As integers: a sum of one fragment and zeros is then that fragment, to the sign of a zero.
                dist.all_reduce(tensor.view(torch.int32))
                if dist.get_rank() == 0:
                    gathered[f"{moment}/{name}"] = tensor.view(parameter.shape).cpu()
            if state and dist.get_rank() == 0:
                gathered[f"step/{name}"] = state["step"].cpu().clone()
        return gathered

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Cut this rank's partitions out of whole tensors."""
        for name, flat, here, whole in self._fragments():
            if f"step/{name}" not in tensors:
                continue
            mine = self.optimizer.state.setdefault(flat, {})
            if not mine:
                mine |= {moment: torch.zeros_like(flat) for moment in ("exp_avg", "exp_avg_sq")}
                mine["step"] = tensors[f"step/{name}"].to(flat.device, copy=True)
            if here is not None:
                for moment in ("exp_avg", "exp_avg_sq"):
                    mine[moment][here] = tensors[f"{moment}/{name}"].flatten()[whole].to(flat.device)
        if "loss_scale" in state:
            self.scale.load(state["loss_scale"])

    def state(self) -> dict[str, Any]:
        """The loss scale."""
        return {"loss_scale": self.scale.state()} if self.scale.enabled else {}

    def close(self) -> None:
        """Take DeepSpeed's hooks off the parameters, and its process groups out of its memory."""
        self.engine.destroy()
        self.deepspeed.comm.destroy_process_group()


def build(steps: Steps, world: World, plan: Plan) -> ZeroEngine:
    """The engine of a run's steps."""
    recipe = steps.spec.recipe
    return ZeroEngine(steps.objective, steps.optimizer, recipe, world, plan, steps.rows, steps.parameters)
