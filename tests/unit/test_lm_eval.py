"""Our lm-eval language model against lm-eval's own HFLM on equal weights, and lm-eval's tasks on local items."""

from __future__ import annotations

import json
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from respath.errors import UserError
from respath.files import read_json, sha256_file, write_json
from respath.measure import items as items_stage
from respath.measure import lm
from respath.measure.suites import catalogue
from respath.measure.weights import NotFinite
from respath.model import build_model
from respath.model.export import export
from respath.spec.model import ModelSpec
from tests.unit.corpus import tiny_tokens
from tests.unit.finished_run import finished_run, scale_weights
from tests.unit.noise import with_noise
from tests.unit.test_evaluation_items import TASKS, shared_eval, write_lines

pytest.importorskip("lm_eval")

CONTEXT = 24
SPEC = ModelSpec(vocab_size=400, layers=2, width=32, heads=4, kv_heads=2, ffn_width=48)
TEXT = (
    "The quick brown fox jumps over the lazy dog. A question asks for an answer; the answer is yes or no. "
    "Put the egg in hot water for seven minutes, then cool it. Which planet is red? Mars is red. "
)


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([TEXT] * 3, trainer)
    return made


@pytest.fixture(scope="module")
def model():
    made = build_model(SPEC, seed=1)
    with torch.no_grad():
        for parameter in made.parameters():
            # Predictions that differ from uniform, so that a wrong position or context shows.
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    return made


def language_model(model, tokenizer, context=CONTEXT):
    from respath.measure.harness import RespathLM

    return RespathLM(model, lambda text: tokenizer.encode(text).ids, tokenizer.decode, 0, context)


@pytest.fixture(scope="module")
def hflm(model, tokenizer):
    """lm-eval's HFLM on a Transformers Llama with the same weights."""
    pytest.importorskip("accelerate", reason="lm-eval's HFLM needs accelerate")
    transformers = pytest.importorskip("transformers")
    from lm_eval.models.huggingface import HFLM

    config = transformers.LlamaConfig(
        vocab_size=SPEC.vocab_size, hidden_size=SPEC.width, intermediate_size=SPEC.ffn_width,
        num_hidden_layers=SPEC.layers, num_attention_heads=SPEC.heads, num_key_value_heads=SPEC.kv_heads,
        rms_norm_eps=SPEC.norm_eps, rope_theta=SPEC.rope_theta, max_position_embeddings=CONTEXT,
        tie_word_embeddings=False, eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    peer = transformers.LlamaForCausalLM(config).eval()
    names = {
        "embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head", "layers": "model.layers",
        "attention": "self_attn", "attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
    }  # fmt: skip
    state = {
        ".".join(names.get(part, part) for part in name.split(".")): tensor
        for name, tensor in model.state_dict().items()
    }
    peer.load_state_dict(state, strict=True)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    return HFLM(pretrained=peer, tokenizer=wrapped, max_length=CONTEXT, batch_size=4, device="cpu")


def requests(pairs):
    return [SimpleNamespace(args=pair, task_name="") for pair in pairs]


CHOICES = [
    ("Question: Which planet is red?\nAnswer:", " Mars"),
    ("Question: Which planet is red?\nAnswer:", " the lazy dog"),
    ("Question: Which planet is red?\nAnswer:", " seven minutes in hot water"),
    ("The answer is", " yes"),
    ("The answer is", " no"),
    ("The answer is ", "yes"),
    ("", "Put the egg in hot water"),
    ("", " y"),
    (TEXT, " Which answer asks?"),
    (TEXT, " no"),
    ("x", " yes"),
]


def test_loglikelihoods_equal_those_of_hflm(model, tokenizer, hflm):
    ours = language_model(model, tokenizer).loglikelihood(requests(CHOICES))
    theirs = hflm.loglikelihood(requests(CHOICES), disable_tqdm=True)
    np.testing.assert_allclose([v for v, _ in ours], [v for v, _ in theirs], rtol=2e-6, atol=2e-6)
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]


