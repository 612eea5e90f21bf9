"""A model as a folder that others read: safetensors and a config, for transformers where it has the class.

Every export is ``model.safetensors`` and ``config.json``, byte-identical for equal weights. The plain llama
and gpt2 models are written as transformers names and shapes things, so that
``AutoModelForCausalLM.from_pretrained`` loads the folder and computes equal logits; their config carries the
spec beside transformers' own keys. All other variants keep our names. Either kind is read back by
``load_exported``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from respath.documents import check
from respath.errors import UserError
from respath.files import read_json, sha256_file, write_json
from respath.model.build import build_model
from respath.spec.document import identity
from respath.spec.model import ModelSpec

if TYPE_CHECKING:
    from respath.model.transformer import Transformer

WEIGHTS, CONFIG = "model.safetensors", "config.json"
#: Tokens that readers of an exported folder may ask of a model without a limit of its own.
READ_AT_LEAST = 2048

_LLAMA_NAMES = (
    (r"^embedding\.", "model.embed_tokens."),
    (r"^head\.", "lm_head."),
    (r"^final_norm\.", "model.norm."),
    (r"^layers\.(\d+)\.attention\.", r"model.layers.\1.self_attn."),
    (r"^layers\.(\d+)\.attention_norm\.", r"model.layers.\1.input_layernorm."),
    (r"^layers\.(\d+)\.mlp_norm\.", r"model.layers.\1.post_attention_layernorm."),
    (r"^layers\.(\d+)\.mlp\.", r"model.layers.\1.mlp."),
)
_GPT2_NAMES = (
    (r"^embedding\.", "transformer.wte."),
    (r"^entry\.positions\.", "transformer.wpe."),
    (r"^head\.", "lm_head."),
    (r"^final_norm\.", "transformer.ln_f."),
    (r"^layers\.(\d+)\.attention_norm\.", r"transformer.h.\1.ln_1."),
    (r"^layers\.(\d+)\.mlp_norm\.", r"transformer.h.\1.ln_2."),
    (r"^layers\.(\d+)\.attention\.o_proj\.", r"transformer.h.\1.attn.c_proj."),
    (r"^layers\.(\d+)\.mlp\.up_proj\.", r"transformer.h.\1.mlp.c_fc."),
    (r"^layers\.(\d+)\.mlp\.down_proj\.", r"transformer.h.\1.mlp.c_proj."),
)


def why_not_hugging_face(spec: ModelSpec) -> str | None:
    """What keeps transformers from computing this model, in a few words; None when it can."""
    if spec.backbone not in ("llama", "gpt2"):
        return f"the {spec.backbone} backbone"
    if not spec.stream.plain:
        return f"the residual stream {spec.stream.kind}"
    if not spec.values.plain:
        return f"the value path {spec.values.kind}"
    for field, words in (
        ("sharing", "layers that share"),
        ("attention_residual", "an attention residual"),
        ("windows", "windows"),
    ):
        if getattr(spec, field) is not None:
            return words
    if spec.backbone == "gpt2" and spec.kv_heads != spec.heads:
        return "grouped keys and values in gpt2"
    return None


def _renamed(name: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        new, count = re.subn(pattern, replacement, name)
        if count:
            return new
    raise KeyError(name)


def hugging_face_weights(spec: ModelSpec, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under transformers' names; its GPT-2 joins q, k and v and stores matrices as (in, out)."""
    if spec.backbone == "llama":
        return {_renamed(name, _LLAMA_NAMES): tensor for name, tensor in state.items()}
    weights, joined = {}, {}
    for name, tensor in state.items():
        if match := re.match(r"^layers\.(\d+)\.attention\.([qkv])_proj\.(weight|bias)$", name):
            joined.setdefault((match[1], match[3]), {})[match[2]] = tensor
            continue
        matrix = "_proj.weight" in name
        weights[_renamed(name, _GPT2_NAMES)] = tensor.T.contiguous() if matrix else tensor
    for (n, kind), parts in joined.items():
        whole = torch.cat([parts[letter] for letter in "qkv"])
        weights[f"transformer.h.{n}.attn.c_attn.{kind}"] = whole.T.contiguous() if kind == "weight" else whole
    return weights


