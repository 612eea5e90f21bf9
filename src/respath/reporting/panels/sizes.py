"""Panels over model sizes: validation loss against parameters, a fit, and the parameters saved at equal loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from respath.comparison.curves import parameter_saving, parameters_at_loss
from respath.comparison.readings import Reading
from respath.comparison.statistics import mean
from respath.config.panels import Sizes
from respath.config.request import RunRequest
from respath.reporting.panels.data import Drawn, Line, Mark
from respath.reporting.panels.reader import Reader, averaged
from respath.reporting.panels.savings import Saved, saving_texts

#: Sizes that a quadratic needs.
_FEWEST = 3


def sizes(reader: Reader, letter: str, panel: Sizes) -> Drawn:
    """One line per variant over the sizes, printed losses at the paper's own sizes, fits, and savings."""
    lines, printed_lines, fits = {}, [], []
    for variant in panel.variants:
        marks, printed_marks = [], []
        for size in panel.sizes:
            request = reader.request(panel.run, RunRequest(size=size, variant=variant))
            values = reader.values(request, "loss.mean", f"{reader.label(request)} {size}")
            count = _parameters(reader, size, variant)
            if count is None:
                reader.remark(
                    f"No losses against size: {reader.results.accounts_path(reader.paper)} has no parameter counts."
                )
            elif values:
                marks.append(averaged(float(count), values))
            printed = reader.printed(panel.printed, request)
            own = _parameters(reader, size, variant, "paper")
            if printed is not None and own is not None:
                printed_marks.append(Mark(float(own), printed))
        request = reader.request(panel.run, RunRequest(variant=variant))
        lines[variant] = reader.line(request, sorted(marks, key=lambda mark: mark.x))
        printed_lines.append(reader.line(request, printed_marks, role="printed"))
        fits += _fit(lines[variant])
    saved = {
        reader.label(RunRequest(variant=variant)): _saving(reader, panel, variant) for variant in panel.saving
    }
    texts = saving_texts("parameters", panel.direction, saved, reader.printed_cell(panel.printed_saving))
    if panel.saving:
        fits += _equal_loss(lines.get(panel.saving[0]), lines.get(panel.baseline))
    return Drawn(letter, panel, (*lines.values(), *printed_lines, *fits), texts=texts)


def _parameters(reader: Reader, size: str, variant: str, scale: str | None = None) -> int | None:
    own = "paper" if reader.project.scale.id == "paper" else "scale"
    account = reader.results.account(reader.paper, size, variant, scale or own)
    return account["parameters"]["total"] if account else None


def _fit(line: Line) -> list[Line]:
    """A quadratic in the logarithm of the parameters through the means; nothing for fewer than three sizes."""
    counts = [mark.x for mark in line.marks]
    if len(set(counts)) < _FEWEST:
        return []
    fit = np.polyfit(np.log(counts), [mark.value for mark in line.marks], 2)
    grid = np.geomspace(min(counts), max(counts), 40)
    marks = tuple(Mark(float(n), float(np.polyval(fit, np.log(n)))) for n in grid)
    return [Line(f"{line.id}.fit", f"{line.label}, quadratic", line.colour, line.rank, marks, "fit")]


def _saving(reader: Reader, panel: Sizes, variant: str) -> Saved:
    """The saving of a variant over all seeds, and when one size is left out of its fit."""

    def readings(sizes: Sequence[str]) -> list[Reading]:
        pairs = [
            tuple(
                reader.request(panel.run, RunRequest(size=size, variant=v)) for v in (variant, panel.baseline)
            )
            for size in sizes
        ]
        seeds = sorted({run.seed for left, _ in pairs for run in reader.runs(left)})
        return [parameter_saving(reader.project, reader.results, reader.paper, pairs, seed) for seed in seeds]

    found = readings(panel.sizes)
    whole = _measured(found)
    if not whole and found[0].reason.startswith("the quadratic"):
        reader.remark(f"No saving of {reader.label(RunRequest(variant=variant))}: {found[0].reason}.")
    without = []
    if whole and len(panel.sizes) > _FEWEST:
        for left_out in panel.sizes:
            values = _measured(readings([size for size in panel.sizes if size != left_out]))
            without += [mean(values)] if values else []
    return Saved(whole, without)


def _measured(readings: Sequence[Reading]) -> list[float]:
    return [reading.value for reading in readings if reading.state == "measured"]


def _equal_loss(line: Line | None, baseline: Line | None) -> list[Line]:
    """From the variant's fit to the baseline's largest model at its loss: what the saving means, drawn."""
    if line is None or baseline is None or len(line.marks) < _FEWEST or not baseline.marks:
        return []
    counts, losses = [mark.x for mark in line.marks], [mark.value for mark in line.marks]
    if len(set(counts)) < _FEWEST:
        return []
    largest = baseline.marks[-1]
    equal = parameters_at_loss(counts, losses, largest.value, largest.x)
    if equal is None or not min(counts) / 3 < equal < max(counts) * 3:
        return []
    marks = (Mark(equal, largest.value), Mark(largest.x, largest.value))
    return [Line(f"{line.id}.equal-loss", "equal loss", "#666666", 0, marks, "fit")]