def test_an_exported_model_of_short_context_is_evaluated_by_hflm_on_longer_items(model, tokenizer, tmp_path):
    pytest.importorskip("accelerate", reason="lm-eval's HFLM needs accelerate")
    from lm_eval.models.huggingface import HFLM

    tokenizer.save(str(tmp_path / "tokenizer.json"))
    export(model, tmp_path / "out", context=CONTEXT, tokenizer=tmp_path / "tokenizer.json", end_id=0)
    # A continuation of more tokens than the training's context, which lm-eval asserts to fit.
    longer = [("Mars is red.", " " + TEXT), ("The answer is", " yes")]
    assert len(tokenizer.encode(TEXT).ids) > CONTEXT
    theirs = HFLM(pretrained=str(tmp_path / "out"), batch_size=2, device="cpu")
    values = theirs.loglikelihood(requests(longer), disable_tqdm=True)
    ours = language_model(model, tokenizer, context=theirs.max_length).loglikelihood(requests(longer))
    np.testing.assert_allclose([v for v, _ in values], [v for v, _ in ours], rtol=1e-5)
    assert read_json(tmp_path / "out" / "config.json")["respath"]["trained_context"] == CONTEXT


def test_rolling_loglikelihoods_equal_those_of_hflm(model, tokenizer, hflm):
    texts = [(TEXT * 3,), ("short",), (TEXT,)]
    ours = language_model(model, tokenizer).loglikelihood_rolling(requests(texts))
    theirs = hflm.loglikelihood_rolling(requests(texts), disable_tqdm=True)
    np.testing.assert_allclose(ours, theirs, rtol=2e-6)


def test_greedy_generation_equals_hflm(model, tokenizer, hflm):
    asked = [
        ("The quick brown", {"until": [], "max_gen_toks": 12, "do_sample": False}),
        (TEXT, {"until": ["e"], "max_gen_toks": 9, "do_sample": False}),
    ]
    ours = language_model(model, tokenizer).generate_until(requests(asked))
    theirs = hflm.generate_until(requests(asked), disable_tqdm=True)
    assert ours == theirs and ours[0]


def test_the_rolling_loglikelihood_of_a_short_text_is_the_direct_sum_after_eos(model, tokenizer):
    text = "Mars is red."
    ids = tokenizer.encode(text).ids
    with torch.no_grad():
        log_probabilities = model(torch.tensor([[0, *ids]])).log_softmax(-1)[0]
    direct = sum(float(log_probabilities[place, token]) for place, token in enumerate(ids))
    (value,) = language_model(model, tokenizer).loglikelihood_rolling(requests([(text,)]))
    assert value == pytest.approx(direct, rel=1e-6)


def test_rolling_windows_predict_each_token_once_with_as_much_context_as_fits(model, tokenizer):
    context = 8
    ids = tokenizer.encode(TEXT).ids[:21]
    text = tokenizer.decode(ids)
    assert tokenizer.encode(text).ids == ids
    stream = [0, *ids]
    total = 0.0
    # Positions 1..8, 9..16, then 17..21 with the three tokens before them as context.
    for first, last, start in ((1, 8, 0), (9, 16, 8), (17, 21, 13)):
        with torch.no_grad():
            out = model(torch.tensor([stream[start:last]])).log_softmax(-1)[0]
        total += sum(float(out[place - 1 - start, stream[place]]) for place in range(first, last + 1))
    (value,) = language_model(model, tokenizer, context).loglikelihood_rolling(requests([(text,)]))
    assert value == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"values": {"kind": "own"}},
        {"values": {"kind": "mix", "layers": "all", "coefficients": {"source": 0.5, "own": 0.5}}},
        {"values": {"kind": "reuse", "layers": "all"}},
        {"sharing": {"every": 2, "keys": True, "values": True}},
        {"stream": {"kind": "denseformer"}},
        {"stream": {"kind": "hc"}},
        {"stream": {"kind": "full_attnres"}},
        {"stream": {"kind": "moda"}},
    ],
    ids=lambda changes: "-".join(str(value.get("kind", "shared")) for value in changes.values()),
)
def test_continuing_from_the_cache_of_a_shared_context_scores_what_the_plain_way_scores(tokenizer, changes):
    spec = ModelSpec.model_validate_json(
        json.dumps({**SPEC.model_dump(mode="json", exclude_defaults=True), **changes})
    )
    ours = language_model(with_noise(build_model(spec, seed=2), 0.15), tokenizer)
    pieces = []
    for context, continuation in CHOICES[:3] + [
        (TEXT[:60], end) for end in (" a dog", " an egg then", " yes", " no")
    ]:
        pieces += ours.pieces(*ours._encode_pair(context, continuation))
    shared = ours.score(pieces)
    read = ours.counts.tokens_read
    plain = ours.score(pieces, share_contexts=False)
    assert read < (ours.counts.tokens_read - read) * 0.6
    np.testing.assert_allclose([v for v, _ in shared], [v for v, _ in plain], rtol=1e-5)
    assert [greedy for _, greedy in shared] == [greedy for _, greedy in plain]