def our_weights(spec: ModelSpec, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of ``hugging_face_weights``."""
    with torch.device("meta"):
        names = build_model(spec, device="meta").state_dict()
    if spec.backbone == "llama":
        return {name: weights[_renamed(name, _LLAMA_NAMES)] for name in names}
    state = {}
    for name in names:
        if match := re.match(r"^layers\.(\d+)\.attention\.([qkv])_proj\.(weight|bias)$", name):
            whole = weights[f"transformer.h.{match[1]}.attn.c_attn.{match[3]}"]
            part = whole.split(spec.width, dim=-1)["qkv".index(match[2])]
            state[name] = part.T.contiguous() if match[3] == "weight" else part
        else:
            tensor = weights[_renamed(name, _GPT2_NAMES)]
            state[name] = tensor.T.contiguous() if "_proj.weight" in name else tensor
    return state


def hugging_face_config(
    spec: ModelSpec, context: int, end_id: int | None, dtype: torch.dtype
) -> dict[str, Any]:
    """transformers' config of a spec. ``context``: tokens that the model was trained on.

    Rotations limit no length, and lm-eval's ``hf`` ends at an item that is longer than the limit that a config names: a model of
    short contexts is given lm-eval's own default (``max_length`` in its arguments sets the trained length).
    """
    shared = {
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": spec.tie_embeddings,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": None,
        "initializer_range": spec.init_std,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "use_cache": True,
    }
    if spec.backbone == "llama":
        return {
            **shared,
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": spec.width,
            "intermediate_size": spec.ffn_width,
            "num_hidden_layers": spec.layers,
            "num_attention_heads": spec.heads,
            "num_key_value_heads": spec.kv_heads,
            "head_dim": spec.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": max(context, READ_AT_LEAST),
            "rms_norm_eps": spec.norm_eps,
            "rope_theta": spec.rope_theta,
            "rope_scaling": None,
            "attention_bias": False,
            "mlp_bias": False,
        }
    return {
        **shared,
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": spec.width,
        "n_inner": spec.ffn_width,
        "n_layer": spec.layers,
        "n_head": spec.heads,
        "n_positions": spec.max_positions,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": spec.norm_eps,
        "embd_pdrop": spec.dropout,
        "attn_pdrop": spec.dropout,
        "resid_pdrop": spec.dropout,
    }


def export(
    model: Transformer,
    to: str | Path,
    *,
    context: int = 2048,
    tokenizer: str | Path | None = None,
    end_id: int | None = None,
) -> dict[str, Any]:
    """Write a model's folder. ``tokenizer``: a ``tokenizer.json`` to put beside it.

    Returns the format (``hugging_face`` or ``respath``), a note where transformers cannot compute the model,
    and the SHA-256 of each file.
    """
    from respath.training.checkpoint import save_tensors_atomically

    to, spec, state = Path(to), model.spec, model.state_dict()
    to.mkdir(parents=True, exist_ok=True)
    obstacle = why_not_hugging_face(spec)
    described = {"respath": {"schema": 1, "spec": identity(spec), "trained_context": context}}
    note = None
    if obstacle is None:
        state = hugging_face_weights(spec, state)
        described |= hugging_face_config(spec, context, end_id, model.embedding.weight.dtype)
    else:
        note = (
            f"transformers has no class for {obstacle}: weights and config are respath's own "
            "(respath.model.export.load_exported)"
        )
    files = [WEIGHTS, CONFIG]
    save_tensors_atomically(to / WEIGHTS, state, {"format": "pt"})
    write_json(to / CONFIG, described)
    if tokenizer is not None:
        write_json(to / "tokenizer.json", read_json(tokenizer))
        names = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": spec.max_positions or max(context, READ_AT_LEAST),
            "clean_up_tokenization_spaces": False,
        }
        write_json(to / "tokenizer_config.json", names | end_token(to / "tokenizer.json", end_id))
        files += ["tokenizer.json", "tokenizer_config.json"]
    return {
        "format": "respath" if obstacle else "hugging_face",
        "note": note,
        "parameters": sum(tensor.numel() for tensor in state.values()),
        "files": {name: sha256_file(to / name) for name in files},
    }


def end_token(tokenizer: Path, end_id: int | None) -> dict[str, str]:
    """The text of the end-of-text token, as a tokenizer config names it."""
    if end_id is None:
        return {}
    vocabulary = read_json(tokenizer)
    names = {item["id"]: item["content"] for item in vocabulary.get("added_tokens", [])}
    return {"eos_token": names[end_id], "bos_token": names[end_id]} if end_id in names else {}


def load_exported(folder: str | Path, *, device="cpu") -> Transformer:
    """The model of an exported folder, in evaluation mode. UserError when the folder is damaged or none."""
    from safetensors import SafetensorError

    from respath.training.checkpoint import load_tensors

    folder = Path(folder)
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or "respath" not in config:
        raise UserError(f"{folder / CONFIG}: was not written by respath export (no key 'respath')")
    spec = check(ModelSpec, config["respath"]["spec"], folder / CONFIG, prefix=("respath", "spec"))
    try:
        weights = {name: tensor.to(device) for name, tensor in load_tensors(folder / WEIGHTS).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS}: cannot be read ({error}); export the model again") from None
    try:
        state = our_weights(spec, weights) if "model_type" in config else weights
        model = build_model(spec, device="meta")
        model.load_state_dict(state, strict=True, assign=True)
    except (KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{folder / WEIGHTS}: does not fit {folder / CONFIG}: {reason}") from None
    return model.eval()
