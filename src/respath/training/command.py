"""Command line of the trainer."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from respath.errors import OK, RETRY, UserError, guard
from respath.files import sha256_file
from respath.gpu_lease import lease_gpus
from respath.startup import slow_imports
from respath.training.launch import launch, leave_to_launcher, needs_launch
from respath.training.lease import LEASE_HELD
from respath.training.queue import minutes_left
from respath.training.results import earlier_result
from respath.training.runtime import read_runtime, read_spec, read_validation, refuse_engine
from respath.training.stopping import Stopped, StopRequest

_DESCRIPTION = "Train one run: from its spec and the manifest of its tokens to final weights and train.json."

_EPILOG = f"""\
examples:
  python -m respath.training --spec @spec.json --tokens results/tokens/T/manifest.json \\
      --checkpoints checkpoints/RUN --out results/runs/RUN/train.json
  ... --runtime '{{"processes": 8}}'            one process per GPU, the same batch and results; torchrun works as well
  ... --runtime '{{"threads": 4, "checkpoint_minutes": 5, "time_limit_minutes": 230}}'

stopping and going on:
  Ctrl-C, SIGTERM, SIGUSR1 and the time limit finish the step, write a checkpoint and leave with exit code {RETRY}.
  The same command goes on from the newest whole checkpoint, also after kill -9 or a power cut, and ends with the
  same weights, bit for bit, as a run that was never interrupted (same machine, threads, processes and versions).

in --checkpoints:
  step-00000123/          a checkpoint: safetensors, JSON, and DONE with the hash of each file, written last
  final/model.safetensors the final weights
  final/train.json        a copy of the result, from which a lost --out is written anew
  weights/step-00000123.safetensors   weights that --validation keeps
  history.jsonl           step, loss, lr, grad_norm, tokens of every step
  train.log               what was said, over all sessions
  runtime.json            micro-batch and compilation, decided once for all sessions
  lease.lock, lease.json  who is training; a lock ends with its process

--runtime keys (resources; they do not change the run's id, nor results beyond rounding):
  engine                  torch (one process, or DistributedDataParallel) | deepspeed (ZeRO-2); checkpoints fit both
  device                  auto | cpu | cuda
  threads                 CPU threads; unset: OMP_NUM_THREADS, else PyTorch's choice
  micro_batch             auto | sequences per forward pass; gradients accumulate to the recipe's batch
  compile                 auto | on | off; auto measures, and compiles only where that shortens this run
  checkpoint_activations  true works activations out again in the backward pass instead of keeping them
  checkpoint_minutes      10; the most that kill -9 can cost
  checkpoint_steps        also every so many steps
  keep                    2; newest checkpoints kept
  time_limit_minutes      stop in time for a queue's wall-clock limit (Slurm's is asked for anyway)
  lease_wait_minutes      wait for another trainer of this run instead of leaving (in Slurm jobs: as long as it takes)
  processes               1; on each machine, one per GPU
  nodes                   1; machines, as tasks of a Slurm job
  gpu_lease               a job takes free GPUs for itself, on a machine without batch system
  accept_code             go on from a checkpoint that other code computed (also --accept-code); it stays on record
  log_every               steps between lines

--validation keys (what is measured on the way; no weight changes by it, nor the run's id):
  points                  20; evenly spaced steps at which frozen validation rows are scored; 0: never
  every                   score every so many steps instead
  share                   0.05; most of the training's FLOPs that scoring may cost
  sequences               128; rows per domain at most
  keep_weights_at         steps whose weights stay, in weights/

exit codes:
  {OK}   finished, or diverged (a result: status "diverged" in train.json), or already there
  2   something to mend, said in one line
  {LEASE_HELD}  another trainer is at work on this run
  {RETRY}  stopped on request with the work kept; run the same command again
"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="python -m respath.training",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--spec", required=True, metavar="JSON|@FILE", help="the run: model, recipe, data, seed"
    )
    made.add_argument(
        "--tokens", required=True, type=Path, metavar="MANIFEST", help="manifest.json of the token store"
    )
    made.add_argument(
        "--checkpoints",
        required=True,
        type=Path,
        metavar="DIR",
        help="the run's own folder; kept after failures",
    )
    made.add_argument(
        "--out", required=True, type=Path, metavar="TRAIN_JSON", help="the result, written last"
    )
    made.add_argument("--run", metavar="ID", help="the run's name in results (default: the name of DIR)")
    made.add_argument("--runtime", metavar="JSON|@FILE", help="resources, see below")
    made.add_argument("--validation", metavar="JSON|@FILE", help="what is measured on the way, see below")
    made.add_argument(
        "--accept-code", action="store_true", help="go on from a checkpoint that other code computed"
    )
    made.add_argument("--debug", action="store_true", help="show tracebacks")
    return made


@guard
def main(arguments: list[str] | None = None) -> int:
    """Parse, answer from an existing result if it stands, else train. Returns the exit code."""
    try:
        return _main(arguments)
    except UserError as error:
        if not leave_to_launcher([f"error: {line}" for line in error.lines]):
            raise
        return error.exit_code


def _main(arguments: list[str] | None) -> int:
    given = parser().parse_args(arguments)
    runtime = read_runtime(given.runtime)
    if given.accept_code:
        runtime = runtime.model_copy(update={"accept_code": True})
    validation = read_validation(given.validation)
    spec = read_spec(given.spec)
    refuse_engine(runtime, spec.recipe)
    manifest_sha256 = sha256_file(given.tokens) if given.tokens.exists() else None
    # Before GPUs and processes are asked for: what is done needs none.
    result, why_not = earlier_result(given.out, given.checkpoints, spec, manifest_sha256)
    if result is not None:
        print(f"{result['run']}: already {result['status']}; {given.out}", file=sys.stderr)
        return OK
    if manifest_sha256 is None:
        raise UserError(f"{given.tokens}: no such file; it is the manifest of the run's tokens")
    several = needs_launch(runtime)
    # Before anything looks at CUDA; the processes that are launched use what this one holds.
    if runtime.device != "cpu":
        lease_gpus(runtime.processes)
    if several:
        return launch(runtime, sys.argv[1:] if arguments is None else arguments)
    limits = [limit for limit in (runtime.time_limit_minutes, minutes_left()) if limit is not None]
    stop = StopRequest(min(limits, default=None))
    stop.listen()
    if why_not:
        print(f"{why_not}; training from the newest checkpoint, or from step 0", file=sys.stderr)
    # Slow imports (torch) only now, with the signal handlers in place.
    with slow_imports():
        from respath.training.loop import Job, train

    run = given.run or given.checkpoints.resolve().name
    try:
        job = Job(spec, run, given.tokens, manifest_sha256, given.checkpoints, given.out, runtime, validation)
        train(job, stop)
    except Stopped as stopped:
        if not leave_to_launcher(stopped.lines):
            for line in stopped.lines:
                print(line, file=sys.stderr)
        return stopped.exit_code
    return OK
