"""Finished weights from elsewhere as the result of a run: checked against its spec, then put where training leaves its own.

Read are safetensors, never a pickle: a file of ours (``DIR/final/model.safetensors`` of any checkout), a folder that ``respath
export`` wrote, or a Hugging Face folder of a llama or gpt2 model. What training would have recorded and nobody has measured
(losses, curve, tokens, time) stays absent in ``train.json``, and ``provenance.imported`` says where the weights come from.
"""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from respath import __version__
from respath.data.manifest import load_manifest
from respath.documents import check
from respath.errors import UserError, did_you_mean
from respath.files import flattened, read_json, sha256_file
from respath.papers.resolve import Resolver, Run
from respath.quantities.kinds import imported
from respath.spec.document import identity
from respath.spec.model import ModelSpec
from respath.training.folders import checkpoint_folders
from respath.training.lease import Lease
from respath.training.results import FINISHED, relative_path, write_result

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
#: Numbers that weights may be stored in, by safetensors' names. All of them are exact in the float32 that evaluation computes in.
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
#: Endings of files that hold pickles, which run code when they are read.
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl"}
#: Buffers that older versions of transformers stored beside the parameters.
_BUFFERS = re.compile(r"\.(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)$")
#: transformers' own values where a config leaves a key out, of everything that changes what a model computes.
_DEFAULTS = {
    "llama": {
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    },
    "gpt2": {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "tie_word_embeddings": True,
    },
}
_SHAPE_KEYS = {
    "llama": (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ),
    "gpt2": ("vocab_size", "n_embd", "n_inner", "n_layer", "n_head", "n_positions"),
}


@dataclasses.dataclass(frozen=True)
class Source:
    """What a user named: its safetensors files, and the config beside them (None for bare weights)."""

    given: Path
    files: tuple[Path, ...]
    config: dict[str, Any] | None

    @property
    def hugging_face(self) -> bool:
        """Are names and shapes those of transformers?"""
        return self.config is not None and "model_type" in self.config

    @property
    def exported(self) -> bool:
        """Did ``respath export`` write the config?"""
        return self.config is not None and "respath" in self.config

    @property
    def exported_spec(self) -> Any:
        """The spec in such a config, unchecked."""
        described = self.config["respath"]
        return described.get("spec") if isinstance(described, dict) else described

    @property
    def config_path(self) -> Path:
        """Where the config lies."""
        return self.given / CONFIG


@dataclasses.dataclass(frozen=True)
class Stored:
    """One tensor as a safetensors header describes it."""

    shape: tuple[int, ...]
    dtype: str


def find_source(given: Path) -> Source:
    """The weights behind ``--from``. UserError where there are none that may be read."""
    if not given.exists():
        raise UserError(f"--from {given}: no such file or folder")
    if given.is_file():
        if given.suffix != ".safetensors":
            raise UserError(
                f"--from {given}: only safetensors are read, because other formats can run code; give a *.safetensors file or a "
                "folder that has one"
            )
        return Source(given, (given,), None)
    path = given / CONFIG
    config = read_json(path) if path.is_file() else None
    if config is not None and not isinstance(config, dict):
        raise UserError(f"{path}: is no mapping; give the folder that respath export or transformers wrote")
    if (given / WEIGHTS).is_file():
        return Source(given, (given / WEIGHTS,), config)
    if (given / INDEX).is_file():
        return Source(given, _indexed(given / INDEX), config)
    if (given / "final" / WEIGHTS).is_file():
        return Source(given, (given / "final" / WEIGHTS,), None)
    pickles = sorted(entry.name for entry in given.iterdir() if entry.suffix in PICKLES)
    why = (
        f"; {', '.join(pickles[:3])} can run code and is not read: save it as safetensors" if pickles else ""
    )
    raise UserError(f"--from {given}: has no {WEIGHTS}{why}")


def _indexed(index: Path) -> tuple[Path, ...]:
    """The files of a model that is stored in several. UserError for names that leave the folder and for missing files."""
    content = read_json(index)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not shards or not all(isinstance(s, str) for s in shards.values()):
        raise UserError(f"{index}: weight_map: names no files")
    names = sorted(set(shards.values()))
    if odd := [name for name in names if PurePath(name).name != name or not name.endswith(".safetensors")]:
        raise UserError(f"{index}: weight_map: {odd[0]!r} is no safetensors file of this folder")
    if absent := [name for name in names if not (index.parent / name).is_file()]:
        raise UserError([f"{index.parent / name}: is missing ({index.name} names it)" for name in absent])
    return tuple(index.parent / name for name in names)


