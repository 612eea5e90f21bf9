"""Resources of a training: what may differ between two machines that train the same run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from respath.spec.document import Document


class Runtime(Document):
    """How a machine is used. Nothing here enters a run's identity, and nothing changes results beyond rounding."""

    engine: Literal["torch", "deepspeed"] = "torch"
    """What takes the optimizer steps: PyTorch (one process, or DistributedDataParallel), or DeepSpeed's ZeRO-2, which shares
    gradients and moments out over the processes (extra deepspeed; AdamW only)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU where there is one."""
    threads: int | None = Field(None, ge=1)
    """CPU threads of one training job (null: OMP_NUM_THREADS, which the workflow sets to 1); a run resumed with another
    number is no longer bit-identical."""
    micro_batch: Literal["auto"] | int = "auto"
    """Sequences per forward pass; gradients are accumulated up to the recipe's batch."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile: always, never, or (auto) only where it is measured to pay within this run."""
    checkpoint_activations: bool = False
    """Work out each sub-layer again in the backward pass instead of keeping its activations: less memory, about a third more
    time."""
    checkpoint_minutes: float = Field(10.0, gt=0)
    """A checkpoint every so many minutes: what a killed job can lose."""
    checkpoint_steps: int | None = Field(None, ge=1)
    """Also a checkpoint every so many steps."""
    keep: int = Field(2, ge=1)
    """Newest checkpoints kept per run; a damaged newest one falls back to the one before."""
    time_limit_minutes: float | None = Field(None, gt=0)
    """Stop with a checkpoint and exit code 75 (start again) before so many minutes are over; a Slurm job's own limit is asked
    for and needs no entry here."""
    lease_wait_minutes: float | None = Field(None, ge=0)
    """Wait so long for another trainer of the same run; null: leave at once on this host, wait for other hosts and in Slurm
    jobs."""
    processes: int = Field(1, ge=1)
    """Processes of one training job on each machine: one per GPU. They share the recipe's batch."""
    nodes: int = Field(1, ge=1)
    """Machines of one training job; more than one needs Slurm (docs/cluster.md)."""
    gpu: str | None = None
    """Kind of GPU that a training's job asks a queue for (a100, h100, ...: those of `respath plan --gpu`). Memory, time and number
    of GPUs then follow from the run; null: as the profile says."""
    finish_hours: float = Field(24.0, gt=0)
    """With gpu: a training takes the fewest GPUs (1, 2, 4, ... up to processes) that should end it in so many hours."""
    time_margin: float = Field(2.0, ge=1)
    """With gpu: the time that is asked for, over the estimate."""
    longest_minutes: int = Field(1440, ge=10)
    """With gpu: most minutes of one job (the partition's MaxTime); a longer training goes on in the next one."""
    gpu_lease: bool = False
    """Each job takes free GPUs of this machine for itself (profiles/workstation); batch systems do that themselves."""
    accept_code: bool = False
    """Go on with a training, or measure weights, although other code computed them so far; what was accepted stays on record."""
    log_every: int | None = Field(None, ge=1)
    """Steps between lines of the log; null: about fifty lines per run."""

    @field_validator("micro_batch", mode="before")
    @classmethod
    def _some_rows(cls, value: Any) -> Any:
        # Before the union, whose two members would each complain under a name of pydantic's.
        if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        raise ValueError(f"{value!r} is neither auto nor a number of sequences, 1 or more")


class Validation(Document):
    """What a trainer measures on its way, on frozen validation rows. It changes no weight, so nothing here enters a run's id."""

    points: int = Field(20, ge=0)
    """Evenly spaced steps, the last one included, at which the rows are scored; 0: never."""
    every: int | None = Field(None, ge=1)
    """Score every so many steps instead, and at the end."""
    share: float = Field(0.05, gt=0, le=1)
    """Most of the training's FLOPs that scoring may cost: it bounds the rows, and where there are too few also the points."""
    sequences: int = Field(128, ge=1)
    """Rows per domain at most."""
    keep_weights_at: tuple[int, ...] = ()
    """Steps whose weights stay beside the final ones, to be measured."""

    @field_validator("keep_weights_at")
    @classmethod
    def _steps(cls, steps: tuple[int, ...]) -> tuple[int, ...]:
        if any(step < 1 for step in steps) or list(steps) != sorted(set(steps)):
            raise ValueError("are steps, 1 or more, in rising order")
        return steps
