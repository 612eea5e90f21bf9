"""Which code computed a number: a hash of the syntax trees of the modules that one spec's model, training or measurement imports.

Comments, docstrings, messages of errors, the order of imports and the names of files are no part of it, nor is a module that this
spec does not import: another value path, stream, backbone, optimizer or engine. Imports are found in the sources, without running
them, from an entry module; what is found by name at run time (the parts that a spec names) is added here. The trees are written
out in a form of our own, so that every version of Python finds the same hash.

``{"model", "training", "shared"}``: of the model alone; of the model and its training; of the training less the spec's own parts,
which is equal for all runs that one state of the code trained.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import respath
from respath.spec.model import ModelSpec
from respath.spec.parts import module_name
from respath.spec.run import RunSpec

if TYPE_CHECKING:
    from respath.spec.recipe import Recipe

#: Modules (and all below them) that read settings, move files or speak to people: no number of a run depends on them. Tokens are
#: known by the hash of their manifest; which rows a step takes is the loader's.
NOT_COUNTED = (
    "respath.config",
    "respath.data",
    "respath.documents",
    "respath.errors",
    "respath.events",
    "respath.files",
    "respath.fingerprint",
    "respath.gpu_lease",
    "respath.jobs",
    "respath.model.resolve",
    "respath.papers",
    "respath.settings",
    "respath.startup",
    "respath.training.planning",
    "respath.training.provenance",
    "respath.training.results",
    "respath.training.runtime",
)
#: Of these, modules that count all the same.
COUNTED = ("respath.data.loader",)
#: Modules whose names are read by type checkers.
NAMES_ALONE = ("__future__", "collections.abc", "typing")
MODEL, TRAINING = "respath.model.build", "respath.training.steps"
#: Module of each engine that takes optimizer steps.
ENGINES = {"torch": "respath.training.engine", "deepspeed": "respath.training.zero"}

#: Of a result that was written before there were fingerprints.
EARLIER = "earlier code"
#: Of weights that were not trained here.
IMPORTED = "imported"


def model_parts(spec: ModelSpec) -> tuple[str, ...]:
    """The modules that a model spec names: documents and modules of its value path and stream, and its backbone."""
    parts: list[str] = [f"respath.model.backbones.{spec.backbone}"]
    for part in (spec.values, spec.stream):
        document = type(part).__module__
        parts += [document, module_name(type(part))]
    return tuple(parts)


def run_parts(recipe: Recipe, engine: str) -> tuple[str, ...]:
    """The modules that a recipe names, and the engine."""
    return recipe.optimizer.module, ENGINES[engine]


def model_code(spec: ModelSpec) -> str:
    """Fingerprint of the code that computes a model."""
    return fingerprint((MODEL, *model_parts(spec)))


def training_code(spec: RunSpec, engine: str) -> dict[str, str]:
    """Fingerprints of the code that a run is trained by."""
    parts = run_parts(spec.recipe, engine)
    return {
        "model": model_code(spec.model),
        "training": fingerprint((MODEL, TRAINING, *model_parts(spec.model), *parts)),
        "shared": fingerprint((MODEL, TRAINING)),
    }


def measuring_code(spec: ModelSpec, entry: str) -> dict[str, str]:
    """Fingerprints of the code that computes a result from weights: the model, and with it the module ``entry``."""
    measure = fingerprint((MODEL, entry, *model_parts(spec)))
    return {"model": model_code(spec), "measure": measure, "entry": entry}


def measured_by(record: Mapping[str, Any], spec: ModelSpec, entry: str) -> dict[str, Any]:
    """What a result that the module ``entry`` computes from a run's weights says of its code.

    ``model`` and ``measure``: fingerprints of today's; ``weights``: that of the model which the weights were trained as, or
    "earlier code", or "imported"; ``accepted``: they differ, and the user wanted the result all the same.
    """
    code, trained = measuring_code(spec, entry), trained_as(record)
    known = trained not in (EARLIER, IMPORTED)
    return {**code, "weights": trained, "accepted": known and trained != code["model"]}


def trained_as(record: Mapping[str, Any]) -> str:
    """Fingerprint of the model code that a train.json records."""
    provenance = record.get("provenance") or {}
    if "imported" in provenance:
        return IMPORTED
    return str((provenance.get("code") or {}).get("model", EARLIER))


def describe(recorded: Mapping[str, str] | None, today: Mapping[str, str]) -> str | None:
    """How the code on record differs from today's, in a few words; None where it does not."""
    if not recorded:
        return EARLIER
    compared = ("model", "training", "measure")
    names = [name for name in compared if name in today and recorded.get(name) != today[name]]
    shown = [f"{name} {str(recorded.get(name))[:8]}, today {today[name][:8]}" for name in names]
    return f"other code ({'; '.join(shown)})" if shown else None