def stored_tensors(files: Iterable[Path]) -> dict[str, Stored]:
    """What the headers of safetensors files say; no tensor is read. UserError for a file that is none, or is cut."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, Stored] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - the handle is no mapping
                    part = opened.get_slice(name)
                    found[name] = Stored(tuple(part.get_shape()), part.get_dtype())
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: is no whole safetensors file ({error}); copy it again") from None
    return found


# --- against the spec ----------------------------------------------------------------------------------------------


def tensor_problems(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, Stored]) -> list[str]:
    """Names, shapes and dtypes that do not fit, a line each; what several layers have in common is one line."""
    problems: list[tuple[str, str]] = []
    missing = [name for name in expected if name not in found]
    known = sorted({_pattern(name)[0] for name in missing})
    hints: dict[str, str] = {}
    for name in missing:
        problems.append((name, f"is missing (shape {_shape(expected[name])})"))
    for name, stored in found.items():
        if name not in expected:
            pattern, _ = _pattern(name)
            if pattern not in hints:
                hint = did_you_mean(pattern, known)
                hints[pattern] = hint if "did you mean" in hint else ""
            problems.append((name, f"is no parameter of this model{hints[pattern]}"))
        elif stored.shape != expected[name]:
            problems.append(
                (name, f"has shape {_shape(stored.shape)}, this model has {_shape(expected[name])}")
            )
        if stored.dtype not in DTYPES:
            problems.append((name, f"holds {stored.dtype} numbers; weights are {', '.join(DTYPES.values())}"))
    return _joined(problems)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "of one number"


def _pattern(name: str) -> tuple[str, int | None]:
    """``layers.4.mlp.up_proj.weight`` as ``layers.N.mlp.up_proj.weight`` and 4."""
    number = re.search(r"(?<=\.)\d+(?=\.)", name)
    if number is None:
        return name, None
    return f"{name[: number.start()]}N{name[number.end() :]}", int(number[0])


def _joined(problems: list[tuple[str, str]]) -> list[str]:
    """``layers.4.a: is missing`` and ``layers.5.a: is missing`` as ``layers.4..5.a: is missing``, in the order of the first."""
    groups: dict[tuple[str, str], list[int | None]] = {}
    for name, problem in problems:
        pattern, number = _pattern(name)
        groups.setdefault((pattern, problem), []).append(number)
    return [
        f"{pattern if numbers[0] is None else pattern.replace('.N.', f'.{_numbers(numbers)}.', 1)}: {problem}"
        for (pattern, problem), numbers in groups.items()
    ]


def _numbers(numbers: list[int]) -> str:
    first, last = min(numbers), max(numbers)
    if len(numbers) == 1:
        return str(first)
    whole = sorted(numbers) == list(range(first, last + 1))
    return f"{first}..{last}" if whole else f"{{{','.join(map(str, sorted(numbers)))}}}"


def spec_problems(ours: ModelSpec, source: Source) -> list[str]:
    """Where the spec that ``respath export`` wrote beside the weights is another than the run's, a line a field."""
    theirs = check(ModelSpec, source.exported_spec, source.config_path, ("respath", "spec"))
    fields = [flattened(spec.model_dump(mode="json")) for spec in (theirs, ours)]
    return [
        f"{source.config_path}: respath.spec.{key}: is {_said(fields[0], key)}, the run's model has {_said(fields[1], key)}"
        for key in dict.fromkeys([*fields[1], *fields[0]])
        if fields[0].get(key, _ABSENT) != fields[1].get(key, _ABSENT)
    ]


_ABSENT = object()


def _said(fields: Mapping[str, Any], key: str) -> str:
    return repr(fields[key]) if key in fields else "absent"


