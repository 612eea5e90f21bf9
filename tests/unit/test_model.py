"""The model: equations against direct evaluation, limits, gradients, initial values, and a peer."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from respath.documents import check
from respath.errors import UserError
from respath.model import build_model, parameter_roles
from respath.model.initial import initial_tensor
from respath.model.loss import TrainingLoss, next_token_loss
from respath.model.precision import LowPrecision
from respath.spec.model import ModelSpec
from tests.unit.finite_differences import assert_gradients_are_slopes
from tests.unit.model_cases import SHAPE, VARIANTS, mix, perturbed, some_ids, spec_of


def copied(source, target, **replaced):
    """``target`` with the weights of ``source`` where both have them, and given values elsewhere."""
    weights = {name: tensor for name, tensor in source.state_dict().items() if name in target.state_dict()}
    missing, unexpected = target.load_state_dict({**weights, **replaced}, strict=False)
    assert not unexpected and not missing
    return target


def build(overrides: dict, dtype=torch.float64, **shape):
    return build_model(check(ModelSpec, {**SHAPE, **shape, **overrides}, "test"), dtype=dtype).eval()


def test_building_and_running_a_model_imports_no_sympy():
    """Importing it takes a second of every process, and a table is made by hundreds of them."""
    code = """if True:
        import sys, torch
        from respath.model import build_model
        model = build_model("resformer/82M/learnable", scale="smoke")
        model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
        sys.exit("sympy" in sys.modules)
    """
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


# --- equations -----------------------------------------------------------------------------------------------------


def by_the_paper(model, ids):
    """Logits of the llama backbone with loops over heads and tokens, straight from the papers' equations."""
    spec, weight = model.spec, dict(model.named_parameters())
    d_head, repeat = spec.head_dim, spec.heads // spec.kv_heads
    values, sharing = spec.values, spec.sharing

    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + spec.norm_eps) * weight[f"{name}.weight"]

    def turned(x, heads):
        out = torch.empty_like(x)
        for t in range(x.shape[1]):
            for h in range(heads):
                for j in range(d_head // 2):
                    angle = t * spec.rope_theta ** (-2 * j / d_head)
                    a, b = x[:, t, h * d_head + j], x[:, t, h * d_head + j + d_head // 2]
                    out[:, t, h * d_head + j] = a * math.cos(angle) - b * math.sin(angle)
                    out[:, t, h * d_head + j + d_head // 2] = b * math.cos(angle) + a * math.sin(angle)
        return out

    def coefficient(n):
        c, at = values.coefficients, values.layers.index(n)
        if not c.learnable:
            return c.source, c.own
        if c.parameterisation == "free":
            return weight["values.source"][at], weight["values.own"][at]
        logits = weight["values.logits"]
        at_logit = n - 1 if c.parameterisation == "softmax_all" else at
        share = logits[at_logit].exp() / sum(logit.exp() for logit in logits)
        return weight["values.scale"] * share, weight["values.own"][at]

    x = weight["embedding.weight"][ids]
    outputs, keys, projected, mixed = [x], {}, {}, {}
    for n in range(1, spec.layers + 1):
        name = f"layers.{n - 1}.attention"
        h = norm(x, f"{name}_norm")
        q = turned(h @ weight[f"{name}.q_proj.weight"].T, spec.heads)
        first = n - (n - 1) % sharing.every if sharing else n
        if sharing and sharing.keys and first != n:
            keys[n] = keys[first]
        else:
            keys[n] = turned(h @ weight[f"{name}.k_proj.weight"].T, spec.kv_heads)
        targeted = n in getattr(values, "layers", ())
        if sharing and sharing.values and first != n:
            mixed[n] = mixed[first]
        elif values.kind == "reuse" and targeted:
            scale = weight["values.scale"][values.layers.index(n)] if values.learnable else values.scale
            mixed[n] = scale * projected[values.source]
        else:
            projected[n] = mixed[n] = h @ weight[f"{name}.v_proj.weight"].T
        if values.kind == "mix" and targeted:
            source = n - 1 if values.source == "previous" else values.source
            c_source, c_own = coefficient(n)
            mixed[n] = c_source * projected[source] + c_own * projected[n]
            if values.rescale != "none":
                size = d_head if values.rescale == "token_head" else spec.kv_width
                for start in range(0, spec.kv_width, size):
                    part = slice(start, start + size)
                    ratio = projected[n][..., part].norm(dim=-1) / mixed[n][..., part].norm(dim=-1)
                    mixed[n][..., part] = mixed[n][..., part].clone() * ratio[..., None]
        if values.kind == "dense" and targeted:
            bank = {**projected} if values.cache == "pre_mix" else {**mixed, n: projected[n]}
            at = values.layers.index(n)
            row = weight[f"values.weights.{at}"] if values.learnable else [values.initial] * n
            mixed[n] = sum(row[i - 1] * bank[i] for i in range(1, n + 1))
        heads = []
        for h_index in range(spec.heads):
            q_part = slice(h_index * d_head, (h_index + 1) * d_head)
            kv_part = slice(h_index // repeat * d_head, (h_index // repeat + 1) * d_head)
            scores = q[..., q_part] @ keys[n][..., kv_part].mT / math.sqrt(d_head)
            hidden = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
            heads.append(scores.masked_fill(hidden, -math.inf).softmax(-1) @ mixed[n][..., kv_part])
        attended = torch.cat(heads, -1)
        if values.kind == "neutreno" and targeted:
            attended = attended + values.strength * (projected[1] - projected[n])
        x = x + attended @ weight[f"{name}.o_proj.weight"].T
        h = norm(x, f"layers.{n - 1}.mlp_norm")
        gate, up = (h @ weight[f"layers.{n - 1}.mlp.{which}_proj.weight"].T for which in ("gate", "up"))
        x = x + (gate * torch.sigmoid(gate) * up) @ weight[f"layers.{n - 1}.mlp.down_proj.weight"].T
        if spec.stream.kind == "denseformer":
            outputs.append(x)
            if n % spec.stream.period == 0:
                sources = [i for i in range(n + 1) if (n - i) % spec.stream.dilation == 0]
                row = weight[f"stream.weights.{n // spec.stream.period - 1}"]
                x = sum(a * outputs[i] for a, i in zip(row, sources, strict=True))
    head = weight["embedding.weight"] if spec.tie_embeddings else weight["head.weight"]
    return norm(x, "final_norm") @ head.T


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_computes_its_papers_equations(variant):
    model, ids = perturbed(variant), some_ids(time=7)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), by_the_paper(model, ids), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_changing_a_later_token_leaves_earlier_logits(variant):
    model, ids = perturbed(variant), some_ids()
    changed = ids.clone()
    changed[:, 6] = (changed[:, 6] + 1) % SHAPE["vocab_size"]
    with torch.no_grad():
        before, after = model(ids), model(changed)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=1e-12)
    assert (after[:, 6:] - before[:, 6:]).abs().amax(dim=(0, 2)).min() > 1e-6


# --- limits in which variants coincide -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides", [mix(0.0, 1.0), {"values": {"kind": "neutreno", "layers": "all", "strength": 0.0}}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coefficients_zero_and_one_are_the_baseline_bit_for_bit(overrides, dtype):
    baseline, ids = perturbed("transformer", dtype=dtype), some_ids()
    variant = copied(baseline, build(overrides, dtype))
    assert torch.equal(variant(ids), baseline(ids))


def test_learned_coefficients_zero_and_one_are_the_baseline_bit_for_bit():
    baseline, ids = perturbed("transformer"), some_ids()
    zeros, ones = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    variant = copied(baseline, build(mix(learnable=True)), **{"values.source": zeros, "values.own": ones})
    assert torch.equal(variant(ids), baseline(ids))


def test_only_the_first_value_everywhere_is_svformer():
    mixed, ids = build(mix(1.0, 0.0)), some_ids()
    mixed = copied(perturbed("transformer"), mixed)
    svformer = copied(mixed, build(VARIANTS["svformer"]))
    torch.testing.assert_close(svformer(ids), mixed(ids), rtol=1e-12, atol=1e-12)


def test_denseformer_starts_as_pre_ln():
    dense, plain, ids = build(VARIANTS["denseformer"]), build({}), some_ids()
    torch.testing.assert_close(dense(ids), plain(ids), rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        dense.stream.weights[2][0] += 0.5
    assert (dense(ids) - plain(ids)).abs().max() > 1e-3


def test_dense_with_adjacent_coefficients_only_is_mixing_with_the_previous_layer():
    adjacent, ids = perturbed("previous"), some_ids()
    rows = {f"values.weights.{j}": torch.zeros(j + 2, dtype=torch.float64) for j in range(3)}
    for row in rows.values():
        row[-2:] = 1.0
    dense = copied(adjacent, build(VARIANTS["dense"]), **rows)
    torch.testing.assert_close(dense(ids), adjacent(ids), rtol=1e-12, atol=1e-12)


def test_plus_starts_with_one_and_a_half_on_every_target_layer():
    for variant in ("plus", "plus-softmax-targets"):
        source, own = build(VARIANTS[variant]).values.weights()
        torch.testing.assert_close(torch.stack(source), torch.ones(3, dtype=torch.float64))
        torch.testing.assert_close(torch.stack(own), torch.full((3,), 0.5, dtype=torch.float64))


def test_the_first_layers_logit_of_plus_takes_mass_from_the_others():
    model = build(VARIANTS["plus"])
    with torch.no_grad():
        model.values.logits[0] = 3.0
    assert torch.stack(model.values.weights()[0]).max().item() < 0.2


# --- gradients -------------------------------------------------------------------------------------------------------


def test_the_first_value_projection_learns_from_every_later_layer():
    model, ids = perturbed("learnable"), some_ids()
    first = model.layers[0].attention.v_proj.weight
    whole = torch.autograd.grad(next_token_loss(model, ids), first)[0]
    for at in range(3):
        cut = copied(model, build(VARIANTS["learnable"]))
        values = cut.values.source.detach().clone()
        cut.values.source.requires_grad_(False)
        # A layer's term: what the gradient loses when V_1's way into that layer is detached.
        original = cut.values.mix

        def mix_detached(n, own, carried, x, project, target=cut.values.targets[at], original=original):
            weights, source = carried
            if n == target:
                value, _ = original(n, own, (weights, source.detach()), x, project)
                return value, (weights, source)
            return original(n, own, carried, x, project)

        cut.values.mix = mix_detached
        without = torch.autograd.grad(next_token_loss(cut, ids), cut.layers[0].attention.v_proj.weight)[0]
        assert values[at] != 0
        assert (whole - without).abs().max() > 1e-7


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("tied",)])
def test_every_parameter_has_a_gradient(variant):
    model, ids = perturbed(variant), some_ids()
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(next_token_loss(model, ids), list(parameters.values()))
    for name, gradient in zip(parameters, gradients, strict=True):
        assert gradient.abs().max() > 0, name
        if parameter_roles(model)[name] == "coefficient":
            assert (gradient != 0).all(), name


@pytest.mark.parametrize(
    "variant", ["learnable", "plus", "dense", "denseformer", "svformer", "neutreno", "cla2"]
)
def test_gradients_agree_with_finite_differences_along_a_random_direction(variant):
    assert_gradients_are_slopes(perturbed(variant), some_ids(time=6))


def test_the_carried_first_value_is_the_unmixed_one():
    model = perturbed("learnable")
    path = model.values
    carried = path.open(None)
    seen = []
    for n in range(4):
        own = torch.full((1, 2, 32), float(n + 1), dtype=torch.float64)
        value, carried = path.mix(n, own, carried, None, None)
        seen.append((value, carried[1]))
    assert all(torch.equal(source, torch.ones_like(source)) for _, source in seen)
    assert torch.equal(seen[0][0], seen[0][1])
    assert not torch.equal(seen[1][0], seen[1][1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_recomputing_activations_gives_equal_gradients(variant):
    model, ids = perturbed(variant), some_ids()
    parameters = list(model.parameters())
    kept = torch.autograd.grad(next_token_loss(model, ids), parameters)
    model.checkpoint_activations = True
    recomputed = torch.autograd.grad(next_token_loss(model, ids), parameters)
    for a, b in zip(kept, recomputed, strict=True):
        assert torch.equal(a, b)


# --- initial values, names, roles ------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_weights_across_variants():
    baseline = build({}).state_dict()
    for variant in VARIANTS:
        state = build_model(spec_of(variant, kv_heads=4), dtype=torch.float64).state_dict()
        same_shape = [
            name for name in baseline if name in state and state[name].shape == baseline[name].shape
        ]
        assert len(same_shape) >= 20, variant
        for name in same_shape:
            assert torch.equal(state[name], baseline[name]), (variant, name)


def test_another_seed_or_name_gives_other_weights():
    assert not torch.equal(initial_tensor(0, "a", (4, 4), 1.0), initial_tensor(1, "a", (4, 4), 1.0))
    assert not torch.equal(initial_tensor(0, "a", (4, 4), 1.0), initial_tensor(0, "b", (4, 4), 1.0))
    assert torch.equal(initial_tensor(0, "a", (4, 4), 1.0), initial_tensor(0, "a", (4, 4), 1.0))


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    build({})
    assert torch.equal(torch.rand(3), expected)


def test_matrices_start_normal_with_the_specs_deviation_and_norms_at_one():
    model = build({"init_std": 0.05}, vocab_size=2000)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter))
        else:
            assert abs(parameter.std().item() - 0.05) < 0.05 * 4 / math.sqrt(2 * parameter.numel()), name


def test_names_are_the_same_in_every_variant_and_as_documented():
    expected = {"embedding.weight", "final_norm.weight", "head.weight"}
    for i in range(4):
        expected |= {f"layers.{i}.attention.{p}_proj.weight" for p in "qkvo"}
        expected |= {f"layers.{i}.mlp.{p}_proj.weight" for p in ("gate", "up", "down")}
        expected |= {f"layers.{i}.{p}_norm.weight" for p in ("attention", "mlp")}
    assert set(build({}).state_dict()) == expected
    for variant in VARIANTS:
        extra = set(build_model(spec_of(variant), device="meta").state_dict()) - expected
        assert all(name.startswith(("values.", "stream.")) for name in extra)


def test_layers_that_read_anothers_projections_have_none_of_their_own():
    names = set(build_model(spec_of("svformer-share-keys"), device="meta").state_dict())
    assert [f"layers.{i}.attention.v_proj.weight" in names for i in range(4)] == [True, False, False, False]
    assert [f"layers.{i}.attention.k_proj.weight" in names for i in range(4)] == [True, False, True, False]


def test_roles_cover_every_parameter():
    roles = parameter_roles(build_model(spec_of("denseformer-identity"), device="meta"))
    assert roles["embedding.weight"] == "embedding" and roles["head.weight"] == "head"
    assert roles["layers.0.attention.q_proj.weight"] == "matrix" and roles["final_norm.weight"] == "norm"
    assert roles["stream.weights.3"] == "coefficient"
    for variant in VARIANTS:
        model = build_model(spec_of(variant), device="meta")
        assert list(parameter_roles(model)) == [name for name, _ in model.named_parameters()]


def test_coefficients_stay_in_single_precision_in_a_bf16_model():
    model = build_model(spec_of("learnable"), dtype=torch.bfloat16)
    assert model.values.source.dtype == torch.float32 and model.head.weight.dtype == torch.bfloat16
    assert model(some_ids()).dtype == torch.bfloat16


# --- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"width": 30}, "multiple of heads"),
        ({"kv_heads": 3}, "multiple of kv_heads"),
        (mix(layers=[1, 2]), "cannot use the value of layer 1"),
        (mix(layers="2..9"), "the model has layers 1..4"),
        ({"kv_heads": 2, **VARIANTS["neutreno"]}, "kv_heads equal to heads"),
        ({**mix(), **VARIANTS["cla2"]}, "exclude each other"),
        (mix(parameterisation="softmax_all"), "needs learnable"),
        ({"values": {"kind": "mixx"}}, "is not known"),
        ({"layer": 3}, "unknown key"),
    ],
)
def test_meaningless_combinations_are_refused_with_one_sentence(overrides, words):
    with pytest.raises(UserError, match=words) as caught:
        build_model({**SHAPE, **overrides})
    assert len(caught.value.lines) == 1


