"""``python -m respath.reporting.pdf``: all rendered tables and figures of a paper as one LaTeX document and, with TeX, a PDF."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from respath.comparison.options import add_options, open_project
from respath.comparison.report import Report
from respath.errors import OK, WRONG_USE, UserError, guard
from respath.files import atomic_open, read_json, write_text
from respath.papers.library import Artifact
from respath.papers.paper import Paper
from respath.reporting.latex import environment
from respath.reporting.layout import METHOD
from respath.reporting.page import artifact_context, claim_context, claim_groups
from respath.reporting.table import render

#: Files that the documents load and that an installation may lack, with the Debian package of each.
NEEDED = {
    "lmodern.sty": "lmodern",
    "lmr10.pfb": "lmodern",
    "siunitx.sty": "texlive-science",
    "booktabs.sty": "texlive-latex-recommended",
    "etoolbox.sty": "texlive-latex-recommended",
    "microtype.sty": "texlive-latex-recommended",
}


def citation(paper: Paper) -> str:
    """Authors, title, venue and arXiv id on one line."""
    venue = f"{paper.venue}, " if paper.venue else f"{paper.year}, "
    return f"{', '.join(paper.authors)}. {paper.title}. {venue}arXiv {paper.arxiv}."


def document(report: Report, folder: Path) -> str:
    """The LaTeX document of a report: its first page is the page's first screen. Figures are taken from ``folder``."""
    paper = report.paper
    shown = [artifact for artifact in report.artifacts if not report.is_empty(artifact)]
    absent = [artifact for artifact in report.artifacts if report.is_empty(artifact)]
    tables = {
        True: [a for a in shown if a.is_table and a.definition.kind != "runs"],
        False: [a for a in shown if a.is_table and a.definition.kind == "runs"],
    }
    tex = {kind: [render(report, a)[1]["tex"] for a in found] for kind, found in tables.items()}
    return (
        environment(report.project)
        .get_template("paper.tex.j2")
        .render(
            title=paper.title,
            citation=citation(paper),
            scale=report.scale.id,
            ended=report.ended,
            wanted=len(report.runs),
            headline=report.headline,
            sure=report.sure,
            main=[claim_context(report, claim, None) for claim in report.main],
            groups=claim_groups(report) if report.claims else [],
            tally=report.tally,
            counts=report.counts.texts(),
            data_note=report.provenance.data_note if report.provenance.stand_in else "",
            method=METHOD,
            tables=tex[False],
            settings=tex[True],
            figures=[_figure(artifact, folder) for artifact in shown if not artifact.is_table],
            absent=[artifact_context(report, artifact) for artifact in absent],
            missing=report.missing(),
        )
    )


def _figure(artifact: Artifact, folder: Path) -> dict[str, object]:
    words = folder / f"{artifact.id}.json"
    parts = read_json(words)["caption"].values() if words.exists() else [artifact.definition.caption.strip()]
    return {
        "id": artifact.id,
        "number": artifact.id.removeprefix("fig"),
        "target": artifact.target,
        "title": artifact.definition.title,
        "caption": " ".join(filter(None, parts)),
        "missing": not (folder / f"{artifact.id}.pdf").exists(),
    }


class NoTex(UserError):
    """No TeX here that makes the documents as they are meant; the message names what to install."""


def engine() -> str:
    """latexmk (with pdflatex) or tectonic, whichever is whole: no other font stands in, so that every PDF is the same.

    Raises NoTex.
    """
    here = all(shutil.which(program) for program in ("latexmk", "pdflatex", "kpsewhich"))
    missing = _missing_files() if here else []
    if here and not missing:
        return "latexmk"
    if shutil.which("tectonic"):  # fetches what it needs
        return "tectonic"
    if not here:
        needed = ", ".join(["latexmk", *dict.fromkeys(NEEDED.values())])
        raise NoTex(
            f"no TeX here: install {needed} (Debian packages), or tectonic (conda-forge), then run the same command again"
        )
    packages = dict.fromkeys(NEEDED[file] for file in missing)
    raise NoTex(
        f"the TeX here lacks {', '.join(missing)}: install {', '.join(packages)} "
        f"(Debian package{'s' * (len(packages) > 1)}), then run the same command again"
    )


def _missing_files() -> list[str]:
    found = subprocess.run(["kpsewhich", *NEEDED], capture_output=True, text=True, errors="replace")
    names = {Path(line).name for line in found.stdout.splitlines()}
    return [file for file in NEEDED if file not in names]


def compile_pdf(tex: Path, program: str) -> Path:
    """Compile in a scratch folder and move the PDF beside its source. Raises UserError with TeX's own first complaint."""
    with tempfile.TemporaryDirectory(prefix="respath-tex-") as scratch:
        if program == "latexmk":
            command = [
                "latexmk",
                "-norc",  # a user's latexmkrc may choose another engine, or other folders
                "-pdf",
                "-interaction=nonstopmode",
                "-halt-on-error",
                f"-output-directory={scratch}",
                tex.name,
            ]
        else:
            command = ["tectonic", "--outdir", scratch, "--keep-logs", tex.name]
        clock = {"SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
        done = subprocess.run(
            command, cwd=tex.parent, env=os.environ | clock, capture_output=True, text=True, errors="replace"
        )
        made = Path(scratch) / f"{tex.stem}.pdf"
        if done.returncode or not made.exists():
            raise UserError(
                f"{tex}: {program} failed: {_complaint(Path(scratch) / f'{tex.stem}.log', done.stdout + done.stderr)}"
            )
        with atomic_open(tex.with_suffix(".pdf")) as stream:
            stream.write(made.read_bytes())
    return tex.with_suffix(".pdf")


def _complaint(log: Path, output: str) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else output
    found = re.search(r"^! (.*?)\nl\.(\d+)(.*)$", text, flags=re.MULTILINE | re.DOTALL)
    if found:
        return f"{found[1].splitlines()[0]} (line {found[2]}:{found[3].splitlines()[0]})"
    return (text.strip().splitlines() or ["no message"])[-1]


@guard
def main(arguments: list[str] | None = None) -> int:
    """Write <paper>.tex and, where TeX is installed, <paper>.pdf. Without it: one line, exit 0 (2 with --require)."""
    parser = argparse.ArgumentParser(prog="python -m respath.reporting.pdf", description=__doc__)
    add_options(parser)
    parser.add_argument("--paper", required=True, help="paper id, a folder of papers/")
    parser.add_argument(
        "--out-dir", type=Path, help="folder of the rendered tables (default: reports/out/<scale>/<paper>)"
    )
    parser.add_argument("--require", action="store_true", help="exit 2 when no TeX is installed")
    options = parser.parse_args(arguments)
    project, results = open_project(options)
    project.folder(options.paper)
    folder = options.out_dir or project.root / "reports" / "out" / project.scale.id / options.paper
    tex = folder / f"{options.paper}.tex"
    write_text(tex, document(Report(project, results, options.paper), folder))
    try:
        program = engine()
    except NoTex as missing:
        print(f"{tex} written; {missing}", file=sys.stderr if options.require else sys.stdout)
        return WRONG_USE if options.require else OK
    print(compile_pdf(tex, program))
    return OK


if __name__ == "__main__":
    sys.exit(main())