def hugging_face_problems(spec: ModelSpec, source: Source) -> list[str]:
    """Where transformers' config describes another computation than the spec's: what shapes alone do not tell."""
    from torch import float32

    from respath.model.export import hugging_face_config, why_not_hugging_face

    path, config = source.config_path, source.config
    if config.get("auto_map"):
        return [f"{path}: auto_map: names code of its own, which is not run here"]
    if obstacle := why_not_hugging_face(spec):
        return [
            f"{path}: model_type: {config['model_type']!r}: transformers has no class for {obstacle}, which this run's model has; "
            "import respath's own safetensors"
        ]
    if config["model_type"] != spec.backbone:
        return [f"{path}: model_type: is {config['model_type']!r}, the run's model is a {spec.backbone}"]
    defaults = _DEFAULTS[spec.backbone]
    expected = {**defaults, **hugging_face_config(spec, 0, None, float32)}
    theirs = _completed(spec.backbone, config)
    lines = []
    for key in (*_SHAPE_KEYS[spec.backbone], *defaults):
        found, wanted = theirs.get(key), expected[key]
        close = isinstance(wanted, float) and isinstance(found, int | float) and math.isclose(found, wanted)
        if found != wanted and not close:
            lines.append(f"{path}: {key}: is {found!r}, the run's model has {wanted!r}")
    return lines


