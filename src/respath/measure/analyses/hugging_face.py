"""Token importance and similarities of a Llama-like or GPT-2 checkpoint folder in Hugging Face's form (ResFormer Figure 12, right).

The folder's own modules are listened to through forward hooks: decoder layers for states, projections for values, and
attention for probabilities, which only transformers' eager attention returns; each layer's are summed and dropped at
once. Weights are read from safetensors, and code that comes with a folder is never run.
Source: ResFormer (arXiv 2410.17897), Appendix A.1; the authors' script does the same with ``output_attentions``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from respath.data.manifest import load_manifest
from respath.errors import UserError
from respath.files import content_hash, read_json, sha256_file
from respath.fingerprint import fingerprint
from respath.measure.analyses.findings import Findings
from respath.measure.analyses.inputs import Inputs
from respath.measure.analyses.stage import analyse_traced, document
from respath.measure.analyses.trace import Trace

#: Modules that need nothing but states and probabilities.
MODULES = ("similarity", "importance")
TOKENIZER = "tokenizer.json"


class Built(NamedTuple):
    """Where a family of models keeps its parts."""

    decoder: str
    layers: str
    attention: str
    projection: str
    """What makes values: its whole output, or the last third of what it makes together with queries and keys."""
    joined: bool


#: Llama, Mistral, Qwen, Gemma and their like; GPT-2.
FAMILIES = (
    Built("model", "layers", "self_attn", "v_proj", joined=False),
    Built("transformer", "h", "attn", "c_attn", joined=True),
)


def family_of(model: Any) -> Built | None:
    """How a transformers model is built; None when it is like none of FAMILIES."""
    for family in FAMILIES:
        layers = getattr(getattr(model, family.decoder, None), family.layers, None)
        attentions = [getattr(layer, family.attention, None) for layer in layers or ()]
        if attentions and all(hasattr(attention, family.projection) for attention in attentions):
            return family
    return None


def load(folder: Path, dtype: torch.dtype, device: str):
    """The causal language model of a folder, in evaluation mode. Raises UserError for a folder that is none."""
    from safetensors import SafetensorError

    try:
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        raise UserError("--hf: needs the transformers package (pip install 'respath[test]')") from None
    disable_progress_bar()  # a log file would keep every state of it
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json; --hf wants a checkpoint folder in Hugging Face's form")
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"{folder}: no *.safetensors; other formats are not read, because they can run code")
    config = read_json(folder / "config.json")
    if config.get("auto_map"):
        raise UserError(f"{folder}/config.json: auto_map: names code of its own, which is not run here")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation="eager",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise UserError(
            f"{folder}: transformers cannot read it: {' '.join(str(error).split())[:300]}"
        ) from None
    if family_of(model) is None:
        raise UserError(
            f"{folder}: model_type {config.get('model_type')!r} is built neither like Llama nor like GPT-2; cannot be analysed"
        )
    return model.eval().to(device)


def trace(model: Any, ids: Tensor, attention: bool = True) -> Trace:
    """As ``respath.measure.analyses.trace.trace``, of a transformers model. Values are not mixed: before and after are the same."""
    found, family = Trace(), family_of(model)
    decoder = getattr(model, family.decoder)

    def entered(module, arguments, keywords):
        found.hidden.append(arguments[0] if arguments else keywords["hidden_states"])

    def left(module, arguments, result):
        found.hidden.append(result[0] if isinstance(result, tuple) else result)

    def projected(module, arguments, value):
        found.own.append(value.chunk(3, dim=-1)[-1] if family.joined else value)

    def attended(module, arguments, result):
        # (batch, heads, queries, keys) -> what each key receives.
        found.attention.append(result[1].sum((1, 2), dtype=torch.float64) / result[1].shape[1])

    with contextlib.ExitStack() as stack, torch.inference_mode():
        layers = getattr(decoder, family.layers)
        hooks = [layers[0].register_forward_pre_hook(entered, with_kwargs=True)]
        for layer in layers:
            module = getattr(layer, family.attention)
            hooks += [
                layer.register_forward_hook(left),
                getattr(module, family.projection).register_forward_hook(projected),
            ]
            if attention:
                hooks.append(module.register_forward_hook(attended))
        for hook in hooks:
            stack.callback(hook.remove)
        decoder(input_ids=ids, use_cache=False)
    found.values = list(found.own)
    return found


def encode_again(
    rows: dict[str, np.ndarray], store: Path, folder: Path, context: int
) -> dict[str, np.ndarray]:
    """The text of each row in the folder's own tokens, cut to ``context``; rows that become shorter are left out."""
    from tokenizers import Tokenizer

    theirs, ours = (Tokenizer.from_file(str(path)) for path in (folder / TOKENIZER, store))
    encoded = {}
    for domain, ids in rows.items():
        texts = [ours.decode(row.tolist()) for row in ids]
        kept = [one.ids[:context] for one in theirs.encode_batch(texts) if len(one.ids) >= context]
        encoded[domain] = np.array(kept, dtype=np.int64).reshape(-1, context)
    return encoded


