"""What happens inside a model, on the frozen validation sequences of a token store.

``python -m respath.measure.analyses --train results/runs/RUN/train.json --tokens results/tokens/ID/manifest.json --checkpoints
checkpoints/RUN --sequences 143 --modules similarity,pca --out results/analyses/RUN/analysis.json``
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from respath.errors import UserError, guard
from respath.measure.lm import at_most
from respath.measure.weights import add_accept_code
from respath.quantities.analyses import CATALOGUE
from respath.startup import slow_imports

_EPILOG = f"""\
modules: {", ".join(CATALOGUE)}

one of three models:
  --train TRAIN_JSON --checkpoints DIR   a finished run, with its final weights
  --untrained --spec JSON|@FILE          the weights that a run starts from
  --hf DIR --context T                   a Llama-like or GPT-2 folder in Hugging Face's form (similarity, importance)
"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="respath.measure.analyses",
        description=__doc__.splitlines()[0],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--train", type=Path, help="train.json of the run")
    made.add_argument("--checkpoints", type=Path, help="checkpoint folder of this run")
    made.add_argument("--untrained", action="store_true", help="analyse the initial weights of --spec")
    made.add_argument("--spec", metavar="JSON|@FILE", help="the run: model, recipe, data, seed")
    made.add_argument("--run", metavar="ID", help="the run's name in the result (with --untrained)")
    made.add_argument("--hf", type=Path, metavar="DIR", help="a checkpoint folder in Hugging Face's form")
    made.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of --hf's weights")
    made.add_argument("--tokens", type=Path, required=True, help="manifest.json of the token store")
    made.add_argument("--sequences", type=int, required=True, help="validation sequences per domain, at most")
    made.add_argument("--context", type=int, help="tokens per sequence (default: as in training)")
    made.add_argument("--modules", required=True, help="names with commas between them")
    made.add_argument("--items", type=Path, help="items.json of respath.measure.items (module answers)")
    made.add_argument(
        "--limit",
        type=at_most,
        default=None,
        help="items asked, a fixed sample, or none for all (module answers)",
    )
    made.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    made.add_argument("--out", type=Path, required=True, help="analysis.json")
    made.add_argument(
        "--arrays", type=Path, help="NumPy archive of the arrays (default: --out with the ending .npz)"
    )
    add_accept_code(made)
    made.add_argument("--debug", action="store_true", help="show tracebacks")
    return made


def check_options(given: argparse.Namespace) -> None:
    """Raise UserError unless the options name one model and sensible sizes."""
    lines = []
    if [given.train is not None, given.untrained, given.hf is not None].count(True) != 1:
        lines.append("give exactly one of --train, --untrained and --hf")
    needs = {"--train": (given.train, "--checkpoints"), "--untrained": (given.untrained or None, "--spec")}
    needs["--hf"] = (given.hf, "--context")
    for option, (value, needed) in needs.items():
        if value is not None and getattr(given, needed.removeprefix("--")) is None:
            lines.append(f"{option} needs {needed}")
    if given.sequences < 1 or (given.context is not None and given.context < 2):
        lines.append("--sequences must be at least 1 and --context at least 2")
    if lines:
        raise UserError(lines)


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    given = parser().parse_args(arguments)
    check_options(given)
    # Slow imports (torch) only for a command that makes sense.
    with slow_imports():
        from respath.measure.analyses.run import analyse_trained, analyse_untrained
        from respath.measure.analyses.stage import wanted_modules, write
        from respath.measure.weights import chosen_device

    modules = wanted_modules(filter(None, given.modules.split(",")))
    device = chosen_device(given.device)
    if given.hf is not None:
        import torch

        from respath.measure.analyses.hugging_face import analyse_folder

        dtype = getattr(torch, given.dtype)
        content, found = analyse_folder(
            given.hf, given.tokens, given.context, given.sequences, modules, device, dtype
        )
    elif given.untrained:
        from respath.config.arguments import argument
        from respath.spec.run import RunSpec, run_hash

        spec = argument(RunSpec, given.spec, "--spec")
        content, found = analyse_untrained(
            spec, given.run or run_hash(spec), given.tokens, given.sequences, modules, given.context, device
        )
    else:
        content, found = analyse_trained(
            given.train,
            given.tokens,
            given.checkpoints,
            given.sequences,
            modules,
            given.context,
            device,
            given.accept_code,
            given.items,
            given.limit,
        )
    write(given.out, given.arrays or given.out.with_suffix(".npz"), content, found)
    for name, entry in content["modules"].items():
        numbers = ", ".join(
            f"{key} {'none' if value is None else format(value, '.4g')}"
            for key, value in entry["scalars"].items()
        )
        print(f"{name}: {numbers or entry.get('reason')}")
    print(f"{content['run']}: {content['status']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