def _completed(backbone: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what transformers fills in, under the keys that ``hugging_face_config`` writes."""
    whole = {**_DEFAULTS[backbone], **config}
    if backbone == "gpt2":
        if whole.get("n_inner") is None and isinstance(whole.get("n_embd"), int):
            whole["n_inner"] = 4 * whole["n_embd"]
        return whole
    # transformers 5 keeps base and scaling of the rotation in one entry.
    rope = whole.get("rope_parameters") or {}
    whole["rope_theta"] = rope.get("rope_theta", whole["rope_theta"])
    for scaling in (whole["rope_scaling"], rope):
        kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
        whole["rope_scaling"] = None if kind == "default" else kind
        if kind != "default":
            break
    heads, width = whole.get("num_attention_heads"), whole.get("hidden_size")
    if whole.get("num_key_value_heads") is None:
        whole["num_key_value_heads"] = heads
    if whole.get("head_dim") is None and isinstance(heads, int) and isinstance(width, int) and heads:
        whole["head_dim"] = width // heads
    return whole


def read_weights(spec: ModelSpec, source: Source) -> tuple[dict[str, Tensor], list[str]]:
    """The run's parameters by our names, in the dtypes of the file, and these dtypes.

    Raises UserError with every mismatch between the source and the spec, and for values that are not finite.
    """
    from respath.model import build_model
    from respath.model.export import hugging_face_weights, our_weights
    from respath.training.checkpoint import load_tensors

    lines = []
    if source.exported:
        lines = spec_problems(spec, source)
    elif source.hugging_face:
        lines = hugging_face_problems(spec, source)
    if lines:
        # Shapes follow from these: naming every tensor as well would bury them.
        raise UserError(lines)
    found = stored_tensors(source.files)
    where = source.files[0] if len(source.files) == 1 else source.given
    ours = dict(build_model(spec, device="meta").named_parameters())
    theirs = hugging_face_weights(spec, ours) if source.hugging_face else ours
    expected = {name: tuple(tensor.shape) for name, tensor in theirs.items()}
    names = _names(spec, source, found)
    lines = tensor_problems(
        expected, {names[name]: stored for name, stored in found.items() if name in names}
    )
    if lines:
        raise UserError([f"{where}: {line}" for line in lines])
    tensors = {
        names[name]: tensor
        for path in source.files
        for name, tensor in load_tensors(path).items()
        if name in names
    }
    if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        lines = _joined([(name, "holds numbers that are not finite") for name in broken])
        raise UserError([f"{where}: {line}" for line in lines])
    dtypes = sorted({DTYPES[stored.dtype] for name, stored in found.items() if name in names})
    if source.hugging_face:
        tensors = our_weights(spec, tensors)
    # Parts of one joined matrix are views of it: each gets memory of its own.
    return {name: tensors[name].clone() for name in ours}, dtypes


def _names(spec: ModelSpec, source: Source, found: Mapping[str, Stored]) -> dict[str, str]:
    """Name in the file -> name as transformers' causal models have it today; left out is what is no parameter."""
    if not source.hugging_face:
        return {name: name for name in found}
    ignored = {"lm_head.weight"} if spec.tie_embeddings else set()
    # A model that was saved without its head has no prefix (GPT-2's first checkpoint).
    prefix = {"llama": "model.", "gpt2": "transformer."}[spec.backbone]
    bare = not any(name.startswith(prefix) for name in found)
    return {
        name: f"{prefix}{name}" if bare and not name.startswith("lm_head.") else name
        for name in found
        if name not in ignored and not _BUFFERS.search(name)
    }


# --- into the project ----------------------------------------------------------------------------------------------


def manifest_hash(path: Path | None, run: Run) -> str | None:
    """SHA-256 of the manifest that the weights were trained on; UserError when it is not of the run's data."""
    if path is None:
        return None
    content = load_manifest(path)
    if content.get("spec") != identity(run.spec.data):
        raise UserError(
            f"--tokens-manifest {path}: describes other data than the run's ({run.id}); give the manifest that the weights were "
            "trained on, or leave the option out"
        )
    return sha256_file(path)


def import_run(
    project: Resolver, run: Run, given: Path, manifest: Path | None = None, replace: bool = False
) -> dict[str, Any]:
    """Bring weights in as the result of ``run``; returns what was done.

    Weights first, ``train.json`` last. What a training left in their place is moved beside it, never deleted. Raises UserError
    for weights that do not fit, and for a run that is already there unless ``replace``; LeaseHeld while a trainer is at work.
    """
    from respath.training.checkpoint import save_tensors_atomically

    out = project.root / "results" / "runs" / run.id / "train.json"
    folder = project.root / project.settings.checkpoints / run.id
    earlier = read_json(out) if out.exists() else None
    source = find_source(given)
    manifest_sha256 = manifest_hash(manifest, run)
    files = [*source.files, *([source.config_path] if source.config is not None else [])]
    origin = {
        "name": given.resolve().name,
        "format": "hugging_face" if source.hugging_face else "respath",
        "files": {path.name: sha256_file(path) for path in files},
    }
    done = {"run": run.id, "result": str(out), "checkpoints": str(folder), "moved_to": None, **origin}
    before = imported(earlier) if isinstance(earlier, dict) else None
    same = before is not None and before["files"] == origin["files"]
    final = folder / "final" / WEIGHTS
    if (
        same
        and earlier["manifest_sha256"] == manifest_sha256
        and final.is_file()
        and sha256_file(final) == earlier["weights"]["sha256"]
    ):
        return {**done, "status": "already imported"}
    # An earlier import is a copy of what lies elsewhere; a training's work is not.
    trained = before is None and (earlier is not None or _has_work(folder))
    if (earlier is not None or trained) and not (replace or same):
        raise UserError(
            f"{out if earlier is not None else folder}: run {run.id} {_state(earlier, before)}; give --replace to put these weights "
            "in its place" + (" (its files are moved, not deleted)" if trained else "")
        )
    weights, dtypes = read_weights(run.spec.model, source)
    with Lease(folder, wait_minutes=0):
        if trained:
            done["moved_to"] = str(_move_aside(folder, out))
        else:
            out.unlink(missing_ok=True)
        digest = save_tensors_atomically(final, weights)
        write_result(
            {
                "schema": 1,
                "kind": "train",
                "run": run.id,
                "spec": identity(run.spec),
                "status": FINISHED,
                "reason": None,
                "steps": None,
                "tokens": None,
                "loss": {"final": None, "window": None},
                "curve": {"step": [], "tokens": [], "loss": [], "lr": []},
                "weights": {"path": relative_path(final, out), "sha256": digest},
                "manifest_sha256": manifest_sha256,
                "cost": {},
                "provenance": {"imported": {**origin, "dtypes": dtypes, "respath": __version__}},
            },
            folder,
            out,
        )
    parameters = sum(tensor.numel() for tensor in weights.values())
    return {**done, "status": "imported", "parameters": parameters, "dtypes": dtypes, "sha256": digest}


def _has_work(folder: Path) -> bool:
    """Has a training left something in a run's checkpoint folder?"""
    return (
        bool(checkpoint_folders(folder)) or (folder / "final").exists() or (folder / "history.jsonl").exists()
    )


def _state(earlier: Any, before: dict[str, Any] | None) -> str:
    if before:
        return f"was imported from {before['name']}, whose files have other hashes"
    if isinstance(earlier, dict):
        return f"is already there ({earlier.get('status')})"
    return "has been begun, and its checkpoints would be lost"


def _move_aside(folder: Path, out: Path) -> Path:
    """Move a training's files and its result to a folder beside its own; returns that folder."""
    aside = next(
        path
        for number in range(1, 1_000_000)
        if not (path := folder.with_name(f"{folder.name}.replaced-{number}")).exists()
    )
    aside.mkdir()
    # The result first: without it nothing takes half-moved files for a finished run.
    if out.exists():
        shutil.move(out, aside / out.name)
    for entry in folder.iterdir():
        # The lease that we hold stays.
        if not entry.name.startswith("lease."):
            entry.rename(aside / entry.name)
    return aside
