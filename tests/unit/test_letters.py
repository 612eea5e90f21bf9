"""Letters and formulas: LaTeX, matplotlib and HTML print each one, or the file that holds it is named."""

import re
import shutil
import subprocess
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from respath.errors import UserError
from respath.letters import COMMANDS, UPRIGHT, check_formula, latex, plain, problems_of
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.reporting.latex import tex, tex_math
from respath.reporting.looks import drawn, style
from respath.reporting.mathematics import text_html
from respath.reporting.pdf import compile_pdf, engine
from tests.golden.toy import ROOT, toy_project
from tests.unit.test_reporting_pdf import needs_tex

#: All characters of Unicode but surrogates, private ones and what stands for no character.
EVERY = [chr(c) for c in range(0x20, 0x110000) if not 0xD800 <= c < 0xF900 and c < 0xF0000]
#: Those that a paper's texts may hold.
ACCEPTED = [char for char in EVERY if not problems_of(char)]


def preamble():
    return (ROOT.parents[2] / "reports/templates/paper.tex.j2").read_text().split(r"\begin{document}")[0]


@needs_tex
def test_every_character_that_is_accepted_compiles_and_is_printed(tmp_path):
    marked = [f"n{char}n" for char in ACCEPTED] + ["x̄", "λ̂", "ậ", "i̇"]
    lines = "\n".join(rf"\mbox{{{latex(text)}}}" for text in marked)
    caption = r"\begin{table}\caption{" + latex("Ħaber Ŧuolla") + r"}\end{table}"
    document = rf"{preamble()}\begin{{document}}\raggedright {lines}{caption}\end{{document}}"
    (tmp_path / "letters.tex").write_text(document)
    made = compile_pdf(tmp_path / "letters.tex", engine())
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext here")
    text = subprocess.run(["pdftotext", "-raw", made, "-"], capture_output=True, text=True, check=True).stdout
    # What is drawn as one glyph is copied as it is; over others the accent is a glyph of its own.
    for char in "!#$%&*+/<=>@[]\\^_{|}~áçèñöøßþÿąćđěğłńőřśťůžżλβΔΩ−±×≤≥∈→∞½†€":
        assert f"n{char}n" in text, char


def test_every_character_that_is_accepted_has_a_glyph_in_figures_alone_and_beside_a_formula(caplog):
    plain = [char for char in ACCEPTED if char != "$" and "$" not in drawn(char)]
    with style(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure = Figure(figsize=(7, 40))
        for start in range(0, len(ACCEPTED), 40):
            figure.text(0, start / len(ACCEPTED), drawn("".join(plain[start : start + 40])))
            beside = "".join(ACCEPTED[start : start + 40]).replace("$", "")
            figure.text(0, start / len(ACCEPTED), drawn(f"$W_Q$ {beside}"))
        FigureCanvasAgg(figure).draw()
    # Matplotlib warns of a glyph that is missing in plain text, and logs it of formulas.
    assert [str(warning.message) for warning in said] + caplog.messages == []


def test_letters_compose_and_come_apart_alike():
    assert latex("e\u0301") == latex("é") == "é"
    assert latex("ﬁ ﬀ Ａ ⅓") == "fi ff A 1/3"
    assert latex("λ₁ x² 10⁻³") == r"$\lambda$\textsubscript{1} x² 10\textsuperscript{$-$}³"
    assert drawn("λ₁ / W₂") == "λ₁ / W₂" and drawn("$W_Q$ of λ₁") == "$W_Q$ of λ₁"
    assert plain(r"By $\lambda_{1} V'_n \le \mathrm{c}$") == "By λ_1 V'_n ≤ c" and plain("5 $") == "5 $"
    assert drawn("5 $ a_b") == r"5 \$ a_b"
    assert drawn(r"$6 \le V'_n$") == "6 ≤ V′ₙ" and drawn(r"$6 \le W_Q$") == r"$6 \leq W_Q$"


@given(st.text())
def test_any_text_at_all_can_be_printed(text):
    # The numbers of runs, names of files and errors of others: nobody has read them before they are printed.
    printed = tex(text)
    assert all(problems_of(char) == [] for char in printed.replace("$", ""))
    assert all(problems_of(char) == [] for char in tex_math(text).replace("$", ""))
    assert "<script" not in text_html(text)
    with style():
        figure = Figure()
        figure.text(0.5, 0.5, drawn(text))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            FigureCanvasAgg(figure).draw()


def test_what_cannot_be_printed_is_shown_as_its_code_point():
    assert tex("a漢\x07") == r"a\textless{}U+6F22\textgreater{}\textless{}U+0007\textgreater{}"
    assert drawn("a漢") == "a<U+6F22>"


def test_every_letter_and_formula_that_cannot_be_printed_is_refused_with_its_place(tmp_path):
    shutil.copytree(ROOT, tmp_path / "project")
    paper, tables = (tmp_path / f"project/papers/toy/{name}.yaml" for name in ("paper", "tables"))
    text = paper.read_text()
    assert "authors: [" in text
    paper.write_text(re.sub(r"authors: \[.*?\]", 'authors: ["Ħaber", "王 Li", "Phở"]', text))
    tables.write_text(tables.read_text().replace(r"V'_n = \\sum", r"V'_n = \\summe"))
    with pytest.raises(UserError) as error:
        open_papers(tmp_path / "project", {"papers": ["toy"], "scale": "smoke"})
    lines = error.value.lines
    assert len(lines) == 3, lines
    assert re.match(
        r"papers/toy/paper.yaml:\d+: authors.1: '王' \(U\+738B, CJK .*\) cannot be printed; write it in",
        lines[0],
    )
    assert "authors.2: 'ở' (U+1EDF" in lines[1] and "for instance 'o'" in lines[1]
    assert re.match(r"papers/toy/tables.yaml:\d+: .*\\summe is not known", lines[2])


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x}", "without its {"),
        ("{x", "without its }"),
        ("x_1_2", "two _"),
        ("x_", "behind _"),
        ("x^{2}'", "'"),
        (r"\mathrm", r"behind \mathrm"),
        (r"\foo", "not known"),
        ("5 % 3", "cannot stand"),
    ],
)
def test_a_formula_that_one_of_the_three_would_refuse_is_refused(source, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_formula(source)
    assert tex_math(f"${source}$").startswith(r"\$")
    assert drawn(f"${source}$").startswith(r"\$")


@needs_tex
def test_every_command_of_formulas_is_known_to_all_three(tmp_path):
    known = [rf"\{command} x" if command.isalpha() else rf"x\{command}x" for command in COMMANDS]
    known += [rf"\{command}{{a b}}_1^{{2}}" for command in UPRIGHT] + [
        "V'_n",
        "x_ab",
        "λ_1 ≤ −½é",
        r"\sum_{i \le n}^{N} V_i",
    ]
    for source in known:
        check_formula(source)
    text = " and ".join(f"${source}$" for source in known)
    assert "\\" not in text_html(text)
    with style():
        figure = Figure()
        figure.text(0.5, 0.5, drawn(text))
        FigureCanvasAgg(figure).draw()
    (tmp_path / "formulas.tex").write_text(rf"{preamble()}\begin{{document}}{tex_math(text)}\end{{document}}")
    compile_pdf(tmp_path / "formulas.tex", engine())


def test_the_papers_of_this_repository_hold_nothing_that_cannot_be_printed():
    # Loading them checks it; the toy project has a label of special characters.
    assert toy_project().chosen and open_papers(find_root(), {}).chosen
