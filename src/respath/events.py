"""Histories of finished and running trainings as TensorBoard event files: one scalar a step for loss, rate and gradient norm.

``respath events [RUN]... --to DIR``, then ``tensorboard --logdir DIR``. Called again, a file grows by the steps that are new, so
that a TensorBoard that is open shows them; nothing is written twice. Histories hold no times, so events carry none (wall time 0):
choose "step" as the horizontal axis.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from respath.errors import UserError, did_you_mean
from respath.files import atomic_open, naming

HISTORY = "history.jsonl"
#: What a line of a history measures beside its step.
SCALARS = ("loss", "lr", "grad_norm")
#: TensorBoard reads files with ``tfevents`` in their names.
FILE = "events.out.tfevents.0.respath"


def histories(checkpoints: Path, runs: list[str] | None = None) -> dict[str, Path]:
    """Run id -> history.jsonl, of the runs named or of all that have one. UserError names all that have none."""
    found = {path.parent.name: path for path in sorted(checkpoints.glob(f"*/{HISTORY}"))}
    if not runs:
        if not found:
            raise UserError(f"{checkpoints}: no run here has a {HISTORY}; train one: snakemake TARGET")
        return found
    if wrong := [run for run in runs if run not in found]:
        raise UserError(
            [
                f"{run!r} has no {HISTORY} in {checkpoints}: not begun, or imported without one{did_you_mean(run, found)}"
                for run in wrong
            ]
        )
    return {run: found[run] for run in dict.fromkeys(runs)}


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a history; a last line that a trainer is just writing is left for the next time. UserError for a damaged one."""
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith("\n"):
                return
            try:
                row = json.loads(line)
                row["step"], row["loss"]
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f"{path}:{number}: is no step of a history; the trainer mends the file when the run goes on"
                ) from None
            yield row


def event_bytes(path: Path) -> tuple[bytes, int]:
    """The event file of a history, equal bytes for equal histories, and its number of steps.

    UserError when the extra is not installed. Values that are not finite (null in a history) have no event.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise UserError("events: needs the extra tensorboard (pip install 'respath[tensorboard]')") from None
    buffer, steps = io.BytesIO(), 0
    writer = RecordWriter(buffer)
    writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString(deterministic=True))
    for row in rows(path):
        steps += 1
        values = [
            Summary.Value(tag=name, simple_value=row[name]) for name in SCALARS if row.get(name) is not None
        ]
        event = Event(wall_time=0.0, step=row["step"], summary=Summary(value=values))
        writer.write(event.SerializeToString(deterministic=True))
    return buffer.getvalue(), steps


def convert(run: str, history: Path, to: Path) -> dict[str, Any]:
    """Bring the event file of one run up to date: ``written``, ``grown`` or ``same``.

    A file that begins like the new one is appended to, as TensorBoard goes on reading where it was; any other is replaced whole.
    """
    content, steps = event_bytes(history)
    path = to / run / FILE
    there = path.read_bytes() if path.exists() else None
    if there == content:
        status = "same"
    elif there and content.startswith(there):
        status = "grown"
        with naming(path), path.open("ab") as stream:
            stream.write(content[len(there) :])
    else:
        status = "written"
        with atomic_open(path) as stream:
            stream.write(content)
    return {"run": run, "file": str(path), "steps": steps, "status": status}