def test_choices_of_one_token_share_one_forward_row(model, tokenizer):
    ours = language_model(model, tokenizer)
    yes, no = ours.loglikelihood(requests([("The answer is", " yes"), ("The answer is", " no")]))
    assert ours.counts.tokens_read == len(ours.tok_encode("The answer is"))
    assert yes[0] != no[0]


def test_an_input_that_begins_others_is_served_by_one_of_them():
    from respath.measure.harness import share_forwards

    inputs = [(1, 2), (1, 2, 3), (1, 3), (1, 2, 3, 4), (5,), (1, 2), (1, 3)]
    leaders = share_forwards(inputs)
    for index, leader in enumerate(leaders):
        assert inputs[leader][: len(inputs[index])] == inputs[index]
        assert leaders[leader] == leader
    assert {inputs[leader] for leader in leaders} == {(1, 2, 3, 4), (1, 3), (5,)}
    assert len(set(leaders)) == 3
    assert share_forwards([]) == []


def test_the_size_of_batches_does_not_change_scores(model, tokenizer, monkeypatch):
    from respath.measure import harness

    at_once = language_model(model, tokenizer).loglikelihood(requests(CHOICES))
    monkeypatch.setitem(harness.TOKENS, "cpu", 1)
    monkeypatch.setitem(harness.LOGITS, "cpu", SPEC.vocab_size)
    one_by_one = language_model(model, tokenizer).loglikelihood(requests(CHOICES))
    np.testing.assert_allclose([v for v, _ in one_by_one], [v for v, _ in at_once], rtol=1e-5)


def test_a_continuation_longer_than_the_context_is_scored_in_windows_and_counted(model, tokenizer):
    ours = language_model(model, tokenizer, context=8)
    ((value, _),) = ours.loglikelihood(requests([("Mars is red.", " " + TEXT)]))
    assert math.isfinite(value) and ours.counts.windowed == 1
    context, continuation = ours._encode_pair("Mars is red.", " " + TEXT)
    scored = [token for piece in ours.pieces(context, continuation) for token in piece.targets]
    assert scored == continuation


def test_truncated_contexts_are_counted(model, tokenizer):
    ours = language_model(model, tokenizer)
    ours.loglikelihood(requests([(TEXT, " no"), ("The answer is", " no")]))
    assert (ours.counts.requests, ours.counts.truncated) == (2, 1)


def test_text_that_spells_the_end_token_stays_text(model, tmp_path, tokenizer):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encode, decode, end = lm.text_codec(tmp_path / "tokenizer.json")
    assert end == 0 and 0 not in encode("a<|endoftext|>b")
    assert decode(encode("a<|endoftext|>b")) == "a<|endoftext|>b"


def test_sampling_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="greedy"):
        language_model(model, tokenizer).generate_until(requests([("a", {"do_sample": True})]))


# --- tasks ---------------------------------------------------------------------------------------------------------

