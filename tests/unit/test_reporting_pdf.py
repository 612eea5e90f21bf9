"""The PDF of a paper: the LaTeX document always, the PDF where TeX is installed."""

import os
import re
import shutil
import subprocess

import pytest

from respath.reporting import pdf
from respath.reporting.pdf import main
from tests.golden.toy import ROOT, toy


def arguments(folder, scale):
    return [
        "--project-root",
        str(ROOT),
        "--results",
        str(folder / "results"),
        "--scale",
        scale,
        "--out-dir",
        str(folder),
    ]


def rendered(folder, scale):
    toy(folder / "results", scale)


def what_is_missing():
    try:
        pdf.engine()
    except pdf.NoTex as missing:
        return str(missing)
    return ""


needs_tex = pytest.mark.skipif(what_is_missing() != "", reason=what_is_missing() or "TeX is here")


@needs_tex
@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_every_table_compiles_and_none_is_wider_than_the_page(tmp_path, scale, monkeypatch):
    logs = []
    run = subprocess.run

    def keep_output(*args, **kwargs):
        done = run(*args, **kwargs)
        logs.append(done.stdout)
        return done

    monkeypatch.setattr(pdf.subprocess, "run", keep_output)
    rendered(tmp_path, scale)
    assert main([*arguments(tmp_path, scale), "--paper", "toy"]) == 0
    assert (tmp_path / "toy.pdf").read_bytes().startswith(b"%PDF")
    # TeX reports lines that are too wide in points; less than two cannot be seen.
    assert [w for w in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", logs[0]) if float(w) > 2] == []


@needs_tex
def test_a_pdf_is_the_same_bytes_again(tmp_path):
    made = []
    for name in ("a", "b"):
        rendered(tmp_path / name, "smoke")
        assert main([*arguments(tmp_path / name, "smoke"), "--paper", "toy"]) == 0
        made.append((tmp_path / name / "toy.pdf").read_bytes())
    assert made[0] == made[1]


@needs_tex
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no pdftotext here")
def test_a_label_with_every_special_character_is_printed_as_it_is(tmp_path):
    rendered(tmp_path, "smoke")
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy"]) == 0
    text = subprocess.run(
        ["pdftotext", tmp_path / "toy.pdf", "-"], capture_output=True, text=True, check=True
    ).stdout
    assert "a_b&c%$(x)" in text and "costs 5 $ & more" in text


@needs_tex
def test_a_mistake_in_a_table_is_told_with_texs_own_words(tmp_path, capsys, monkeypatch):
    rendered(tmp_path, "smoke")
    monkeypatch.setattr(pdf, "render", lambda report, table: (None, {"tex": r"\undefinedcommand"}))
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy"]) == 2
    assert "Undefined control sequence" in capsys.readouterr().err


def without_tex(folder, monkeypatch):
    """An environment in which no program of TeX is found."""
    monkeypatch.setenv("PATH", str(folder / "none"))


def without_lmodern(folder, monkeypatch):
    """A TeX that finds all that the documents load but Latin Modern, as Debian's texlive-latex-extra leaves it."""
    styles = [name for name in pdf.NEEDED if name.endswith(".sty") and name != "lmodern.sty"]
    found = subprocess.run(["kpsewhich", *styles], capture_output=True, text=True).stdout.split()
    monkeypatch.setenv("TEXINPUTS", ":".join(sorted({os.path.dirname(path) for path in found})))
    monkeypatch.setenv("PATH", os.pathsep.join(sorted({os.path.dirname(shutil.which(p)) for p in PROGRAMS})))


PROGRAMS = ("latexmk", "pdflatex", "kpsewhich")
some_tex = pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="no TeX here")


@pytest.mark.parametrize(
    ("hidden", "named"),
    [
        pytest.param(without_tex, ("latexmk", "texlive-science", "lmodern", "tectonic"), id="no TeX"),
        pytest.param(without_lmodern, ("lmodern.sty", "install lmodern"), id="no lmodern", marks=some_tex),
    ],
)
def test_without_a_whole_tex_the_document_is_written_and_one_line_names_the_package(
    tmp_path, monkeypatch, capsys, hidden, named
):
    hidden(tmp_path, monkeypatch)
    if shutil.which("tectonic"):
        pytest.skip("tectonic brings its own packages")
    rendered(tmp_path, "smoke")
    capsys.readouterr()
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1 and all(word in shown for word in named), shown
    assert (tmp_path / "toy.tex").exists() and not (tmp_path / "toy.pdf").exists()
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy", "--require"]) == 2


@needs_tex
def test_a_users_latexmkrc_changes_nothing(tmp_path, monkeypatch):
    rendered(tmp_path, "smoke")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".latexmkrc").write_text("$pdf_mode = 4; $lualatex = 'false';\n$pdflatex = 'false';\n")
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy"]) == 0


def test_a_figure_that_is_not_rendered_is_named_and_not_included(tmp_path, monkeypatch):
    without_tex(tmp_path, monkeypatch)
    rendered(tmp_path, "smoke")
    main([*arguments(tmp_path, "smoke"), "--paper", "toy"])
    text = (tmp_path / "toy.tex").read_text()
    assert "includegraphics" not in text
    assert r"fig1 has not been rendered; \texttt{snakemake toy\_fig1}" in text


@needs_tex
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no pdftotext here")
def test_the_first_page_is_the_first_screen_and_copied_text_keeps_its_signs(tmp_path):
    """Tables and verdicts come from one reading: the interval of the claim stands in Table 1 too."""
    rendered(tmp_path, "paper")
    assert main([*arguments(tmp_path, "paper"), "--paper", "toy"]) == 0
    command = ["pdftotext", "-layout", tmp_path / "toy.pdf", "-"]
    pages = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\f")
    assert "Of 3 measured claims, 2 are supported" in pages[0] and "The main claims." in pages[0]
    assert "[−0.0559, −0.0434]" in pages[0] and "Settings are inputs" in pages[0]
    assert any("[−0.056, −0.043]" in page for page in pages[1:])
    assert "=0.0" not in "".join(pages)
