"""What a target costs before anything is spent: runs, tokens, FLOPs, hours and disk, from closed forms alone."""

from __future__ import annotations

import dataclasses
from typing import Any

from respath.config.project import Artifact, Project, Run
from respath.config.run import tokens_id
from respath.errors import UserError, did_you_mean
from respath.files import read_json

#: Dense bf16 matrix-product peak in FLOP/s per device, from the makers' data sheets. ``cpu`` is one core: an order of
#: magnitude for laptops, not a data-sheet value; a finished run's own speed replaces it.
PEAK_FLOPS = {"a100": 312e12, "h100": 989e12, "h200": 989e12, "cpu": 60e9}
#: Bytes kept per parameter in one checkpoint: fp32 master and two Adam moments.
CHECKPOINT_BYTES = 12
FINAL_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What the hours and bytes rest on; printed with every plan."""

    device: str
    devices: int
    mfu: float

    @property
    def flops_per_second(self) -> float:
        """Sustained rate of the whole machine."""
        return PEAK_FLOPS[self.device] * self.devices * self.mfu


def assumptions(
    project: Project, scale: str, device: str | None = None, mfu: float | None = None
) -> Assumptions:
    """The machine that a scale is meant for, unless told otherwise. Raises UserError for an unknown device."""
    chosen = device or ("a100" if scale == "paper" else "cpu")
    if chosen not in PEAK_FLOPS:
        raise UserError(f"--gpu: {chosen!r} is not known{did_you_mean(chosen, PEAK_FLOPS)}")
    gpus = max((folder.paper.hardware.gpus for folder in project.folders.values()), default=1)
    if mfu is not None and not 0 < mfu <= 1:
        raise UserError(f"--mfu: {mfu} is not a share between 0 and 1")
    return Assumptions(device=chosen, devices=1 if chosen == "cpu" else gpus, mfu=mfu or 0.4)


def _run_cost(project: Project, run: Run, machine: Assumptions) -> dict[str, Any]:
    from respath.accounting import account

    defaults = project.accounting_defaults(run.paper)
    entry = account(
        run.spec.model, context=run.spec.recipe.context, logits="all", attention=defaults.attention
    ).to_json()
    tokens = run.spec.recipe.tokens
    flops = entry["flops"]["training_per_token"] * tokens
    path = project.root / "results" / "runs" / run.id / "train.json"
    done = path.exists()
    seconds = flops / machine.flops_per_second
    if done and machine.device == "cpu":
        seconds = read_json(path).get("cost", {}).get("seconds", seconds)
    parameters = entry["parameters"]["total"]
    keep = project.config.runtime.keep
    return {
        "run": run.id,
        "done": done,
        "tokens": tokens,
        "flops": flops,
        "seconds": seconds,
        "disk": parameters * (FINAL_BYTES + keep * CHECKPOINT_BYTES),
    }


def plan(project: Project, targets: list[Artifact], machine: Assumptions) -> dict[str, Any]:
    """Cost per target and in total. Runs shared by several targets count once in the total.

    FLOPs are the accounting's (three times the forward, the paper's attention convention). Hours are device hours of
    the runs that are still to do; disk counts checkpoints, final weights and token shards.
    """
    costs: dict[str, dict[str, Any]] = {}
    rows = []
    for artifact in targets:
        ids = []
        for run in project.trained_runs(artifact):
            costs.setdefault(run.id, _run_cost(project, run, machine))
            ids.append(run.id)
        rows.append(
            {
                "target": artifact.target,
                "title": artifact.definition.title,
                **_sum([costs[i] for i in ids], machine),
            }
        )
    stores = {}
    for paper in {artifact.paper for artifact in targets}:
        data = project.data_of(paper)
        width = 2 if data.tokenizer.vocab_size <= 65_535 else 4
        quota = sum(data.train_tokens.values()) + data.validation_tokens * len(data.train_tokens)
        stores[tokens_id(data)] = quota * width
    total = _sum(list(costs.values()), machine)
    total["disk"] += sum(stores.values())
    return {
        "scale": project.config.scale,
        "seeds": list(project.seeds),
        "assumptions": {**dataclasses.asdict(machine), "peak_flops_per_device": PEAK_FLOPS[machine.device]},
        "targets": rows,
        "total": total,
        "token_store_bytes": stores,
    }


def _sum(costs: list[dict[str, Any]], machine: Assumptions) -> dict[str, Any]:
    todo = [cost for cost in costs if not cost["done"]]
    seconds = sum(cost["seconds"] for cost in todo)
    return {
        "runs": len(costs),
        "done": len(costs) - len(todo),
        "tokens": sum(cost["tokens"] for cost in todo),
        "flops": sum(cost["flops"] for cost in todo),
        "device_hours": seconds * machine.devices / 3600,
        "wall_hours": seconds / 3600,
        "disk": sum(cost["disk"] for cost in costs),
    }
