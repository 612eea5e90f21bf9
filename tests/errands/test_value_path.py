"""A value path with an equation, a cost and a layout of its own is two files: its document and its module."""

from __future__ import annotations

import json

import pytest

from tests.errands import TreeCopy

SCRIPT = """
import json
import torch
from torch.utils.flop_counter import FlopCounterMode
from respath.documents import check
from respath.errors import UserError
from respath.model import build_model, parameter_roles
from respath.spec.cost import cache_bytes, count_parameters, forward_flops
from respath.spec.model import ModelSpec
from respath.spec.recipe import Recipe
from respath.training.optimizer import make_optimizer, set_schedule
from respath.training.objective import make_objective

torch.set_num_threads(1)
shape = {"vocab_size": 259, "layers": 4, "width": 32, "heads": 4, "kv_heads": 4, "ffn_width": 56}
spec = check(ModelSpec, {**shape, "values": {"kind": "borrowed", "layers": "every-2"}}, "spec")
said = {"targets": spec.values.targets}
try:
    check(ModelSpec, {**shape, "values": {"kind": "borrowed", "layers": "all"}}, "spec")
except UserError as error:
    said["refused"] = error.lines

there = build_model(spec, device="meta")
said["parameters"] = [sum(p.numel() for p in there.parameters()), count_parameters(spec).total]
with FlopCounterMode(display=False) as counter, torch.no_grad():
    there(torch.zeros(1, 16, dtype=torch.int64, device="meta"))
said["flops"] = [counter.get_total_flops(), sum(forward_flops(spec, 16, "all", "full").values())]
cache = there.new_cache(2, 16, dtype=torch.bfloat16)
said["cache"] = [cache.nbytes, cache_bytes(spec, 16, 2)]

model = build_model(spec, dtype=torch.float64, seed=1)
with torch.no_grad():
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
ids = torch.arange(2 * 16).view(2, 16) * 7 % 259
plain = build_model(check(ModelSpec, shape, "plain"), dtype=torch.float64, seed=1)
with torch.no_grad():
    whole, cache = model(ids), model.new_cache(2, 16)
    steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(16)], 1)
    said["decoding"] = (steps - whole).abs().max().item()
    said["unlike_plain"] = (plain(ids) - whole).abs().max().item()

model = build_model(spec, seed=1)
recipe = Recipe(steps=12, warmup_steps=0, peak_lr=1e-2, final_lr=1e-3, batch_sequences=2, context=16, precision="fp32")
optimizer = make_optimizer(dict(model.named_parameters()), parameter_roles(model), recipe)
loss_of, losses = make_objective(model, recipe.precision), []
for step in range(12):
    set_schedule(optimizer, recipe, step)
    loss = loss_of(ids)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
said["losses"] = [losses[0], losses[-1]]
said["moved"] = (model.values.mixes[0] - torch.eye(4)).abs().max().item()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def errand(tmp_path_factory):
    """Files that the change touches, and what a script found in the changed tree."""
    copy = TreeCopy(tmp_path_factory.mktemp("value-path"))
    touched = copy.apply("value_path")
    return touched, json.loads(copy.python(SCRIPT))


def test_it_touches_its_document_and_its_module(errand):
    assert errand[0] == [
        "src/respath/model/values/borrowed.py",
        "src/respath/spec/values/borrowed.py",
    ]


def test_it_selects_layers_and_refuses_what_means_nothing(errand):
    _, said = errand
    assert said["targets"] == [2, 4]
    assert said["refused"] == [
        "spec: (document): borrowed values are not lent on: leave a layer between targets"
    ]


def test_it_counts_as_the_module_on_the_meta_device_does(errand):
    _, said = errand
    for quantity in ("parameters", "flops", "cache"):
        measured, counted = said[quantity]
        assert measured == counted, quantity
    assert said["cache"][1] == 2 * 16 * (4 + 2) * 32 * 2  # four layers' keys, two layers' values, bf16


def test_it_decodes_as_the_whole_forward_pass_and_computes_something_of_its_own(errand):
    _, said = errand
    assert said["decoding"] < 1e-12
    assert said["unlike_plain"] > 0.01


def test_it_trains(errand):
    _, said = errand
    first, last = said["losses"]
    assert last < first - 1
    assert said["moved"] > 1e-3
