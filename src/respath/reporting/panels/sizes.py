"""Panels over model sizes: validation loss against parameters, a fit, and the parameters saved at equal loss."""

from __future__ import annotations

from collections.abc import Sequence

from respath.config.request import RunRequest
from respath.papers.figures import Sizes
from respath.quantities.curves import parameters_at_loss, quadratic_fit
from respath.quantities.derived import NO_FIT
from respath.quantities.quantity import Quantity
from respath.quantities.rounding import short_count
from respath.quantities.sample import Sample
from respath.quantities.statistics import jackknife_interval
from respath.reporting.panels.data import Drawn, Line, Mark
from respath.reporting.panels.reader import Reader
from respath.reporting.panels.savings import Saving, saving_sentence, unfit, withheld

#: Sizes that a quadratic needs.
_FEWEST = 3


def sizes(reader: Reader, letter: str, panel: Sizes) -> Drawn:
    """One line per variant over the sizes: less the baseline of each size where levels say nothing, else levels with fits."""
    scale = reader.project.scale
    for size in panel.sizes:
        if reader.folder.paper.sizes[size].inferred:
            reader.remark(f"The shape of {size} is inferred: the paper does not print it.")
    places = {size: _parameters(reader, size, panel.baseline) for size in panel.sizes}
    ticks = {
        size: _tick(count, size, scale.comparable) for size, count in places.items() if count is not None
    }
    samples = {
        (size, variant): (request, reader.values(request, "loss.mean", f"{reader.label(request)} {size}"))
        for variant in panel.variants
        for size in panel.sizes
        for request in [reader.request(panel.run, RunRequest(size=size, variant=variant))]
    }
    lines, printed_lines, others = {}, [], []
    for variant in panel.variants:
        marks, printed_marks = [], []
        for size in ticks:
            request, sample = samples[size, variant]
            against, base = samples[size, panel.baseline] if variant != panel.baseline else (None, None)
            own = _parameters(reader, size, variant)
            # Levels stand at their own parameters; differences at the size's, where both sides of them belong.
            x = float(places[size] if not scale.comparable or own is None else own)
            printed = reader.printed_difference(panel.printed, request, against)
            mark = reader.mark(x, sample, base, printed)
            marks.append(mark.at(ticks[size]))
            level = reader.printed(panel.printed, request)
            if level is not None:
                printed_marks.append(Mark(x, level, difference=reader.printed_estimate(printed)))
        request = reader.request(panel.run, RunRequest(variant=variant))
        lines[variant] = reader.line(request, sorted(marks, key=lambda mark: mark.x))
        printed_lines.append(reader.line(request, sorted(printed_marks, key=lambda m: m.x), role="printed"))
        others += [] if unfit(scale) else _fit(lines[variant])
    for size in ticks:
        others += reader.floors(
            panel.floors, float(places[size]), panel.run, RunRequest(size=size, variant=panel.baseline)
        )
    savings = [found for variant in panel.saving if (found := parameters_saved(reader, panel, variant))]
    for sentence in withheld(savings):
        reader.remark(sentence)
    if savings and savings[0].given:
        others += _equal_loss(lines[savings[0].variant], lines[panel.baseline])
    printed_saving = reader.printed_cell(panel.printed_saving)
    said = saving_sentence("parameters", panel.direction, savings, printed_saving)
    return Drawn(
        letter,
        panel,
        (*lines.values(), *printed_lines, *others),
        against=reader.label(RunRequest(variant=panel.baseline)),
        differences=not scale.comparable and len(panel.variants) > 1,
        savings=tuple(savings),
        sentences=tuple(filter(None, [said])),
    )


def _tick(count: int, size: str, comparable: bool) -> str:
    """What was measured, and the paper's size that it stands for."""
    return short_count(count) if comparable else f"{short_count(count)}\nfor {size}"


def _parameters(reader: Reader, size: str, variant: str) -> int | None:
    request = RunRequest(size=size, variant=variant)
    return reader.sample(Quantity("account.parameters.total", request, own_scale=True)).value


def _fit(line: Line) -> list[Line]:
    """A quadratic in the logarithm of the parameters through the means; nothing for fewer than three sizes."""
    counts = [mark.x for mark in line.measured]
    if len(set(counts)) < _FEWEST:
        return []
    points = quadratic_fit(counts, [mark.value for mark in line.measured])
    marks = tuple(Mark(*point) for point in points)
    return [Line(f"{line.id}.fit", f"{line.label}, quadratic", line.slot, marks, "fit")]


def parameters_saved(reader: Reader, panel: Sizes, variant: str) -> Saving | None:
    """Per cent of parameters that a variant saves: the mean over the seeds that have every size; None while none has.

    Its interval is the delete-one jackknife over sizes (``statistics.jackknife_interval``): the fit and the mean are made again
    without each size in turn. Sizes carry the noise of their seeds and the misfit of the quadratic, so both are in it. It
    takes four sizes, because a quadratic needs three; without an interval the caption does not give the saving.
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
    if len(line.measured) < _FEWEST or not baseline.measured:
        return []
    counts, losses = [mark.x for mark in line.measured], [mark.value for mark in line.measured]
    if len(set(counts)) < _FEWEST:
        return []
    largest = baseline.measured[-1]
    equal = parameters_at_loss(counts, losses, largest.value, largest.x)
    if equal is None or not min(counts) / 3 < equal < max(counts) * 3:
        return []
    marks = (Mark(equal, largest.value), Mark(largest.x, largest.value))
    return [Line(f"{line.id}.equal-loss", "equal loss", line.slot, marks, "fit")]