def inputs_for(folder: Path, manifest: Path, context: int, sequences: int) -> Inputs:
    """The frozen sequences, in the folder's own tokens unless its tokenizer is the token store's (or it has none)."""
    store = manifest.parent / load_manifest(manifest)["tokenizer"]["path"]
    own = folder / TOKENIZER
    if not own.is_file() or read_json(own) == read_json(store):
        return Inputs.read(manifest, context, sequences)
    # Another vocabulary needs more or fewer tokens for a text: twice the text leaves enough of it.
    longer = Inputs.read(manifest, 2 * context, sequences)
    encoded = Inputs(*(encode_again(rows, store, folder, context) for rows in (longer.packed, longer.starts)))
    if not all(sum(map(len, rows.values())) for rows in (encoded.packed, encoded.starts)):
        raise UserError(
            f"{folder}: no frozen sequence has {context} of its tokens; choose a smaller --context"
        )
    return encoded


def analyse_folder(
    folder: Path,
    manifest: Path,
    context: int,
    sequences: int,
    modules: Collection[str],
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> tuple[dict[str, Any], dict[str, Findings]]:
    """Content of analysis.json and findings of a checkpoint folder; the run is named after the folder and its config."""
    if refused := [name for name in modules if name not in MODULES]:
        raise UserError(
            f"--modules: {', '.join(refused)} cannot be made of a --hf folder; choose from {', '.join(MODULES)}"
        )
    model = load(folder, dtype, device)
    longest = getattr(model.config, "max_position_embeddings", None) or context
    # Learned positions end there; rotations go on, only less well trained.
    if family_of(model).joined and longest < context:
        raise UserError(
            f"{folder}: reads {longest:,} tokens at most, and sequences of {context:,} are analysed; name a checkpoint that reads "
            "longer ones"
        )
    inputs = inputs_for(folder, manifest, context, sequences)
    largest, vocabulary = (
        max(int(rows.max()) for rows in inputs.starts.values() if rows.size),
        model.config.vocab_size,
    )
    if largest >= vocabulary:
        raise UserError(
            f"{folder}: has {vocabulary} tokens and no {TOKENIZER}, and the store's ids go up to {largest}; put its "
            f"{TOKENIZER} beside the weights"
        )
    family = family_of(model)
    layers = len(getattr(getattr(model, family.decoder), family.layers))
    found = analyse_traced(
        lambda ids, attention: trace(model, ids, attention), layers, inputs, modules, device
    )
    weights = [sha256_file(path) for path in sorted(folder.glob("*.safetensors"))]
    more = {
        "weights_sha256": weights[0] if len(weights) == 1 else content_hash(weights, 64),
        "manifest_sha256": sha256_file(manifest),
        "code": {"measure": fingerprint(("respath.measure.analyses.hugging_face",))},
    }
    return document(
        f"{folder.resolve().name}-{content_hash(read_json(folder / 'config.json'))}", found, inputs, **more
    ), found
