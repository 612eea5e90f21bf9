"""The training of one run: resume, step, checkpoint, finish."""

from __future__ import annotations

import importlib
import math
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from respath.config.runtime import Runtime, Validation
from respath.errors import UserError, explain_os_error
from respath.files import sha256_file
from respath.fingerprint import ENGINES, describe, training_code
from respath.spec.document import identity
from respath.spec.run import RunSpec, run_hash
from respath.training.checkpoint import CheckpointStore, Snapshot, not_finite, save_tensors_atomically
from respath.training.folders import ELSEWHERE, kept_weights
from respath.training.history import History
from respath.training.lease import Lease, LeaseHeld
from respath.training.planning import StoredPlan, device_name, make_plan, plan_from
from respath.training.progress import Reporter
from respath.training.provenance import processor, provenance
from respath.training.results import (
    DIVERGED,
    FINISHED,
    WEIGHTS,
    earlier_result,
    relative_path,
    write_result,
)
from respath.training.steps import Steps, divergence
from respath.training.stopping import Stopped, StopRequest
from respath.training.validation import Validator
from respath.training.world import World, open_world


@dataclass(frozen=True)
class Job:
    """One invocation: what to train, from which tokens, and where everything goes."""

    spec: RunSpec
    run: str
    manifest: Path
    manifest_sha256: str
    checkpoints: Path
    out: Path
    runtime: Runtime
    validation: Validation