MADE_UP = {
    "hellaswag.validation.jsonl": [
        {"ind": n, "activity_label": "Cooking", "ctx_a": "An egg lies there.", "ctx_b": "the cook", "ctx": "An egg",
         "endings": ["boils it.", "asks the fox.", "jumps.", "is red."], "label": str(n % 4)}
        for n in range(5)
    ],
    "openbookqa.test.jsonl": [
        {"id": str(n), "question_stem": "The planet that is red is", "answerKey": "AB"[n % 2],
         "choices": {"text": ["Mars", "an egg"], "label": ["A", "B"]}}
        for n in range(5)
    ],
    "winogrande_xl.validation.jsonl": [
        {"sentence": "The fox saw the dog, and _ was lazy.", "option1": "the fox", "option2": "the dog", "answer": "12"[n % 2]}
        for n in range(5)
    ],
    "arc_easy.test.jsonl": [
        {"id": str(n), "query": "Question: Which planet is red?\nAnswer:", "choices": ["Mars", "the egg"], "gold": n % 2}
        for n in range(4)
    ],
    "piqa.validation.jsonl": [
        {"goal": "cool an egg", "sol1": "Put it in cold water.", "sol2": "Put it in the dog.", "label": n % 2} for n in range(5)
    ],
    "boolq.validation.jsonl": [
        {"question": "is mars red", "passage": "Mars is a red planet.", "answer": n % 3 == 0} for n in range(5)
    ],
    "lambada_test.jsonl": [{"text": "The quick brown fox jumps over the lazy dog"}] * 3,
    "wikitext.test.jsonl": [{"page": " = Mars = \n \n Mars is red . \n"}, {"page": " = Egg = \n \n Put it in water . \n"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def made_up_items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("items")
    for name, content in MADE_UP.items():
        write_lines(folder / "mine" / name, content)
    collection = items_stage.Collection("local", folder / "mine", False, None, catalogue())
    items_stage.collect("suite", collection, folder / "items.json", TASKS)
    return folder / "items.json"


@pytest.fixture
def copied_items(made_up_items, tmp_path):
    import shutil

    shutil.copytree(made_up_items.parent, tmp_path / "items")
    return tmp_path / "items" / "items.json"


def test_every_task_of_the_suite_runs_on_local_items_with_lm_evals_definitions(
    model, tokenizer, made_up_items
):
    outcome = lm.evaluate_tasks(lambda: language_model(model, tokenizer), made_up_items, limit=4)
    assert outcome["arc_challenge"] == {
        "status": "not run",
        "reason": "no local file (arc_challenge.test.jsonl, arc_challenge.validation.jsonl)",
    }
    done = {name: entry for name, entry in outcome.items() if entry["status"] == "done"}
    assert set(done) == set(TASKS) - {"arc_challenge"}
    assert {name: entry["items"] for name, entry in done.items()} == {
        **dict.fromkeys(done, 4), "lambada_openai": 3, "wikitext": 2,
    }  # fmt: skip
    assert done["boolq"]["version"] == 2.0 and done["hellaswag"]["version"] == 1.0
    assert set(done["hellaswag"]["metrics"]) == {"acc", "acc_norm", "acc_norm_stderr", "acc_stderr"}
    assert set(done["lambada_openai"]["metrics"]) == {"acc", "acc_stderr", "perplexity"}
    assert set(done["wikitext"]["metrics"]) == {"bits_per_byte", "byte_perplexity", "word_perplexity"}
    # Two choices asked alternately the two ways: whatever the model prefers, it is right half the time.
    assert done["arc_easy"]["metrics"]["acc"] == 0.5
    assert done["arc_easy"]["metrics"]["acc_stderr"] == pytest.approx(math.sqrt(4 * 0.25 / 3 / 4))


def test_word_perplexity_is_lm_evals_definition(model, tokenizer, made_up_items):
    outcome = lm.evaluate_tasks(lambda: language_model(model, tokenizer), made_up_items, limit=None)
    from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

    pages = [row["page"] for row in MADE_UP["wikitext.test.jsonl"]]
    texts = [(wikitext_detokenizer({"page": page}),) for page in pages]
    total = sum(language_model(model, tokenizer).loglikelihood_rolling(requests(texts)))
    words = sum(
        len(page.split()) + 2 for page in pages
    )  # lm-eval counts the empty ends that its split leaves
    assert outcome["wikitext"]["metrics"]["word_perplexity"] == pytest.approx(
        math.exp(-total / words), rel=1e-6
    )


ITEMS = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), max_size=30)


@given(items=ITEMS, limit=st.integers(1, 30), order=st.randoms())
def test_the_sample_is_fixed_nested_for_growing_limits_and_free_of_the_order_of_the_file(items, limit, order):
    lines = [f"{item}\n" for item in items]
    chosen = lm.keyed_sample(lines, "hellaswag", limit)
    assert len(chosen) == min(limit, len(lines)) and not Counter(chosen) - Counter(lines)
    assert [line for line in lines if line in chosen] == chosen or len(set(lines)) < len(lines)
    assert not Counter(chosen) - Counter(lm.keyed_sample(lines, "hellaswag", limit + 1))
    shuffled = order.sample(lines, len(lines))
    assert Counter(lm.keyed_sample(shuffled, "hellaswag", limit)) == Counter(chosen)
    assert lm.keyed_sample(lines, "hellaswag", None) == lines


def test_the_sample_has_the_shares_of_a_sorted_file_and_each_task_its_own():
    lines = [f'{{"source": "ActivityNet", "n": {n}}}\n' for n in range(3243)]
    lines += [f'{{"source": "WikiHow", "n": {n}}}\n' for n in range(6799)]
    chosen = lm.keyed_sample(lines, "hellaswag", 500)
    share = sum("WikiHow" in line for line in chosen) / 500
    # Four standard errors of a share of 0.68 over 500 draws.
    assert share == pytest.approx(0.677, abs=0.084)
    assert chosen != lm.keyed_sample(lines, "piqa", 500)


def test_the_limit_takes_the_keyed_sample(model, tokenizer, made_up_items, copied_items):
    limited = lm.evaluate_tasks(lambda: language_model(model, tokenizer), made_up_items, limit=2)
    record = read_json(copied_items)
    for name, entry in record["tasks"].items():
        if entry["status"] == "done":
            file = copied_items.parent / entry["file"]
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(lm.keyed_sample(lines, name, 2)))
            assert limited[name]["of_items"] == len(lines) and limited[name]["items"] == 2
            entry["sha256"] = sha256_file(file)
    write_json(copied_items, record)
    cut = lm.evaluate_tasks(lambda: language_model(model, tokenizer), copied_items, limit=None)
    assert {n: e.get("metrics") for n, e in cut.items()} == {n: e.get("metrics") for n, e in limited.items()}