def test_overrides_replace_fields_and_unknown_ones_are_refused():
    assert (
        build_model(spec_of("transformer"), device="meta", overrides={"norm_eps": 1e-3}).spec.norm_eps == 1e-3
    )
    with pytest.raises(UserError, match="norm_eps"):
        build_model(spec_of("transformer"), device="meta", overrides={"norm_ep": 1e-3})


# --- kernels, precision, loss -------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["transformer", "gqa2", "mqa", "svformer-gqa4"])
def test_kernels_agree_with_the_definition(variant):
    model, ids = perturbed(variant), some_ids()
    model.kernel = "eager"
    expected, loss = model(ids), next_token_loss(model, ids)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for kernel in ("sdpa", "auto"):
        model.kernel = kernel
        torch.testing.assert_close(model(ids), expected, rtol=1e-10, atol=1e-10)
        other = torch.autograd.grad(next_token_loss(model, ids), list(model.parameters()))
        for a, b in zip(gradients, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_an_unknown_kernel_is_refused():
    model = perturbed("transformer")
    model.kernel = "fast"
    with pytest.raises(ValueError, match="auto"):
        model(some_ids())


@pytest.mark.parametrize(
    "variant", ["transformer", "learnable", "plus", "dense", "denseformer", "svformer-gqa4"]
)
def test_low_precision_compute_keeps_fp32_masters_and_points_where_fp32_points(variant):
    loss = TrainingLoss(build_model(spec_of(variant)))
    ids = some_ids(4, 33)
    low = LowPrecision(loss)
    value = low(ids)
    assert value.dtype == torch.float32
    parameters = dict(loss.named_parameters())
    exact = torch.autograd.grad(loss(ids), list(parameters.values()))
    rounded = torch.autograd.grad(value, list(parameters.values()))
    torch.testing.assert_close(value, loss(ids), rtol=2e-3, atol=0)
    for name, a, b in zip(parameters, exact, rounded, strict=True):
        assert b.dtype == parameters[name].dtype == torch.float32
        if a.numel() > 16:
            assert F.cosine_similarity(a.flatten(), b.flatten(), 0) > 0.99, name


def test_a_small_step_of_a_coefficient_shows_in_a_bf16_forward_pass():
    model = build_model(spec_of("learnable"), dtype=torch.bfloat16)
    term = torch.full((1, 1, 32), 100.0, dtype=torch.bfloat16)
    weights = torch.tensor([1.001, 1.001])
    from respath.model.combine import combine

    # 1.001 rounds to 1 in bf16, so rounded weights would give exactly 200.
    assert combine([term, term], weights.unbind()).dtype == torch.bfloat16
    both = combine([term * 10, term * 10], (weights * 1.003).unbind())
    assert both[0, 0, 0] != 2000.0
    assert model.values.own.dtype == torch.float32


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_is_the_cross_entropy_of_the_next_token(reduction):
    model, ids = perturbed("identity"), some_ids(3, 40)
    logits = model(ids[:, :-1])
    expected = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction=reduction)
    value = next_token_loss(model, ids, reduction)
    torch.testing.assert_close(value.flatten(), expected.flatten(), rtol=1e-12, atol=1e-12)
    parameters = list(model.parameters())
    for a, b in zip(
        torch.autograd.grad(value.sum(), parameters),
        torch.autograd.grad(expected.sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_the_gradients_of_the_fused_loss_are_finite_differences(softcap):
    from respath.model.loss import head_cross_entropy

    generator = torch.Generator().manual_seed(2)
    x, weight = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (5, 7))
    targets = torch.randint(7, (5,), generator=generator)

    def loss(x, weight):
        return head_cross_entropy(x, weight, targets, softcap=softcap)

    assert torch.autograd.gradcheck(loss, (x.requires_grad_(), weight.requires_grad_()))


def test_the_loss_is_the_same_however_many_chunks_it_takes(monkeypatch):
    from respath.model import loss as module

    model, ids = perturbed("transformer"), some_ids(3, 70)
    whole = next_token_loss(model, ids)
    monkeypatch.setattr(module, "CHUNK_LOGITS", {"cpu": 64 * SHAPE["vocab_size"], "other": 1})
    torch.testing.assert_close(next_token_loss(model, ids), whole, rtol=1e-13, atol=0)


# --- a peer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_baseline_is_hugging_faces_llama(kv_heads, dtype):
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    model = perturbed("transformer", dtype=dtype, kv_heads=kv_heads, norm_eps=1e-5)
    config = transformers.LlamaConfig(
        vocab_size=SHAPE["vocab_size"], hidden_size=32, intermediate_size=56, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=kv_heads, rms_norm_eps=1e-5, tie_word_embeddings=False, max_position_embeddings=64,
        attn_implementation="eager",
    )  # fmt: skip
    peer = transformers.LlamaForCausalLM(config).to(dtype).eval()
    renamed = {}
    for name, tensor in model.state_dict().items():
        name = name.replace("embedding.", "model.embed_tokens.").replace("head.", "lm_head.")
        name = name.replace("final_norm", "model.norm").replace("layers.", "model.layers.")
        name = name.replace("attention_norm", "input_layernorm").replace(
            "mlp_norm", "post_attention_layernorm"
        )
        renamed[name.replace("attention.", "self_attn.")] = tensor
    peer.load_state_dict(renamed)
    ids = some_ids()
    with torch.no_grad():
        # The peer works rotations and norms out in fp32, whatever the dtype: so tight and no tighter.
        torch.testing.assert_close(model(ids), peer(ids).logits, rtol=0, atol=2e-5)