class Training:
    """A run in memory: model, optimizer, engine, history and position."""

    def __init__(self, job: Job, world: World, stop: StopRequest, reporter: Reporter):
        self.job, self.world, self.stop, self.reporter = job, world, stop, reporter
        spec = job.spec
        self.recipe = spec.recipe
        self.steps = Steps(spec, job.manifest, world)
        self.steps.model.checkpoint_activations = job.runtime.checkpoint_activations
        path = job.checkpoints / "history.jsonl" if world.leads else None
        self.history = History(path, self.recipe.steps, self.recipe.tokens_per_step, reporter.say)
        self.store = CheckpointStore(
            job.checkpoints, run_hash(spec), job.manifest_sha256, job.runtime.keep, reporter.say
        )
        self.validator = Validator(job.validation, job.manifest, self.recipe, world)
        self.engine: Any = None
        self.step = 0
        self.code = training_code(spec, job.runtime.engine)
        #: What other code computed the steps before this session, where the user accepted that.
        self.accepted = ""
        self.sessions: list[dict[str, Any]] = []
        self.session_start = 0
        self.begun = time.monotonic()
        self.save_seconds = self.validation_seconds = 0.0

    # --- where to begin ---

    def begin(self) -> None:
        """Take up the newest whole checkpoint, or start; settle how the machine is used; make the engine."""
        snapshot = self.resume()
        self.check_space()
        state = snapshot.state if snapshot else {}
        self.plan(state)
        self.make_engine()
        if snapshot:
            self.engine.load(snapshot.optimizer, state)

    def resume(self) -> Snapshot | None:
        """Weights, history and position of the newest whole checkpoint; None for a run that starts."""
        snapshot = self.store.load_newest()
        if self.world.sum([float(snapshot.step if snapshot else 0)])[0] != self.world.size * (
            snapshot.step if snapshot else 0
        ):
            raise UserError(
                f"{self.job.checkpoints}: the processes see different checkpoints; use a folder that all share"
            )
        if snapshot is None:
            self.history.restore([])
            return None
        with torch.no_grad():
            for name, parameter in self.steps.parameters.items():
                parameter.copy_(snapshot.model[name])
        self.history.restore([tuple(row) for row in snapshot.history["rows"].tolist()])
        self.step = self.session_start = snapshot.step
        self.sessions = snapshot.state["sessions"]
        self.refuse_other_code()
        state = snapshot.state.get("validation", {})
        self.validator.restore(
            snapshot.history.get("validation"), state.get("rows_sha256"), self.reporter.say
        )
        self.reporter.say(
            f"{self.job.run}: going on from the checkpoint at step {self.step} of {self.recipe.steps}"
        )
        return snapshot

    def refuse_other_code(self) -> None:
        """Raises UserError where the steps so far were computed by other code, unless the user accepts that."""
        before = self.sessions[-1]
        recorded = before.get("code")
        today = training_code(self.job.spec, before.get("engine", self.job.runtime.engine))
        if (other := describe(recorded, today)) is None:
            return
        if not self.job.runtime.accept_code:
            raise UserError(
                f"{self.job.checkpoints}: steps 1 to {self.step} were computed by {other}; put that code back, or set `runtime: "
                "{accept_code: true}` (trainer: --accept-code) to go on with today's, which stays on record"
            )
        self.accepted = other
        self.reporter.say(
            f"warning: steps 1 to {self.step} were computed by {other}; going on with today's code, as accepted"
        )

    def plan(self, state: dict[str, Any]) -> None:
        """Settle micro-batch and compilation; warn when a resumed run is not on the machine that it was on."""
        stored = StoredPlan(self.job.checkpoints)
        earlier = stored.read() or plan_from(state.get("plan"))
        self.plan_used = make_plan(
            self.job.spec,
            self.job.runtime,
            self.steps.objective,
            self.world,
            self.steps.rows,
            lambda: self.steps.batch(0),
            earlier,
            self.reporter.say,
        )
        if self.world.leads:
            stored.write(self.plan_used)
        self.environment = {
            "engine": self.job.runtime.engine,
            "torch": torch.__version__,
            "device": device_name(self.world.device),
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "processes": self.world.size,
            "micro_batch": self.plan_used.micro_batch,
            "compile": self.plan_used.compile,
            "checkpoint_activations": self.job.runtime.checkpoint_activations,
        }
        before = state.get("environment", self.environment)
        changed = [
            f"{key} {before.get(key)} -> {now}"
            for key, now in self.environment.items()
            if before.get(key, now) != now
        ]
        if changed:
            self.reporter.say(
                f"warning: {', '.join(changed)} since the checkpoint; the result stays equal up to rounding, "
                "bit-identity is no longer promised"
            )

    def make_engine(self) -> None:
        """The runtime's engine, on the parameters as they are now."""
        # Imported when it is wanted: the package behind one of them takes seconds.
        module = importlib.import_module(ENGINES[self.job.runtime.engine])
        self.engine = module.build(self.steps, self.world, self.plan_used)

    def check_space(self) -> None:
        """Say early when the disk cannot hold what this run will write."""
        weights = sum(p.numel() * p.element_size() for p in self.steps.parameters.values())
        folder = self.job.checkpoints
        there = sum(
            file.stat().st_size for step in self.store.steps() for file in self.store.path(step).glob("*")
        )
        free = shutil.disk_usage(folder).free + there
        if free < weights:
            raise UserError(
                f"{folder}: {free / 1e6:,.0f} MB free, but the final weights alone need {weights / 1e6:,.0f} MB"
            )
        # Weights and Adam's two moments per checkpoint; the newest is written before the oldest goes.
        needed = 3 * weights * (self.job.runtime.keep + 1) + weights
        if free < needed:
            self.reporter.say(
                f"warning: {folder}: {free / 1e6:,.0f} MB free, but {self.job.runtime.keep} checkpoints and one being written "
                f"need up to {needed / 1e6:,.0f} MB; free some space or set keep lower"
            )

    # --- stepping ---

    def snapshot(self, optimizer: dict[str, torch.Tensor]) -> Snapshot:
        """The state after ``self.step`` steps; ``optimizer``: the engine's tensors."""
        rows = torch.tensor(self.history.rows, dtype=torch.float64).reshape(-1, 3)
        state = {
            "sessions": [*self.sessions, self.session()],
            "plan": asdict(self.plan_used),
            "environment": self.environment,
            "run": self.job.run,
            "loss": {"window": self.history.window, "mean": self.history.window_mean()},
            "validation": {"rows_sha256": self.validator.sha256},
            **self.engine.state(),
        }
        history = {"rows": rows, "validation": self.validator.tensor()}
        return Snapshot(self.step, self.steps.parameters, optimizer, history, state)

    def session(self) -> dict[str, Any]:
        """What this process did so far."""
        return {
            "first_step": self.session_start + 1,
            "last_step": self.step,
            "seconds": round(time.monotonic() - self.begun, 3),
            "validation_seconds": round(self.validation_seconds, 3),
            "torch": self.environment["torch"],
            "threads": self.environment["threads"],
            "processes": self.world.size,
            "engine": self.job.runtime.engine,
            "code": self.code,
            **({"accepted": self.accepted} if self.accepted else {}),
        }

    def save(self) -> bool:
        """Write a checkpoint (on the first rank, with what all contribute). False when it could not be written."""
        begun = time.monotonic()
        saved = True
        optimizer = self.engine.tensors()
        if self.world.leads:
            self.history.flush()
            saved = self.store.save(self.snapshot(optimizer))
            if saved:
                self.reporter.record(f"checkpoint at step {self.step} ({time.monotonic() - begun:.1f} s)")
        self.saved_at, self.save_seconds = time.monotonic(), time.monotonic() - begun
        return saved

    def advance(self) -> str | None:
        """One optimizer step. Returns why the run has diverged, or None."""
        loss, lr, grad_norm = self.steps.take(self.step, self.engine)
        self.history.append(loss, lr, grad_norm)
        full = len(self.history.rows) >= self.history.window
        # With fp16 a gradient beyond its range is the scale's business: the step is left out and the scale lowered.
        checked_norm = 0.0 if self.engine.scale.update(grad_norm) else grad_norm
        vocab_size = self.job.spec.model.vocab_size
        if reason := divergence(loss, checked_norm, self.history.window_mean(), full, vocab_size):
            return reason
        self.step += 1
        self.reporter.step(self.step, loss, lr, self.recipe.tokens_per_step)
        return None

    def measure(self) -> None:
        """What is measured on the way: losses on validation rows, and weights that stay for others to measure."""
        begun = time.monotonic()
        if self.validator.due(self.step):
            loss = self.validator.score(
                self.step, self.steps.objective, self.steps.model, self.plan_used.micro_batch
            )
            self.reporter.record(f"validation loss at step {self.step}: {loss:.4f}")
        if self.step in self.job.validation.keep_weights_at and self.world.leads:
            path = kept_weights(self.job.checkpoints, self.step)
            try:
                save_tensors_atomically(path, self.steps.parameters)
            except OSError as error:
                raise UserError(
                    f"{explain_os_error(error, ELSEWHERE)} (weights at step {self.step})"
                ) from None
        self.validation_seconds += time.monotonic() - begun

    def checkpoint_due(self) -> bool:
        """Whether the interval in minutes or in steps is over."""
        runtime = self.job.runtime
        by_steps = runtime.checkpoint_steps is not None and self.step % runtime.checkpoint_steps == 0
        return by_steps or time.monotonic() - self.saved_at >= 60 * runtime.checkpoint_minutes

    def until_end(self, lease: Lease | None) -> str | None:
        """Step to the end (returns None) or to divergence (returns the reason).

        Raises Stopped, after a checkpoint, on a stop request, and UserError when another trainer took the run over.
        """
        steps = self.recipe.steps
        every = self.job.runtime.log_every or max(1, math.ceil(steps / 50))
        self.begun = self.saved_at = time.monotonic()
        self.reporter.start(self.step, steps, every)
        while self.step < steps:
            begun = time.monotonic()
            if reason := self.advance():
                return f"step {self.step + 1}: {reason}"
            self.measure()
            if lease is not None and lease.lost:
                raise LeaseHeld(
                    f"{self.job.checkpoints}: another trainer took this run over while this one slept; leaving"
                )
            if self.step == steps:
                break
            stop = self.stop.check(time.monotonic() - begun + self.save_seconds)
            # All ranks act on the same wishes: one rank's signal stops all, the first one's clock counts.
            stops, due = self.world.sum(
                [float(bool(stop)), float(self.world.leads and self.checkpoint_due())]
            )
            if stops:
                saved = self.save()
                # The first process to leave takes the others along (torchrun, srun): not before the checkpoint is whole.
                self.world.sum([0.0])
                kept = f"with a checkpoint at step {self.step}" if saved else "without a new checkpoint"
                line = f"{stop or 'another process'}: {self.job.run} stopped {kept} of {steps}; run the same command to go on"
                self.reporter.record(line)
                raise Stopped([line] if self.world.leads else [])
            if due:
                self.save()
        # Losses and gradients are those before an update: what the last one did shows in the weights and their score alone.
        if (broken := not_finite(self.steps.parameters)) or (broken := self.validator.not_finite(steps)):
            return f"after the last step: {broken}"
        return None

    # --- results ---

    def finish(self, reason: str | None) -> None:
        """Write the final weights and then ``train.json``; UserError when the disk refuses."""
        job, world = self.job, self.world
        if not world.leads:
            return
        self.history.flush()
        weights = None
        if reason is None:
            path = job.checkpoints / WEIGHTS
            try:
                digest = save_tensors_atomically(path, self.steps.parameters)
            except OSError as error:
                newest = f"step {self.store.steps()[0]}" if self.store.steps() else "step 0"
                raise UserError(
                    f"{explain_os_error(error, ELSEWHERE)} (the final weights; going on from {newest})"
                ) from None
            weights = {"path": relative_path(path, job.out), "sha256": digest}
        sessions = [*self.sessions, self.session()]
        seconds = sum(session["seconds"] for session in sessions)
        tokens = self.step * self.recipe.tokens_per_step
        mean = self.history.window_mean()
        write_result(
            {
                "schema": 1,
                "kind": "train",
                "run": job.run,
                "spec": identity(job.spec),
                "status": FINISHED if reason is None else DIVERGED,
                "reason": reason,
                "steps": self.step,
                "tokens": tokens,
                "loss": {"final": mean if math.isfinite(mean) else None, "window": self.history.window},
                "curve": self.history.curve(),
                "validation": self.validator.result(),
                "weights": weights,
                "kept_weights": [
                    {"step": step, "path": relative_path(path, job.out), "sha256": sha256_file(path)}
                    for step in job.validation.keep_weights_at
                    if (path := kept_weights(job.checkpoints, step)).is_file()
                ],
                "manifest_sha256": job.manifest_sha256,
                "cost": {
                    "seconds": round(seconds, 3),
                    "validation_seconds": round(sum(s.get("validation_seconds", 0.0) for s in sessions), 3),
                    "tokens_per_second": round(tokens / max(seconds, 1e-9), 1),
                    "sessions": len(sessions),
                },
                "provenance": {
                    **provenance(),
                    "code": self.code,
                    "accepted": [session["accepted"] for session in sessions if "accepted" in session],
                    **{
                        key: self.environment[key]
                        for key in (
                            "engine",
                            "device",
                            "threads",
                            "processes",
                            "micro_batch",
                            "checkpoint_activations",
                        )
                    },
                    "precision": self.recipe.precision,
                    "compile": {"used": self.plan_used.compile, "reason": self.plan_used.compile_reason},
                    "sessions": sessions,
                },
            },
            job.checkpoints,
            job.out,
        )


