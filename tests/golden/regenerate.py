"""``python -m tests.golden.regenerate``: write the expected files anew after a wanted change; read the diff before a commit."""

import tempfile
from pathlib import Path

from respath.comparison.diff import compare, markdown
from respath.comparison.report import Report
from respath.files import write_text
from respath.reporting.table import render as render_table
from tests.golden.toy import EXPECTED, toy

#: Scales of the golden files: one that may not be compared with the paper, and one that may.
SCALES = ("smoke", "paper")


def texts(scale):
    """Name -> text of every golden file at a scale."""
    with tempfile.TemporaryDirectory() as folder:
        project, results = toy(Path(folder) / "results", scale)
        files = {}
        report = Report(project, results, "toy")
        for artifact in report.artifacts:
            if artifact.is_table:
                _, made = render_table(report, artifact)
                files |= {f"{artifact.id}.{ending}": text for ending, text in made.items()}
        files["diff.md"] = markdown(compare(project, results))
        return files


def regenerate():
    """Write all of them."""
    for scale in SCALES:
        for name, text in texts(scale).items():
            write_text(EXPECTED / scale / name, text)


if __name__ == "__main__":
    regenerate()
