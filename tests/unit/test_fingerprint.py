"""The fingerprint of a run's code changes with what its numbers depend on, and with nothing else."""

from __future__ import annotations

import json

import pytest

from tests.errands import TreeCopy

#: Prints, for each named edit of the copy's sources, which of the fingerprints of which run changed.
SCRIPT = """
import importlib, json, sys
from pathlib import Path
import respath
from respath import fingerprint as f
from respath.spec.run import RunSpec
from respath.documents import check
from respath.spec.model import ModelSpec
from respath.spec.recipe import Recipe

SHAPE = {"vocab_size": 512, "layers": 2, "width": 32, "heads": 2, "kv_heads": 2, "ffn_width": 112}
STEPS = {"steps": 24, "warmup_steps": 3, "peak_lr": 3e-3, "final_lr": 3e-4, "batch_sequences": 8, "context": 32}
GROUP = {"lr": 0.1, "beta1": 0.8, "beta2": 0.9}
MIX = {"kind": "mix", "layers": "all", "coefficients": {"source": 0.5, "own": 0.5}}
MUON = {"kind": "muon_adamw", "muon": {}, "groups": {"head": GROUP}}
RUNS = {
    "mix": ({"values": MIX}, {}, "torch"),
    "dense": ({"values": {"kind": "dense", "layers": "all"}}, {}, "torch"),
    "muon": ({"values": MIX}, {"optimizer": MUON}, "torch"),
    "deepspeed": ({"values": MIX}, {}, "deepspeed"),
    "hc": ({"stream": {"kind": "hc"}}, {}, "torch"),
    "nanochat": ({"backbone": "nanochat"}, {}, "torch"),
}

def codes():
    for cached in (f.fingerprint, f.closure, f._tree, f._imports, f._statements):
        cached.cache_clear()
    found = {}
    for name, (model, recipe, engine) in RUNS.items():
        spec = RunSpec.model_construct(
            model=check(ModelSpec, SHAPE | model, name), recipe=check(Recipe, STEPS | recipe, name)
        )
        found |= {f"{name} {part}": code for part, code in f.training_code(spec, engine).items()}
        found[f"{name} loss"] = f.measuring_code(spec.model, "respath.measure.loss")["measure"]
    return found

root, before, changed = Path(respath.__file__).parent, codes(), {}
for name, edits in json.loads(sys.stdin.read()).items():
    kept = {path: (root / path).read_text() for path, _, _ in edits}
    for path, old, new in edits:
        text = (root / path).read_text()
        assert text.count(old) >= 1, (path, old)
        (root / path).write_text(text.replace(old, new))
    after = codes()
    changed[name] = sorted(key for key in before if after[key] != before[key])
    for path, text in kept.items():
        (root / path).write_text(text)
print(json.dumps(changed))
"""

MIX, DENSE = "model/values/mix.py", "model/values/dense.py"
PARTS = ("loss", "model", "training")
ALL = ("deepspeed", "dense", "hc", "mix", "muon", "nanochat")
#: Runs whose value path is mix.
MIXED = ("deepspeed", "mix", "muon")


def changes(runs, parts=PARTS) -> list[str]:
    return sorted(f"{run} {part}" for run in runs for part in parts)