def test_changed_and_missing_item_files_are_refused_all_at_once(copied_items):
    (copied_items.parent / "piqa.jsonl").unlink()
    with (copied_items.parent / "boolq.jsonl").open("a") as stream:
        stream.write("\n")
    with pytest.raises(UserError) as caught:
        lm.read_items(copied_items)
    assert len(caught.value.lines) == 2
    assert "missing" in "".join(caught.value.lines) and "differs from the hash" in "".join(caught.value.lines)


def test_the_command_writes_a_byte_stable_result(made_up_items, tmp_path, capsys):
    store = tiny_tokens(tmp_path / "tokens", vocab_size=300, validation_tokens=100)
    train, manifest, checkpoints, _ = finished_run(tmp_path, *store, context=CONTEXT)
    tokenizer_json = manifest.parent / read_json(manifest)["tokenizer"]["path"]
    written = []
    for name in ("a.json", "b.json"):
        arguments = [
            "--train",
            train,
            "--checkpoints",
            checkpoints,
            "--tokenizer",
            tokenizer_json,
            "--items",
            made_up_items,
        ]
        rest = ["--limit", "2", "--device", "cpu", "--out", tmp_path / name]
        assert lm.main([str(part) for part in [*arguments, *rest]]) == 0
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    content = json.loads(written[0])
    assert set(content["counts"]) == {"requests", "truncated", "windowed", "spanning", "last_token", "empty"}
    assert content["status"] == "done" and content["limit"] == 2 and content["suite"] == "suite"
    assert content["tasks"]["arc_challenge"]["status"] == "not run"
    assert "arc_challenge: not run" in capsys.readouterr().out


