"""The PDF of a paper: the LaTeX document always, the PDF where TeX is installed."""

import re
import shutil
import subprocess

import pytest

from respath.reporting import pdf
from respath.reporting.pdf import main
from respath.reporting.table import main as table_main
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


def rendered(folder, scale, names=("table1", "table2", "table3", "table4", "kv")):
    toy(folder / "results", scale)
    for name in names:
        assert table_main([*arguments(folder, scale), "--target", f"toy_{name}"]) == 0


needs_tex = pytest.mark.skipif(pdf.engine() is None, reason="no latexmk and no tectonic here")


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
        rendered(tmp_path / name, "smoke", ("table1",))
        assert main([*arguments(tmp_path / name, "smoke"), "--paper", "toy"]) == 0
        made.append((tmp_path / name / "toy.pdf").read_bytes())
    assert made[0] == made[1]


@needs_tex
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no pdftotext here")
def test_a_label_with_every_special_character_is_printed_as_it_is(tmp_path):
    rendered(tmp_path, "smoke", ("table1",))
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy"]) == 0
    text = subprocess.run(
        ["pdftotext", tmp_path / "toy.pdf", "-"], capture_output=True, text=True, check=True
    ).stdout
    assert "a_b&c%$(x)" in text and "costs 5 $ & more" in text


@needs_tex
def test_a_mistake_in_a_table_is_told_with_texs_own_words(tmp_path, capsys):
    rendered(tmp_path, "smoke", ("table1",))
    (tmp_path / "table1.tex").write_text("\\undefinedcommand\n")
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy"]) == 2
    assert "Undefined control sequence" in capsys.readouterr().err


def test_without_tex_the_document_is_written_and_one_line_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pdf, "engine", lambda: None)
    rendered(tmp_path, "smoke", ("table1",))
    capsys.readouterr()
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1 and "latexmk" in shown and "tectonic" in shown
    assert (tmp_path / "toy.tex").exists() and not (tmp_path / "toy.pdf").exists()
    assert main([*arguments(tmp_path, "smoke"), "--paper", "toy", "--require"]) == 2


def test_what_is_not_rendered_is_named_and_not_included(tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "engine", lambda: None)
    rendered(tmp_path, "smoke", ("table1",))
    main([*arguments(tmp_path, "smoke"), "--paper", "toy"])
    text = (tmp_path / "toy.tex").read_text()
    assert r"\input{table1.tex}" in text and r"\input{table2.tex}" not in text
    assert r"table2 has not been rendered; \texttt{snakemake toy\_table2}" in text
