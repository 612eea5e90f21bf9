"""Who may import whom around the papers, and that no code knows one of them by name."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/respath"
#: What the room of papers may import: what a run is, names of metrics, and plain tools.
BELOW_PAPERS = (
    "spec",
    "quantities",
    "config",
    "documents",
    "settings",
    "files",
    "errors",
    "letters",
)
#: The papers whose names are looked for: those that the project replicates.
PAPERS = ("resformer", "bov", "depthbench")


def imports(path: Path) -> set[str]:
    """Modules of respath that a file imports, inside functions too, without the leading ``respath.``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "respath":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in names if (SOURCE.parent / f"{name.replace('.', '/')}.py").exists()]
            found |= set(modules or [node.module])
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("respath.")}
    return {name.removeprefix("respath.") for name in found}


def texts(path: Path) -> str:
    """The texts in a module's code, without its docstrings and comments."""
    tree = ast.parse(path.read_text())
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in bare)
    return "\n".join(text for text in strings if isinstance(text, str))


def test_papers_import_nothing_above_them():
    for path in (SOURCE / "papers").glob("*.py"):
        above = {name for name in imports(path) if not name.startswith(("papers", *BELOW_PAPERS))}
        assert not above, f"papers/{path.name} imports {sorted(above)}"


def test_nothing_below_papers_reads_one():
    for room in ("spec", "quantities", "data", "training"):
        for path in (SOURCE / room).rglob("*.py"):
            assert not {name for name in imports(path) if name.startswith("papers.")}, path


def test_quantities_import_no_paper_no_file_of_results_and_nothing_above():
    below = ("quantities", "spec", "config.request", "errors", "files")
    for path in (SOURCE / "quantities").glob("*.py"):
        above = {name for name in imports(path) if not name.startswith(below)}
        assert not above, f"quantities/{path.name} imports {sorted(above)}"


def test_only_kinds_name_a_result_file_or_a_list_of_kinds():
    files = re.compile(r"(?<!respath )\b(runs|evals|analyses|kv)/\{|\bevals/|\b(loss|lm)\.json$")
    for room in ("comparison", "reporting", "reference", "papers", "results", "config"):
        for path in (SOURCE / room).rglob("*.py"):
            assert not files.search(texts(path)), path


def test_the_modules_of_papers_form_no_circle():
    graph = {
        path.stem: {name.split(".")[1] for name in imports(path) if name.startswith("papers.")}
        for path in (SOURCE / "papers").glob("*.py")
    }
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_no_code_names_a_paper_a_size_or_a_table():
    names = set(PAPERS)
    for paper in PAPERS:
        folder = ROOT / "papers" / paper
        names |= set(yaml.safe_load((folder / "paper.yaml").read_text())["sizes"])
        for name in ("tables", "figures"):
            if (folder / f"{name}.yaml").exists():
                ids = yaml.safe_load((folder / f"{name}.yaml").read_text())[name]
                names |= {id for id in ids if re.search(r"\d", id)}
    pattern = re.compile(
        rf"(?<![\w-])({'|'.join(map(re.escape, sorted(names)))})(?![\w-])|\b({'|'.join(PAPERS)})_"
    )
    code = {path: texts(path) for path in SOURCE.rglob("*.py")}
    for path in (ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")):
        code[path] = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE)
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path, text in code.items()
        if (match := pattern.search(text))
    }
    assert not found