def test_a_diverged_run_marks_every_task(made_up_items, tmp_path):
    write_json(tmp_path / "train.json", {"kind": "train", "run": "r", "status": "diverged", "weights": None})
    content = lm.evaluate_run(
        tmp_path / "train.json", tmp_path, tmp_path / "tokenizer.json", made_up_items, 4
    )
    assert content["status"] == "diverged"
    assert {entry["status"] for entry in content["tasks"].values()} == {"diverged"}


def test_finite_weights_whose_scores_are_not_finite_are_a_diverged_run(made_up_items, tmp_path):
    store = tiny_tokens(tmp_path / "tokens", vocab_size=300, validation_tokens=100)
    train, manifest, checkpoints, _ = finished_run(tmp_path, *store, context=CONTEXT)
    scale_weights(train, checkpoints, 1e20)
    tokenizer_json = manifest.parent / read_json(manifest)["tokenizer"]["path"]
    content = lm.evaluate_run(train, checkpoints, tokenizer_json, made_up_items, 2)
    assert content["status"] == "diverged" and "not finite" in content["reason"]
    assert {entry["status"] for entry in content["tasks"].values()} == {"diverged"}


def test_a_metric_beyond_the_largest_number_is_not_finite():
    with pytest.raises(NotFinite, match="perplexity"):
        lm._metrics({"perplexity,none": math.inf, "acc,none": 0.5}, [])


def test_a_missing_lm_eval_is_named_in_one_line(monkeypatch, made_up_items):
    import importlib.metadata

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(UserError, match="pip install lm-eval"):
        lm.evaluate_tasks(lambda: None, made_up_items, limit=1)


def test_a_limit_of_nothing_is_refused_and_none_means_all():
    import argparse

    assert lm.at_most("none") is None and lm.at_most("32") == 32
    for text in ("0", "-1", "some"):
        with pytest.raises(argparse.ArgumentTypeError):
            lm.at_most(text)


def test_real_items_score_as_hflm_scores_them(model, tokenizer, hflm, tmp_path):
    collection = items_stage.Collection("local", shared_eval(), False, None, catalogue())
    names = ["openbookqa", "winogrande", "arc_easy", "arc_challenge", "piqa", "boolq", "lambada_openai"]
    items_stage.collect("suite", collection, tmp_path / "items.json", names)
    # Long enough for every solution (HFLM refuses a longer one), short enough to truncate BoolQ's passages.
    context = 384
    peer = type(hflm)(
        pretrained=hflm.model, tokenizer=hflm.tokenizer, max_length=context, batch_size=4, device="cpu"
    )
    scored = []

    def remembering(lm_):
        plain = lm_.loglikelihood

        def loglikelihood(asked, **options):
            scored.append(plain(asked, **options))
            return scored[-1]

        lm_.loglikelihood = loglikelihood
        return lm_

    made = language_model(model, tokenizer, context)
    ours = lm.evaluate_tasks(lambda: remembering(made), tmp_path / "items.json", limit=6)
    theirs = lm.evaluate_tasks(lambda: remembering(peer), tmp_path / "items.json", limit=6)
    assert made.counts.truncated > 0
    np.testing.assert_allclose([v for v, _ in scored[0]], [v for v, _ in scored[1]], rtol=1e-5)
    for name in set(names) - {"lambada_openai"}:
        assert ours[name]["metrics"] == theirs[name]["metrics"]
    expected = theirs["lambada_openai"]["metrics"]["perplexity"]
    assert ours["lambada_openai"]["metrics"]["perplexity"] == pytest.approx(expected, rel=1e-4)
