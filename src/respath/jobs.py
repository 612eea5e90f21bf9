"""Where workflow jobs run and the environment that they inherit (the library itself never imports Snakemake)."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from respath.errors import UserError
from respath.gpu_lease import SWITCH
from respath.training.launch import GROUP


def check_folder(here: Path, clone: Path) -> None:
    """Raise UserError where the workflow cannot run: in another folder than its own, or where Snakemake cannot write names."""
    if not clone.exists() or not os.path.samefile(here, clone):
        raise UserError(
            f"{here}: is not the folder of the Snakefile, where results, checkpoints and logs go; without -s and --directory: "
            f"cd {clone} (or work in a clone of your own)"
        )
    if set("{}") & set(str(here)):
        raise UserError(
            f"{here}: Snakemake reads braces in a path as the name of a variable; move the clone to a folder without them"
        )


def check_writable(folder: Path) -> None:
    """Raise UserError where Snakemake could not keep its state: in somebody else's checkout, or after a start as root."""
    state = folder / ".snakemake"
    needed = state if state.exists() else folder
    if not os.access(needed, os.W_OK):
        raise UserError(
            f"{needed}: not writable for this user, and Snakemake keeps its state there; make it writable, or work in a clone of your own"
        )


def check_named_checkpoints(folders: Mapping[str, str], place: Callable[[Sequence[str]], str]) -> None:
    """Raise UserError, for all of them at once, where ``hf_models`` names no checkpoint folder in Hugging Face's form."""
    lines = [
        f"{place(('hf_models', name))}: hf_models.{name}: {folder} holds no config.json; name a checkpoint folder in Hugging Face's form, or take "
        "the name out"
        for name, folder in folders.items()
        if not Path(folder, "config.json").is_file()
    ]
    if lines:
        raise UserError(lines)


def check_targets(
    asked: Iterable[str],
    targets: Collection[str],
    patterns: Mapping[str, str],
    files: Collection[str],
    scale: str,
    scales: Collection[str],
) -> None:
    """Raise UserError, a line for each name that is no target, with the nearest one.

    ``targets``: names that can be asked for; ``patterns``: rules of many jobs -> what one of them makes; ``files``: what targets
    are made of. A file that is none of these is Snakemake's to judge.
    """
    lines = []
    for name in asked:
        if name in targets or name in files:
            continue
        alike = [target for target in targets if target.endswith(f"_{name}")]
        near = difflib.get_close_matches(name, files if "/" in name else targets, n=1, cutoff=0.8)
        if name in patterns:
            hint = f" makes {patterns[name]}: ask for one such file, or for a table or figure that needs it"
        elif name in scales:
            hint = f" is a scale, and the scale is now {scale}: snakemake {name} --config scale={name}"
        elif alike or near:
            hint = f" is no target (did you mean {' or '.join(alike or near)}?)"
        elif "/" in name:
            continue
        else:
            hint = " is no target; snakemake --list-target-rules lists them"
        lines.append(f"{name}{hint}")
    if lines:
        raise UserError(lines)


#: Snakemake's reasons and what a page says instead; ``{}`` are the files.
_REASONS = {
    "Missing output files": "missing: {}",
    "Incomplete output files": "cut short: {}",
    "Updated input files": "newer: {}",
    "Input files updated by another job": "",
    "Set of input files has changed since last execution": "reads other files than before",
    "Forced execution": "asked for by -R or -F",
}
_CHANGED = "Params have changed since last execution"
_STAMP = re.compile(r"([^;'\"]+?) [0-9a-f]{8}(?=[;'\"]|$)")
#: Heading of ``grouped``, by which a page is found in a log.
GROUPS = "Jobs, a line for a rule and a reason:"


def grouped(found: Iterable[tuple[str, str]], width: int = 80) -> str:
    """A page from the rule and the reason of every job: how many, and which file or key is why."""
    groups: dict[tuple[str, tuple[str, ...]], list[dict[str, list[str]]]] = {}
    for rule, reason in found:
        causes = _causes(reason)
        groups.setdefault((rule, tuple(causes)), []).append(causes)
    lines = [GROUPS]
    widest = max((len(rule) for rule, _ in groups), default=0)
    for (rule, names), members in groups.items():
        whys = []
        for name in names:
            files = sorted({file for member in members for file in member[name]})
            more = f" and {len(files) - 1} more" if files[1:] else ""
            whys.append(name.format(f"{files[0]}{more}") if files else name)
        why = "; ".join(filter(None, whys)) or "what it reads is made by the jobs above"
        head = f"{rule:<{widest}} {len(members):>5}  "
        wrap = textwrap.TextWrapper(
            width, head, " " * len(head), break_long_words=False, break_on_hyphens=False
        )
        lines += wrap.wrap(why)
    return "\n".join([*lines, ""])


def _causes(reason: str) -> dict[str, list[str]]:
    """What a reason of Snakemake's says -> the files that it names."""
    reason, _, change = reason.partition(f"{_CHANGED}:")
    causes: dict[str, list[str]] = {}
    for part in filter(None, reason.strip("; ").split("; ")):
        said, _, files = part.partition(": ")
        causes[_REASONS.get(said, f"{said}: {{}}" if files else said)] = files.split(", ") if files else []
    if change:
        causes[f"changed: {_changed(change)}"] = []
    if len(causes) > 1:
        causes.pop("", None)  # a job of its own cause needs no other
    return causes


def _changed(text: str) -> str:
    """Files and keys whose stamps differ; values themselves where they are short."""
    before, _, now = text.partition("before: ")[2].partition(" now: ")
    stamps = [{match[0].strip() for match in _STAMP.finditer(side)} for side in (before, now)]
    if names := sorted({stamp.rsplit(" ", 1)[0] for stamp in stamps[0] ^ stamps[1]}):
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if names[4:] else "")
    shown = [side.strip().replace("<nothing exclusive>", "(nothing)") for side in (before, now)]
    return " -> ".join(side if len(side) <= 60 else f"{side[:57]}..." for side in shown)


def filed(text: str) -> str:
    """``@FILE`` with a JSON text that is too long for lines that people read; equal texts, equal names."""
    path = Path(".snakemake/respath", f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return f"@{path}"


def export_environment(root: Path) -> None:
    """Put our sources and the running Python first on the paths of child processes, and say where the project is.

    ``PATH`` matters when Snakemake was started as ``.venv/bin/snakemake`` without activating its environment: a job's
    ``python`` must be that one.
    """
    sources = [str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(sources)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ["RESPATH_ROOT"] = str(root)
    # A job is no process of a group that started this workflow, or a platform's notebook.
    for name in (*GROUP, "LOCAL_RANK"):
        os.environ.pop(name, None)


def export_gpu_lease(wanted: bool) -> None:
    """Whether jobs take GPUs for themselves (``respath.gpu_lease``): training and evaluation alike."""
    os.environ[SWITCH] = "1" if wanted else "0"
