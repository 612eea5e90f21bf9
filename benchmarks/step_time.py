"""Time of one training step against Hugging Face's Llama of the same shape, and of each variant against the baseline.

Every contender takes one step per repetition, in turn, in one process, so that what else the machine does
falls on all alike; ratios are medians over repetitions of paired times. Prints one JSON object.

    PYTHONPATH=src python benchmarks/step_time.py --repetitions 7 --precision bf16
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics

import torch

from respath.documents import check
from respath.measure.timing import Step, optimizer_of, timed, training_step
from respath.model.layers import CPU_HAS_BF16
from respath.spec.model import ModelSpec

VARIANTS = {
    "transformer": {},
    "identity": {"values": {"kind": "mix", "layers": "all", "coefficients": {"source": 0.5, "own": 0.5}}},
    "learnable": {
        "values": {
            "kind": "mix",
            "layers": "all",
            "coefficients": {"source": 0.5, "own": 0.5, "learnable": True},
        }
    },
    "plus": {
        "values": {
            "kind": "mix",
            "layers": "all",
            "coefficients": {"source": 1.0, "own": 0.5, "learnable": True, "parameterisation": "softmax_all"},
        }
    },
    "sparse": {"values": {"kind": "mix", "layers": "6..", "coefficients": {"source": 5.0, "own": 1.0}}},
    "dense": {"values": {"kind": "dense", "layers": "all", "learnable": True}},
    "svformer": {"values": {"kind": "reuse", "layers": "all"}},
    "neutreno": {"values": {"kind": "neutreno", "layers": "all"}},
    "cla2": {"sharing": {"every": 2, "keys": True, "values": True}},
    "denseformer": {"stream": {"kind": "denseformer"}},
}


def peer_step(spec: ModelSpec, precision: str, compiled: bool, device: str) -> Step:
    """One step of transformers' LlamaForCausalLM, in autocast when bf16, as its Trainer does."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.width,
        intermediate_size=spec.ffn_width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        max_position_embeddings=4096,
        rms_norm_eps=spec.norm_eps,
        tie_word_embeddings=spec.tie_embeddings,
        use_cache=False,
        attn_implementation="sdpa",
    )
    module = LlamaForCausalLM(config).to(device)
    step_module = torch.compile(module) if compiled else module
    optimizer = optimizer_of(module)

    def step(ids: torch.Tensor) -> float:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = step_module(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--variants", nargs="*", default=["identity", "learnable", "plus", "svformer"], choices=VARIANTS
    )
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--ffn-width", type=int, default=448)
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="compile ours and the peer")
    parser.add_argument("--no-peer", action="store_true", help="leave out transformers")
    options = parser.parse_args()
    shape = {
        "vocab_size": options.vocab_size,
        "layers": options.layers,
        "width": options.width,
        "heads": options.heads,
        "kv_heads": options.heads,
        "ffn_width": options.ffn_width,
    }
    contenders: dict[str, Step] = {}
    for name in dict.fromkeys(["transformer", *options.variants]):
        spec = check(ModelSpec, {**shape, **VARIANTS[name]}, name)
        contenders[name] = training_step(spec, options.precision, options.compile, options.device)
    if not options.no_peer:
        spec = check(ModelSpec, shape, "peer")
        contenders["huggingface"] = peer_step(spec, options.precision, options.compile, options.device)

    torch.manual_seed(0)
    # One token more than the context: ours predicts ids[:, 1:] from ids[:, :-1]; the peer sees all and shifts its logits.
    ids = torch.randint(options.vocab_size, (options.batch, options.context + 1), device=options.device)
    for step in contenders.values():
        step(ids)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.repetitions):
        for name, step in contenders.items():
            given = ids if name != "huggingface" else ids[:, :-1]
            seconds[name].append(timed(functools.partial(step, given), options.device)[0])

    def ratio(name: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[name], seconds[other], strict=True))

    report = {
        "shape": {**shape, "context": options.context, "batch": options.batch},
        "precision": options.precision,
        "device": options.device,
        "compiled": options.compile,
        "threads": torch.get_num_threads(),
        "cpu_has_bf16": CPU_HAS_BF16,
        "repetitions": options.repetitions,
        "median_seconds": {name: statistics.median(times) for name, times in seconds.items()},
        "variant_over_baseline": {
            name: ratio(name, "transformer") for name in options.variants if name != "transformer"
        },
    }
    if "huggingface" in seconds:
        report["speed_over_huggingface"] = {
            name: ratio("huggingface", name) for name in contenders if name != "huggingface"
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
