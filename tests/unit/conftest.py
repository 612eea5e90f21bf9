"""Fixtures of the tests that train; other tests do not wait for what these import."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """A token store of 40,000 tokens of the standard library's own text: (its manifest, the spec's data)."""
    from tests.unit.corpus import tiny_tokens

    return tiny_tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture
def one_thread():
    """PyTorch computes on one thread, as the workers share two cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
