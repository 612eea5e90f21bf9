"""Every value path and residual stream is one document and one module of one name, and what they say of each other fits."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import respath
from respath.measure.analyses import coefficients
from respath.model import build_model
from respath.model.registry import module_of
from respath.model.values.mix import MixedValues
from respath.spec.parts import ValuePathSpec
from respath.spec.streams import STREAMS
from respath.spec.values import VALUE_PATHS
from tests.errands import ROOT, run_python
from tests.unit.model_cases import spec_of

SOURCES = Path(respath.__file__).parent
EVERY = {**VALUE_PATHS, **STREAMS}


@pytest.mark.parametrize("kind", EVERY)
def test_a_kind_is_a_document_and_a_module_in_files_of_its_name(kind):
    document = EVERY[kind]
    module = module_of(document)
    assert document.__module__.split(".")[-1] == module.__module__.split(".")[-1] == kind
    assert module.document is document and module.__name__ != document.__name__


def test_specs_accounts_and_the_model_know_no_kind_by_name():
    """Neither by class nor by text; the two that a plain model has are the defaults of its spec."""
    names = set(EVERY) | {document.__name__ for document in EVERY.values()}
    usual = {"own", "pre_ln", "OwnSpec", "PreLNSpec"}
    for path in ("spec/model.py", "spec/cost.py", "spec/layout.py", "measure/analyses/coefficients.py",
                 "model/transformer.py", "model/attention.py", "model/build.py", "model/registry.py"):  # fmt: skip
        tree = ast.parse((SOURCES / path).read_text())
        found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        found = {name for name in found if isinstance(name, str)}
        # Words of other things too: a coefficient, a group of parameters.
        assert found & names <= {"own", "embedding"} | (usual if path == "spec/model.py" else set()), path


def test_a_document_that_does_not_say_its_cost_or_its_starts_is_none():
    class Silent(ValuePathSpec):
        kind: str = "silent"

    with pytest.raises(TypeError, match="abstract method"):
        Silent()


def test_learned_coefficients_that_a_module_does_not_tell_are_an_error_and_not_none(monkeypatch):
    model = build_model(spec_of("learnable"))
    assert coefficients.measure(model).scalars["moved_max"] == 0.0
    monkeypatch.setattr(MixedValues, "coefficients", lambda path: {})
    with pytest.raises(RuntimeError, match=r"learns 6 coefficients and says where \['own', 'source'\] start"):
        coefficients.measure(model)


def test_learned_coefficients_whose_start_a_document_does_not_say_are_an_error(monkeypatch):
    model = build_model(spec_of("learnable"))
    monkeypatch.setattr(type(model.spec.values), "starts", lambda path: {})
    with pytest.raises(RuntimeError, match=r"learns 6 coefficients and says where \[\] start"):
        coefficients.measure(model)


def test_the_room_of_specs_imports_no_torch_and_nothing_above_it():
    allowed = ("respath.spec", "respath.files", "respath.errors")
    for path in (SOURCES / "spec").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            above = [name for name in names if name.startswith("respath") and not name.startswith(allowed)]
            assert not above, f"{path} imports {above}"
    script = (
        "import sys, respath.spec.run, respath.spec.cost, respath.fingerprint; print('torch' in sys.modules)"
    )
    assert run_python(ROOT, script).strip() == "False"