#: Edits by name: (file, old text, new text) each, and what they change.
EDITS = {
    "a comment": ([(MIX, "weights, source = carried", "weights, source = carried  # a remark")], []),
    "a docstring": ([(MIX, "The weighted sum on target layers", "What is mixed on target layers")], []),
    "the docstring of a field": (
        [("spec/values/mix.py", "Give the mix the norm", "The mix gets the norm")],
        [],
    ),
    "blank lines": ([(MIX, "\n\n\n", "\n\n\n\n")], []),
    "what an error says": (
        [("spec/values/mix.py", "another layer's value is added", "a value is added")],
        [],
    ),
    "the order of imports": (
        [
            (MIX, "from respath.model.origin import Origin\n", ""),
            (MIX, "import torch\n", "from respath.model.origin import Origin\nimport torch\n"),
        ],
        [],
    ),
    "an import for type checkers": (
        [
            (MIX, "\nimport torch\n", "\nfrom typing import TYPE_CHECKING\n\nimport torch\n"),
            (
                MIX,
                "\n\nclass _WithNormOf",
                "\nif TYPE_CHECKING:\n    import respath.cli\n\n\nclass _WithNormOf",
            ),
        ],
        [],
    ),
    "modules that move files and speak": (
        [
            ("training/lease.py", "import os\n", "import os\n\nANOTHER = 1\n"),
            ("training/checkpoint.py", "FORMAT = 1", "FORMAT = 2"),
            ("training/loop.py", "import math\n", "import math\n\nANOTHER = 1\n"),
            ("errors.py", "import os\n", "import os\n\nANOTHER = 1\n"),
            ("data/sample.py", "import json\n", "import json\n\nANOTHER = 1\n"),
            ("comparison/code.py", "from typing import Any\n", "from typing import Any\n\nANOTHER = 1\n"),
        ],
        [],
    ),
    "an equation": ([(MIX, "combine([source, own]", "combine([own, source]")], changes(MIXED)),
    "the equation of another value path": (
        [(DENSE, "combine([*carried, own]", "combine([own, *carried]")],
        changes(["dense"]),
    ),
    "the equation of a stream": (
        [("model/streams/hc.py", "STREAM_EPS = 1e-8", "STREAM_EPS = 1e-6")],
        changes(["hc"]),
    ),
    "a backbone": (
        [("model/backbones/nanochat.py", "softcap = 15.0", "softcap = 30.0")],
        changes(["nanochat"]),
    ),
    "what all models share": (
        [("model/kernels.py", "import torch\n", "import torch\n\nANOTHER = 1\n")],
        changes(ALL, (*PARTS, "shared")),
    ),
    "the optimizer of some": (
        [("training/muon.py", "NORM_MARGIN = 1.01", "NORM_MARGIN = 1.02")],
        changes(["muon"], ["training"]),
    ),
    "an engine": (
        [("training/zero.py", "import torch\n", "import torch\n\nANOTHER = 1\n")],
        changes(["deepspeed"], ["training"]),
    ),
    "the schedule": (
        [("spec/recipe.py", "0.5 * (recipe.peak_lr", "0.6 * (recipe.peak_lr")],
        changes(ALL, ["training", "shared", "loss"]),
    ),
    "which rows a step takes": (
        [("data/loader.py", "MAX_BLOCK = 1000", "MAX_BLOCK = 999")],
        changes(ALL, ["training", "shared", "loss"]),
    ),
    "how a loss is measured": (
        [("measure/loss.py", "SCHEMA = 1", "SCHEMA = 2")],
        changes(ALL, ["loss"]),
    ),
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """By edit, the fingerprints that changed in a copy of the sources."""
    copy = TreeCopy(tmp_path_factory.mktemp("fingerprints"))
    edits = {name: edit for name, (edit, _) in EDITS.items()}
    return json.loads(copy.python(SCRIPT, json.dumps(edits)))


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_the_fingerprints_of_what_it_can_change(changed, edit):
    assert changed[edit] == EDITS[edit][1]


def test_a_module_that_moves_changes_nothing(tmp_path):
    copy = TreeCopy(tmp_path)
    script = (
        "from respath.fingerprint import *; from respath.spec.values import VALUE_PATHS\n"
        "print(fingerprint((MODEL, TRAINING, 'respath.model.values.mix')))"
    )
    before = copy.python(script)
    sources = copy.path / "src/respath"
    (sources / "model/combine.py").rename(sources / "model/sums.py")
    for path in sources.rglob("*.py"):
        text = path.read_text()
        if "respath.model.combine" in text:
            path.write_text(text.replace("respath.model.combine", "respath.model.sums"))
    assert copy.python(script) == before
    (sources / "model/sums.py").write_text((sources / "model/sums.py").read_text() + "\nANOTHER = 1\n")
    assert copy.python(script) != before


def test_whatever_a_training_imports_is_in_its_fingerprint():
    """Found without running anything, and compared here with what a model, its optimizer and engine really import."""
    script = """
import json, sys
from respath.documents import check
from respath.model import build_model, parameter_roles
from respath.spec.model import ModelSpec
from respath.spec.recipe import Recipe
from respath.spec.run import RunSpec
import respath.training.steps, respath.training.engine
from respath.training.optimizer import make_optimizer
from respath import fingerprint as f

shape = {"vocab_size": 512, "layers": 2, "width": 32, "heads": 2, "kv_heads": 2, "ffn_width": 112}
model = check(ModelSpec, shape | {"backbone": "gpt2", "max_positions": 64, "stream": {"kind": "mhc"},
                                  "values": {"kind": "table", "layers": "all"}}, "model")
recipe = check(Recipe, {"steps": 24, "warmup_steps": 3, "peak_lr": 3e-3, "final_lr": 3e-4, "batch_sequences": 8,
                        "context": 32}, "recipe")
built = build_model(model)
make_optimizer(dict(built.named_parameters()), parameter_roles(built), recipe)
there = sorted(name for name in sys.modules if name.split(".")[0] == "respath" and f.counted(name))
parts = (*f.model_parts(model), *f.run_parts(recipe, "torch"))
print(json.dumps([there, f.closure((f.MODEL, f.TRAINING, *parts))]))
"""
    from tests.errands import ROOT, run_python

    imported, found = json.loads(run_python(ROOT, script))
    # Documents are found by their folder; those that the spec does not name are imported and not used.
    others = {name for name in imported if name.startswith(("respath.spec.values.", "respath.spec.streams."))}
    assert set(imported) - others <= set(found)
    assert "respath.model.streams.mhc" in found and "respath.model.values.table" in found
    assert "respath.model.values.mix" not in found and "respath.training.muon" not in found
