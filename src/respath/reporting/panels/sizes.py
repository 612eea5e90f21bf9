"""Panels over model sizes: validation loss against parameters, a fit, and the parameters saved at equal loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from respath.config.request import RunRequest
from respath.papers.figures import Sizes
from respath.quantities.curves import parameters_at_loss
from respath.quantities.derived import NO_FIT
from respath.quantities.quantity import Quantity
from respath.quantities.sample import Sample
from respath.quantities.statistics import jackknife_interval
from respath.reporting.panels.data import Drawn, Line, Mark
from respath.reporting.panels.reader import Reader, averaged
from respath.reporting.panels.savings import Saving, saving_texts, unfit, untold

#: Sizes that a quadratic needs.
_FEWEST = 3


def sizes(reader: Reader, letter: str, panel: Sizes) -> Drawn:
    """One line per variant over the sizes, printed losses at the paper's own sizes, fits, and savings."""
    shapes = reader.project.folder(reader.paper).paper.sizes
    for size in panel.sizes:
        if shapes[size].inferred:
            reader.remark(f"The shape of {size} is inferred: the paper does not print it.")
    lines, printed_lines, fits = {}, [], []
    for variant in panel.variants:
        marks, printed_marks = [], []
        for size in panel.sizes:
            request = reader.request(panel.run, RunRequest(size=size, variant=variant))
            values = reader.values(request, "loss.mean", f"{reader.label(request)} {size}")
            count = _parameters(reader, size, variant)
            if count is not None and values.numbers:
                marks.append(averaged(float(count), values))
            printed = reader.printed(panel.printed, request)
            own = _parameters(reader, size, variant, own_scale=False)
            if printed is not None and own is not None:
                printed_marks.append(Mark(float(own), printed))
        request = reader.request(panel.run, RunRequest(variant=variant))
        lines[variant] = reader.line(request, sorted(marks, key=lambda mark: mark.x))
        printed_lines.append(reader.line(request, printed_marks, role="printed"))
        fits += [] if unfit(reader.project.scale) else _fit(lines[variant])
    savings = [found for variant in panel.saving if (found := parameters_saved(reader, panel, variant))]
    for sentence in untold(savings):
        reader.remark(sentence)
    if savings and savings[0].told:
        fits += _equal_loss(lines[savings[0].variant], lines[panel.baseline])
    texts = saving_texts("parameters", panel.direction, savings, reader.printed_cell(panel.printed_saving))
    return Drawn(
        letter,
        panel,
        (*lines.values(), *printed_lines, *fits),
        savings=tuple(savings),
        texts=texts,
        x_points=tuple(float(c) for size in panel.sizes if (c := _parameters(reader, size, panel.baseline))),
    )


def _parameters(reader: Reader, size: str, variant: str, own_scale: bool = True) -> int | None:
    request = RunRequest(size=size, variant=variant)
    return reader.sample(Quantity("account.parameters.total", request, own_scale=own_scale)).value


def _fit(line: Line) -> list[Line]:
    """A quadratic in the logarithm of the parameters through the means; nothing for fewer than three sizes."""
    counts = [mark.x for mark in line.marks]
    if len(set(counts)) < _FEWEST:
        return []
    fit = np.polyfit(np.log(counts), [mark.value for mark in line.marks], 2)
    grid = np.geomspace(min(counts), max(counts), 40)
    marks = tuple(Mark(float(n), float(np.polyval(fit, np.log(n)))) for n in grid)
    return [Line(f"{line.id}.fit", f"{line.label}, quadratic", line.colour, line.rank, marks, "fit")]


def parameters_saved(reader: Reader, panel: Sizes, variant: str) -> Saving | None:
    """Per cent of parameters that a variant saves: the mean over the seeds that have every size; None while none has.

    Its interval is the delete-one jackknife over sizes (``statistics.jackknife_interval``): the fit and the mean are made again
    without each size in turn. Sizes carry the noise of their seeds and the misfit of the quadratic, so both are in it. It
    takes four sizes, because a quadratic needs three; without an interval the figure does not tell the saving.
    """

    def saved(sizes: Sequence[str]) -> Sample:
        sides = (reader.request(panel.run, RunRequest(variant=name)) for name in (variant, panel.baseline))
        along = tuple(RunRequest(size=size) for size in sizes)
        return reader.sample(Quantity("scaling.parameter_saving", *sides, along=along))

    label = reader.label(RunRequest(variant=variant))
    sample = saved(panel.sizes)
    if not sample.numbers:
        behind = any(reading.reason == NO_FIT for reading in sample.by_seed.values())
        return Saving(variant, label, None, seeds=0, reason=NO_FIT) if behind else None
    without = []
    if len(panel.sizes) > _FEWEST:
        for left_out in panel.sizes:
            again = saved([size for size in panel.sizes if size != left_out]).among(sample.numbers)
            without += [again.value] if len(again.numbers) == len(sample.numbers) else []
    value = sample.value
    interval = jackknife_interval(value, without) if len(without) == len(panel.sizes) else None
    reason = unfit(reader.project.scale)
    if not reason and interval is None:
        few = len(panel.sizes) <= _FEWEST
        reason = "an interval needs four sizes" if few else "its fit does not hold without each of the sizes"
    return Saving(variant, label, value, interval, len(sample.numbers), reason)


def _equal_loss(line: Line, baseline: Line) -> list[Line]:
    """From the variant's fit to the baseline's largest model at its loss: what the saving means, drawn."""
    if len(line.marks) < _FEWEST or not baseline.marks:
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
