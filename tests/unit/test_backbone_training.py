"""A killed run of each backbone ends with the weights of an uninterrupted one, dropout or not."""

from __future__ import annotations

import signal

import pytest

from tests.unit.corpus import tiny_tokens
from tests.unit.training_runs import Run, tiny_spec

MODELS = {
    "gpt2": {
        "backbone": "gpt2",
        "max_positions": 32,
        "dropout": 0.1,
        "tie_embeddings": True,
        "values": {"kind": "own"},
    },
    "nanochat": {"backbone": "nanochat", "windows": {"pattern": "SL", "short": 8}},
}


@pytest.mark.parametrize("backbone", MODELS)
def test_a_killed_run_ends_bit_identical_and_learns(backbone, tmp_path):
    manifest, data = tiny_tokens(tmp_path / "tokens")
    whole, killed = (
        Run(tmp_path / name, tiny_spec(data, model=MODELS[backbone]), manifest)
        for name in ("whole", "killed")
    )
    assert whole.start().wait() == 0
    child = killed.start(step_seconds=0.02, checkpoint_steps=3)
    child.until(lambda: any(killed.checkpoints.glob("step-*/DONE")))
    child.signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL and not killed.out.exists()
    assert killed.start().wait() == 0
    assert killed.weights == whole.weights
    losses = whole.result["curve"]["loss"]
    # 0.39 and 0.53 were measured with two instruction sets.
    assert losses[-1] < losses[0] - 0.1
