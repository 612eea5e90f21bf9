"""Every variant of every paper comes back from a checkpoint bit for bit, its optimizer included."""

from __future__ import annotations

import pytest
import torch

from respath.model import build_model, parameter_roles
from respath.model.loss import next_token_loss
from respath.training.checkpoint import CheckpointStore, Snapshot
from respath.training.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from tests.unit.paper_variants import REFS, small_spec
from tests.unit.two_ranks import RECIPE, perturbed


def trained(model, steps: int):
    """The optimizer after so many steps of the model."""
    optimizer = make_optimizer(dict(model.named_parameters()), parameter_roles(model), RECIPE)
    return optimizer, advance(model, optimizer, steps)


def advance(model, optimizer, steps: int) -> list[float]:
    """Losses of so many steps on fixed ids."""
    ids = torch.randint(model.spec.vocab_size, (2, 12), generator=torch.Generator().manual_seed(2))
    losses = []
    for _ in range(steps):
        loss = next_token_loss(model, ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("paper", "variant"), REFS, ids=["/".join(ref) for ref in REFS])
def test_a_variant_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(paper, variant, tmp_path):
    model = perturbed(small_spec(paper, variant)).eval()
    optimizer, _ = trained(model, 1)
    store = CheckpointStore(tmp_path, "spec", "manifest")
    history = {"history": torch.zeros(1, 3, dtype=torch.float64)}
    saved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert store.save(Snapshot(1, model.state_dict(), optimizer_tensors(optimizer), history))

    snapshot = store.load_newest()
    other = build_model(model.spec, seed=7).eval()
    other.load_state_dict(snapshot.model)
    assert saved.keys() == other.state_dict().keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in other.state_dict().items())
    again = make_optimizer(dict(other.named_parameters()), parameter_roles(other), RECIPE)
    load_optimizer_tensors(again, snapshot.optimizer)
    assert advance(other, again, 1) == advance(model, optimizer, 1)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
