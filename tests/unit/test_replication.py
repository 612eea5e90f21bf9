"""The replication article: a chapter holds numbers of result files alone, and says so where there are none."""

from __future__ import annotations

from respath.comparison.report import Report
from respath.reporting.replication import chapter
from respath.results.reader import Results
from tests.golden.toy import LOSSES, toy, toy_project

TEMPLATE = """## Toy
{{ report.found }}
{{ main }}
{{ judged }}
{{ noise }}
{{ power }}
{{ missing }}
base {{ mean("loss.mean", size="S", variant="base") }}, {{ mean("spec.recipe.steps", 0, size="S", variant="base") }} steps
"""


def written(folder, project, results):
    template = folder / "replication.md.j2"
    template.write_text(TEMPLATE)
    return chapter(Report(project, results, "toy"), template)


def test_a_chapter_tells_the_results_with_intervals_noise_and_power(tmp_path):
    text = written(tmp_path, *toy(tmp_path / "results", "paper"))
    assert f"base {sum(LOSSES['base']) / 3:.3f}, 100 steps" in text
    assert "| Mix has a lower loss than Base | −0.05 | −0.0497 [−0.0559, −0.0434] | 3 | supported |" in text
    assert "| Mix has a lower loss than Base | 3 | 0.0025 | – |" in text
    assert "| Mix has a lower loss than Base | 0.029 | 0.0082 | 0.0042 | 0.0029 | 0.0025 | 2 seeds |" in text


def test_without_results_a_chapter_has_no_number_of_ours(tmp_path):
    project = toy_project("paper")
    text = written(tmp_path, project, Results(project, tmp_path / "nothing"))
    assert "base not run" in text and text.count("No paired difference has two seeds yet.") == 2
    assert "Nothing has been run" in text