def _train(job: Job, world: World, lease: Lease | None, stop: StopRequest, reporter: Reporter) -> None:
    result, _ = earlier_result(job.out, job.checkpoints, job.spec, job.manifest_sha256)
    if result is not None:
        # The trainer that we waited for has done the work.
        reporter.say(f"{job.run}: already {result['status']}; {job.out}")
        return
    reporter.open_log(job.checkpoints / "train.log")
    training = Training(job, world, stop, reporter)
    if world.leads:
        training.store.clean()
    try:
        training.begin()
        reason = training.until_end(lease)
        training.finish(reason)
    except torch.OutOfMemoryError:
        raise UserError(
            "--runtime: the GPU's memory is too small for this micro-batch; set a smaller one, e.g. "
            "'{\"micro_batch\": 4}', or '{\"checkpoint_activations\": true}'"
        ) from None
    except RuntimeError as error:
        if not world.lost(error):
            raise
        line = f"{job.run}: another process of this training is gone; run the same command to go on from the newest checkpoint"
        reporter.record(f"{line} ({str(error).splitlines()[0]})")
        # The first rank speaks; where it is the one that is gone, the second.
        raise Stopped([line] if world.rank <= 1 else []) from None
    finally:
        training.history.close()
        if training.engine is not None:
            training.engine.close()
    final = training.history.window_mean()
    end = f"diverged at {reason}" if reason else f"finished {training.step} steps, loss {final:.4f}"
    reporter.say(f"{job.run}: {end}; {job.out}")


def train(job: Job, stop: StopRequest) -> None:
    """Train a run to its end, or to a stop request.

    Raises Stopped (exit code 75) when stopped with the work kept, LeaseHeld (69) when another trainer is at work,
    UserError for everything that the user can mend.
    """
    world = open_world(job.runtime, stop.check)
    reporter = Reporter(job.run, world.leads)
    try:
        if not world.leads:
            if world.sum([0.0])[0]:
                raise LeaseHeld([])
            _train(job, world, None, stop, reporter)
            return
        lease = Lease(job.checkpoints, job.runtime.lease_wait_minutes, stop.check, reporter.say)
        try:
            lease.__enter__()
        except BaseException:
            world.sum([1.0])
            raise
        try:
            world.sum([0.0])
            _train(job, world, lease, stop, reporter)
        finally:
            lease.__exit__()
    finally:
        reporter.close()
        world.close()