@functools.cache
def fingerprint(entries: tuple[str, ...]) -> str:
    """SHA-256 over the modules that ``entries`` import, themselves included."""
    modules = [_contents(name) for name in closure(entries)]
    return hashlib.sha256("\n".join(sorted(modules)).encode()).hexdigest()


@functools.cache
def closure(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Names of all counted modules that ``entries`` import, at their head or inside functions, directly or not."""
    found: set[str] = set()
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name in found or not counted(name):
            continue
        found.add(name)
        waiting += [imported for imported, _, _ in _imports(name) if imported.startswith("respath")]
        # Importing a module runs the packages that it is in.
        waiting += [name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)]
    return tuple(sorted(found))


def counted(name: str) -> bool:
    """Whether numbers may depend on a module."""
    return name in COUNTED or not any(name == other or name.startswith(f"{other}.") for other in NOT_COUNTED)


# --- one module ----------------------------------------------------------------------------------------------------


def _path(name: str) -> Path | None:
    """The source of a module of this package; None where the name is no module."""
    below = Path(respath.__file__).parent.joinpath(*name.split(".")[1:])
    return next((path for path in (below.with_suffix(".py"), below / "__init__.py") if path.is_file()), None)


@functools.cache
def _tree(name: str) -> ast.Module:
    path = _path(name)
    if path is None:
        raise LookupError(f"respath has no module {name}")
    return ast.parse(path.read_bytes())


@functools.cache
def _imports(name: str) -> tuple[tuple[str, str, str], ...]:
    """What a module imports: module, name in it (or nothing), name here. Not what only a type checker reads."""
    found = []
    for node in _walk(_tree(name)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "", alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module, attribute = node.module, alias.name
                if module.startswith("respath") and _path(f"{module}.{attribute}"):
                    module, attribute = f"{module}.{attribute}", ""
                found.append((module, attribute, alias.asname or alias.name))
    return tuple(found)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below ``if TYPE_CHECKING:``."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            waiting += child.orelse if _for_type_checkers(child) else [child]


def _for_type_checkers(node: object) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


@functools.cache
def _statements(name: str) -> str:
    """Hash of a module's statements, without imports."""
    text: list[str] = []
    _write(_tree(name).body, text)
    return hashlib.sha256("".join(text).encode()).hexdigest()


def _contents(name: str) -> str:
    """A module as one line: its statements, and what it takes from which other modules, these by content and not by name."""
    taken = []
    for module, attribute, here in _imports(name):
        if module in NAMES_ALONE:
            continue
        if not module.startswith("respath"):
            taken.append(f"{here}={module}.{attribute}")
        elif counted(module):
            taken.append(f"{here}={_statements(module)}.{attribute}")
    return f"{_statements(name)} {' '.join(sorted(set(taken)))}"


def _write(part: object, out: list[str]) -> None:
    """A syntax tree as text, without what changes no number: imports, bare strings, and what an error is made of."""
    if isinstance(part, list):
        out.append("[")
        for item in part:
            if not _is_left_out(item):
                _write(item, out)
                out.append(";")
        out.append("]")
    elif isinstance(part, ast.Raise):
        out.append("Raise(")
        _write(part.exc.func if isinstance(part.exc, ast.Call) else part.exc, out)
        out.append(")")
    elif isinstance(part, ast.AST):
        out.append(f"{type(part).__name__}(")
        for field in part._fields:
            value = getattr(part, field, None)
            # Empty fields come and go between versions of Python.
            if value is not None and value != [] and field not in ("type_comment", "kind", "ctx"):
                out.append(f"{field}=")
                _write(value, out)
        out.append(")")
    else:
        out.append(f"{part!r},")


def _is_left_out(item: object) -> bool:
    if isinstance(item, ast.Import | ast.ImportFrom):
        return True
    if _for_type_checkers(item) and not item.orelse:
        return True
    return (
        isinstance(item, ast.Expr)
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, str)
    )
