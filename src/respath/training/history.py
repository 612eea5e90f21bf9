"""What each step measured: the lines of ``history.jsonl``, the last window's mean, and the curve of ``train.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from respath.errors import explain_os_error
from respath.files import write_text
from respath.training.folders import ELSEWHERE

#: Points of a curve in ``train.json``, at most: enough for a figure, small enough for a thousand runs.
CURVE_POINTS = 512


class History:
    """Loss, learning rate and gradient norm of every step since step 0.

    Kept whole in memory and in each checkpoint (24 bytes per step), so that the file can be rebuilt exactly when a
    run resumes: no line lost, none doubled, whatever the killed process had left behind.
    """

    def __init__(
        self,
        path: Path | None,
        steps: int,
        tokens_per_step: int,
        warn: Callable[[str], None] = lambda line: None,
    ):
        #: None: no file (ranks other than the first).
        self.path = None if path is None else Path(path)
        self.steps, self.tokens_per_step, self.warn = steps, tokens_per_step, warn
        #: Steps in the running mean: a tenth of a short run, 100 steps (1 % of the paper's 10,000) of a long one.
        self.window = min(100, max(1, steps // 10))
        self.rows: list[tuple[float, float, float]] = []
        self._stream = None
        self._behind = False

    def line(self, index: int) -> str:
        """The JSON line of 0-based step ``index``; a loss that is not finite reads null."""
        loss, lr, grad_norm = (value if math.isfinite(value) else None for value in self.rows[index])
        record = {
            "step": index + 1,
            "loss": loss,
            "lr": lr,
            "grad_norm": grad_norm,
            "tokens": (index + 1) * self.tokens_per_step,
        }
        return json.dumps(record) + "\n"

    def restore(self, rows: list[tuple[float, float, float]]) -> None:
        """Start from a checkpoint's rows (or none): the file is rewritten to exactly these."""
        self.rows = [tuple(row) for row in rows]
        self._rewrite()

    def _rewrite(self) -> None:
        if self.path is None:
            return
        self.close()
        try:
            write_text(self.path, "".join(self.line(index) for index in range(len(self.rows))))
            self._stream = self.path.open("a", encoding="utf-8")
            self._behind = False
        except OSError as error:
            self._fall_behind(error)

    def _fall_behind(self, error: OSError) -> None:
        if not self._behind:
            self.warn(
                f"warning: {explain_os_error(error, ELSEWHERE)}; history.jsonl is completed at the next checkpoint"
            )
        self._behind = True

    def append(self, loss: float, lr: float, grad_norm: float) -> None:
        """Add one step; the line is in the operating system's hands when this returns."""
        self.rows.append((loss, lr, grad_norm))
        if self._behind or self._stream is None:
            return
        try:
            self._stream.write(self.line(len(self.rows) - 1))
            self._stream.flush()
        except OSError as error:
            self._fall_behind(error)

    def flush(self) -> None:
        """Bring the file in step with memory (after a full disk)."""
        if self._behind:
            self._rewrite()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            try:
                self._stream.close()
            except OSError as error:
                self._stream = None
                self._fall_behind(error)
            self._stream = None

    def window_mean(self) -> float:
        """Mean loss of the last ``window`` steps (of all, when there are fewer); nan before the first step."""
        last = [row[0] for row in self.rows[-self.window :]]
        return math.fsum(last) / len(last) if last else math.nan

    def curve(self, points: int = CURVE_POINTS) -> dict[str, list]:
        """Window means of the loss over the whole run, at most ``points`` of them.

        ``step`` and ``tokens`` are those done at a window's end, ``lr`` that of its last step. Windows with a loss
        that is not finite are left out.
        """
        width = max(1, math.ceil(len(self.rows) / points))
        curve: dict[str, list] = {"step": [], "tokens": [], "loss": [], "lr": []}
        for start in range(0, len(self.rows), width):
            rows = self.rows[start : start + width]
            mean = (
                math.fsum(row[0] for row in rows) / len(rows)
                if all(math.isfinite(row[0]) for row in rows)
                else math.nan
            )
            if not math.isfinite(mean):
                continue
            curve["step"].append(start + len(rows))
            curve["tokens"].append((start + len(rows)) * self.tokens_per_step)
            curve["loss"].append(mean)
            curve["lr"].append(rows[-1][1])
        return curve
