"""The ``respath`` command: list, show, account, plan, diff, stale, why, export, import, events."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from respath.config.request import RunRequest
from respath.errors import WRONG_USE, UserError, did_you_mean, explain_os_error, guard
from respath.files import flattened, read_json, user_path
from respath.letters import plain
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.papers.resolve import Resolver, Run
from respath.spec.data import tokenizer_id
from respath.spec.document import identity

_EPILOG = """\
Try, in this order:

\b
  respath list                                     the tables and figures
  respath show TARGET                              what one is made of: runs, metrics
  respath plan TARGET --scale paper                what it costs, before spending anything
  snakemake TARGET                                 make it, at config.yaml's scale
  respath diff TARGET                              ours against the printed numbers
  respath diff FOLDER FOLDER                       two folders of results, before and after a change
  respath stale                                    results that today's code would compute otherwise
  respath why RUN                                  why a run is trained, and how it differs from those that ended
  respath account PAPER/SIZE/VARIANT               parameters, FLOPs, KV bytes of one model

\b
  respath export RUN --to DIR                      weights out (a Hugging Face folder for plain models)
  respath import RUN --scale mini --from DIR       weights in, evaluated and tabled without training
  respath events --to DIR                          training histories for TensorBoard
"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Replicate papers on how information travels through deep Transformers. Tables and figures are Snakemake "
    "targets (snakemake -n TARGET); this command shows what they are made of, and takes weights out and in.\n\n"
    "A model is paper/size/variant, a run is a model with recipe and seed (respath list runs), a target is a table or figure.",
    epilog=_EPILOG,
    rich_markup_mode=None,
)


def filled_in(option: str) -> Callable[[Path | None], Path | None]:
    """A path option in which ``~`` and ``$VAR`` are filled in, which shells do in some places only."""
    return lambda path: path and user_path(path, option)


def complete_target(incomplete: str) -> list[str]:
    """Tables and figures, and models once there is a slash, for a shell that asks while a word is typed."""
    try:
        project = _project()
        if "/" in incomplete:
            names = [
                f"{folder.id}/{size}/{variant}"
                for folder in project.folders()
                for size in folder.paper.sizes
                for variant in folder.variants
            ]
        else:
            names = [artifact.target for artifact in project.artifacts()]
    except (UserError, OSError):
        return []  # a settings file that is being written must not print into the line that is typed
    return [name for name in names if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Ids of runs at config.yaml's scale."""
    try:
        return [run for run in needs.all_runs(_project()) if run.startswith(incomplete)]
    except (UserError, OSError):
        return []


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Scale = Annotated[str | None, typer.Option("--scale", help="smoke, mini or paper (default: config.yaml's).")]


def _project(scale: str | None = None, seed: int | None = None) -> Resolver:
    from respath.settings import Settings

    root = find_root()
    settings = Settings()
    settings.add_file(root / "config.yaml", required=False)
    if scale is not None:
        settings.add("--scale", {"scale": scale})
    if seed is not None:
        settings.add("--seed", {"seeds": [seed]})
    return open_papers(root, settings)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _grid(*columns: str, right: tuple[str, ...] = ()) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column in right)
    return table


def _console() -> Console:
    """A console as wide as the terminal; in a pipe or a log wide enough for every table."""
    return Console() if sys.stdout.isatty() else Console(width=170)


def amount(value: float, unit: str = "") -> str:
    """A count for people: 1.64 M, 20 B, 4.7e20; bytes (``unit`` B) as 20 GB."""
    for limit, letter in ((1e15, None), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            letter = "G" if letter == unit == "B" else letter
            text = f"{value:.2e}" if letter is None else f"{value / limit:.3g} {letter}"
            return f"{text}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def duration(hours: float) -> str:
    """Hours for people: 40 s, 12 min, 3.5 h, 2,100 h."""
    if hours < 1 / 60:
        return f"{hours * 3600:.0f} s"
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.0f} h"


@app.command("list", short_help="Targets, models, runs, scales or corpora.")
def list_(
    what: Annotated[
        str | None, typer.Argument(help="targets, models, runs, scales or corpora (default: targets).")
    ] = None,
    as_json: Json = False,
    scale: Scale = None,
) -> None:
    """List targets (tables and figures), models, runs, scales or corpora."""
    project = _project(scale)
    what = what or "targets"
    if what == "targets":
        rows = [
            {
                "target": a.target,
                "kind": "table" if a.is_table else "figure",
                "runs": len(needs.of_artifact(project, a).trained),
                "title": plain(a.definition.title),
            }
            for a in project.artifacts()
        ]
    elif what == "models":
        rows = []
        for paper in project.library.known:
            folder = project.folder(paper)
            for size in folder.paper.sizes:
                for name, variant in folder.variants.items():
                    try:
                        project.at("paper").paper(paper).model(size, name)
                    except UserError:
                        continue  # this variant does not fit this size
                    rows.append({"ref": f"{paper}/{size}/{name}", "title": variant.title})
    elif what == "runs":
        rows = [
            {
                "run": r.id,
                "done": (project.root / "results" / "runs" / r.id / "train.json").exists(),
                "steps": r.spec.recipe.steps,
                "tokens": r.spec.recipe.tokens,
            }
            for r in needs.all_runs(project).values()
        ]
    elif what == "scales":
        rows = [
            {"scale": s.id, "seeds": list(s.seeds), "purpose": s.purpose}
            for s in project.library.scales.values()
        ]
    elif what == "corpora":
        rows = [
            {
                "corpus": c.name,
                "kind": c.kind,
                "where": c.repository or c.profile or "locations in config.yaml",
            }
            for c in project.library.corpora.values()
        ]
    else:
        raise UserError(
            f"list: {what!r} is not known{did_you_mean(what, ['targets', 'models', 'runs', 'scales', 'corpora'])}"
        )
    if as_json:
        return _print_json(rows)
    table = _grid(*(rows[0] if rows else ["nothing"]))
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row.values()))
    _console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "-"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@app.command(short_help="What a model, a run or a target is made of.")
def show(
    name: Annotated[
        str,
        typer.Argument(metavar="REF|RUN|TARGET", help="paper/size/variant, a run id, or a target"),
    ],
    as_json: Json = False,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale", help="Scale of a model (default: paper) or of a target (default: config.yaml's)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the run that is shown for a model.")] = 1,
) -> None:
    """Show a model's spec, a run's spec, or what a target is made of."""
    if "/" in name:
        project = _project(scale or "paper")
        paper, size, variant = project.library.parse_ref(name)
        run = project.paper(paper).run(RunRequest(size=size, variant=variant), seed)
        shape = project.folder(paper).paper.sizes[size]
        value = {
            "ref": name,
            "title": project.folder(paper).variants[variant].title,
            "scale": run.scale,
            "run": run.id,
            "spec": run.spec.model_dump(mode="json"),
        }
        if shape.inferred:
            value["note"] = shape.note
        return _show(value, as_json)
    project = _project(scale)
    targets = {artifact.target: artifact for artifact in project.artifacts()}
    if name in targets:
        artifact = targets[name]
        runs = list(needs.of_artifact(project, artifact).trained.values())
        value = {
            "target": name,
            "title": plain(artifact.definition.title),
            "section": artifact.definition.section,
            "scale": project.settings.scale,
            "reads": sorted(needs.of_artifact(project, artifact).kinds),
            "runs": [run.id for run in runs],
            "definition": artifact.definition.model_dump(mode="json", exclude_defaults=True),
        }
        return _show(value, as_json)
    runs = needs.all_runs(project)
    if name in runs:
        return _show(
            {"run": name, "scale": project.settings.scale, "spec": identity(runs[name].spec)}, as_json
        )
    known = [*targets, *runs]
    raise UserError(
        f"{name!r} is no model, run or target at scale {project.settings.scale}{did_you_mean(name, known)}"
    )


def _show(value: dict[str, Any], as_json: bool) -> None:
    if as_json:
        return _print_json(value)
    import yaml

    print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110), end="")


@app.command(short_help="Parameters, FLOPs and KV-cache bytes of a model.")
def account(
    ref: Annotated[str, typer.Argument(metavar="REF", help="paper/size/variant (respath list models)")],
    as_json: Json = False,
    scale: Annotated[str, typer.Option("--scale", help="Scale of the model.")] = "paper",
    context: Annotated[int | None, typer.Option(help="Tokens per sequence (default: the paper's).")] = None,
    logits: Annotated[Literal["all", "last"] | None, typer.Option(help="Positions with logits.")] = None,
    attention: Annotated[
        Literal["causal", "full"] | None, typer.Option(help="Pairs counted: T^2/2 or T^2.")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Sequences (FLOPs are per sequence; bytes are for the batch).")
    ] = 1,
    cache: Annotated[
        Literal["full", "window"], typer.Option(help="KV cache keeps the full history or the window.")
    ] = "full",
) -> None:
    """Parameters, FLOPs and KV-cache bytes of a model, in closed form. Unset options follow the paper's convention."""
    from respath.accounting import account as account_

    if context is not None and context < 1:
        raise UserError(f"--context: {context} is not a number of tokens")
    result = account_(
        ref, scale=scale, context=context, logits=logits, attention=attention, batch=batch, cache=cache
    ).to_json()
    if as_json:
        return _print_json(result)
    console = _console()
    console.print(
        f"[bold]{ref}[/] at scale {scale}: "
        + ", ".join(f"{k} {_text(v)}" for k, v in result["shape"].items())
    )
    for section in ("parameters", "flops", "kv_cache", "saved"):
        table = _grid(section.replace("_", " "), "value", right=("value",))
        for key, value in flattened(result[section]).items():
            table.add_row(
                key,
                f"{value:,}"
                if isinstance(value, int)
                else f"{value:,.6g}"
                if isinstance(value, float)
                else str(value),
            )
        console.print(table)


@app.command(short_help="What targets cost, and which jobs would run and why.")
def plan(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="One page on each, and its jobs (default: a line for every table and figure).",
            autocompletion=complete_target,
        ),
    ] = None,
    as_json: Json = False,
    scale: Scale = None,
    gpu: Annotated[
        str | None, typer.Option(help="a100, h100, h100-pcie, h200, b200, ... or cpu (one core).")
    ] = None,
    mfu: Annotated[
        float | None,
        typer.Option(help="Share of the peak that training reaches (default: assumed by the model's size)."),
    ] = None,
) -> None:
    """Runs needed and done, tokens, FLOPs, hours, disk, downloads and jobs, before spending anything."""
    from respath.accounting import plan as planning

    project = _project(scale)
    chosen = [project.artifact(target) for target in targets] if targets else project.artifacts()
    machine = planning.assumptions(project, project.settings.scale, gpu, mfu)
    result = planning.plan(project, chosen, machine)
    for row in result["targets"]:
        row |= _shared_and_stale(project, row["target"]) if targets else {}
    if as_json:
        return _print_json(result)
    console = _console()
    if targets:
        for row in result["targets"]:
            console.print(Text(f"{row['target']}: {row['title']}", style="bold"))
            print(
                f"  runs   {row['runs']:,} at scale {result['scale']}: {row['done']:,} done, {row['stale']:,} of them stale; "
                f"{row['shared']:,} shared with other targets\n"
                f"  to do  {amount(row['tokens'])} tokens, {amount(row['flops'])} FLOPs: {duration(row['wall_hours'])}, "
                f"{duration(row['device_hours'])} of device time\n"
                f"  disk   {amount(row['disk'], 'B')}; {amount(row['download'], 'B')} to download\n"
            )
        print(_jobs(project, targets))
    else:
        console.print(_targets_table(result, console.width))
    if result["data"]:
        console.print(_data_table(result, console.width))
    for line in planning.assumption_lines(result):
        console.print(line, style="dim")


def _shared_and_stale(project: Resolver, target: str) -> dict[str, int]:
    """How many runs of a target others need too, and how many ended by other code than today's."""
    from respath.comparison.code import stale_runs
    from respath.results.reader import Results

    runs = needs.of_artifact(project, project.artifact(target)).trained
    others = [a for a in project.artifacts() if a.target != target]
    elsewhere = {id for other in others for id in needs.of_artifact(project, other).trained}
    return {"shared": len(elsewhere & set(runs)), "stale": len(stale_runs(Results(project), runs.values()))}


def _jobs(project: Resolver, targets: list[str]) -> str:
    """Which jobs Snakemake would run for targets, and why: its own plan, a line for a rule and a reason."""
    from respath.jobs import GROUPS

    settings = ["--config", f"scale={project.settings.scale}"]
    command = [sys.executable, "-m", "snakemake", "-n", "--nocolor", *targets, *settings]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode:
        raise UserError(
            [line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")]
            or said.strip()
        )
    if GROUPS not in said:
        return "No jobs: what was asked for is there.\n"
    return GROUPS + said.split(GROUPS)[1].split("\n\n")[0] + "\n"


def _targets_table(result: dict[str, Any], width: int) -> RichTable:
    """A line for each target; below 110 columns without what needs more."""
    shown: dict[str, Callable[[dict[str, Any]], str]] = {
        "runs": lambda row: str(row["runs"]),
        "done": lambda row: str(row["done"]),
        "tokens": lambda row: amount(row["tokens"]),
        "FLOPs": lambda row: amount(row["flops"]),
        "device time": lambda row: duration(row["device_hours"]),
        "wall": lambda row: duration(row["wall_hours"]),
        "disk": lambda row: amount(row["disk"], "B"),
        "download": lambda row: amount(row["download"], "B"),
    }
    if width < 110:
        shown = {name: text for name, text in shown.items() if name not in ("tokens", "device time")}
    title = ("title",) if width >= 140 else ()
    table = _grid("target", *shown, *title, right=tuple(shown))
    rows = [
        *result["targets"],
        {"target": "total", "title": "each run, store and download once", **result["total"]},
    ]
    for row in rows:
        table.add_row(row["target"], *(text(row) for text in shown.values()), *[row["title"]] * len(title))
    return table


def _data_table(result: dict[str, Any], width: int) -> RichTable:
    """Each token store of a plan, and below it what more tokens of the kind cost; below 110 columns without what needs more."""
    numbers = ("tokens", "text", "download", "disk", "jobs", "scan", "merge", "tokenize", "memory")
    if width < 110:
        numbers = ("tokens", "download", "disk", "jobs", "core time", "memory")
    table = _grid("data", *numbers, right=numbers)
    table.columns[0].overflow = "fold"
    for store, cost in result["data"].items():
        rows = [(store, cost), *(("  extrapolated", more) for more in result["extrapolation"][store])]
        for name, row in rows:
            hours = {step: row[f"{step}_hours"] for step in ("scan", "merge", "tokenize")}
            hours["core time"] = None if None in hours.values() else sum(hours.values())
            texts = {
                "tokens": amount(row["tokens"]),
                "text": amount(row["text_bytes"], "B"),
                "download": amount(row["download"], "B"),
                "disk": amount(row["disk"], "B"),
                "jobs": f"{row['jobs']:,}",
                **{step: "?" if value is None else duration(value) for step, value in hours.items()},
                "memory": "?" if row["memory_mb"] is None else amount(row["memory_mb"] * 1e6, "B"),
            }
            table.add_row(name, *(texts[number] for number in numbers))
    return table


@app.command(short_help="Ours against the printed numbers, or two folders of results.")
def diff(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]... | FOLDER FOLDER",
            help="Tables, cell by cell (default: counts of all); or two folders of results, or clones, side by side.",
            autocompletion=complete_target,
        ),
    ] = None,
    as_json: Json = False,
    scale: Scale = None,
    brief: Annotated[bool, typer.Option(help="A few lines: where the pages are, what was found.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="The results that the repository keeps, not your own.")
    ] = False,
    check: Annotated[
        bool, typer.Option(help="Exit 1 when a comparable cell does not agree or a claim is contradicted.")
    ] = False,
) -> None:
    """Regenerated against printed numbers, from the results that exist; or two folders of results. Starts no training."""
    from respath.comparison.diff import compare, exit_code
    from respath.comparison.summary import brief as in_brief
    from respath.comparison.summary import summary
    from respath.comparison.terminal import cells_of, reasons_of, rich_table, tables
    from respath.reference.bundle import kept_or_told
    from respath.results.reader import Results

    project = _project(scale)
    known = {artifact.target for artifact in project.artifacts()}
    if targets and any(name not in known and Path(name).is_dir() for name in targets):
        return _diff_of_folders(project, targets, as_json)
    chosen = [project.artifact(name).target for name in targets or ()]
    document = compare(project, kept_or_told(project) if reference else Results(project), chosen or None)
    if as_json:
        _print_json(document)
    elif brief:
        print(in_brief(document))
    elif chosen:
        console = _console()
        for heading, table in tables(document):
            console.print(Text(heading, style="bold"))
            if table is None:
                console.print("a figure: its numbers are in its CSV")
                continue
            console.print(rich_table(*cells_of(table)))
            for line in reasons_of(table):
                console.print(Text(line, style="dim"))
        console.print(Text(document["note"]))
    else:
        summary(document)
    if check:
        raise typer.Exit(exit_code(document))


def _diff_of_folders(project: Resolver, folders: list[str], as_json: bool) -> None:
    from respath.comparison.between import between, headline, opened
    from respath.comparison.terminal import number, rich_table

    if len(folders) != 2:
        raise UserError(
            f"diff: {len(folders)} folders or targets; give two folders of results, or targets alone"
        )
    left, right = (opened(user_path(folder, "diff"), project) for folder in folders)
    document = between(left, right, (folders[0], folders[1]))
    if as_json:
        return _print_json(document)
    console = _console()
    print(headline(document))
    for one in document["runs"]:
        ids = dict.fromkeys(id for id in (one["left"], one["right"]) if id)
        print(f"{' -> '.join(ids)}:")
        for line in one["differences"]:
            print(f"  {line}")
    rows = [
        [c["target"], c["row"], c["column"], number(c["left"], c["decimals"]), number(c["right"], c["decimals"]),
         number(c["delta"], max(c["decimals"], 4), sign=True)]
        for c in document["cells"]
    ]  # fmt: skip
    if rows:
        console.print(rich_table(["target", "row", "column", "left", "right", "difference"], rows))


@app.command(short_help="Results that today's code would compute otherwise.")
def stale(as_json: Json = False, scale: Scale = None) -> None:
    """Results that were computed by other or earlier code than today's, each with the command that makes it anew.

    Comments, docstrings, moved files and code that a run does not use make nothing stale.
    """
    import dataclasses

    from respath.comparison.code import remaking, stale_results
    from respath.results.reader import Results

    project = _project(scale)
    results, runs = Results(project), needs.all_runs(project).values()
    found = stale_results(results, runs)
    chosen = project.scale.id
    commands = [remaking(one, str(project.settings.checkpoints), chosen) for one in found]
    if as_json:
        rows = zip(found, commands, strict=True)
        _print_json([{**dataclasses.asdict(one), "command": command} for one, command in rows])
        return
    for one, command in zip(found, commands, strict=True):
        print(f"{one.run}: {one.what}: {one.difference}\n  {command}")
    if not found:
        ended = sum(results.finished(run) for run in runs)
        print(f"None is stale of the results of {ended} runs that ended at scale {chosen}.")


@app.command(short_help="Why a run is trained, or is not, and how it differs from those that ended.")
def why(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run id (respath list runs), or the beginning of one.",
            autocompletion=complete_run,
        ),
    ],
    as_json: Json = False,
    scale: Scale = None,
) -> None:
    """Why a run is trained, or is not: what asks for it, what is there of it, and the nearest run that has ended."""
    from respath.comparison.why import named_run
    from respath.comparison.why import why as reasons
    from respath.results.reader import Results

    project = _project(scale)
    lines = list(reasons(project, Results(project), named_run(project, run)))
    if as_json:
        return _print_json(lines)
    print("\n".join(lines))


@app.command(short_help="Weights out: safetensors, or a Hugging Face folder.")
def export(
    name: Annotated[
        str,
        typer.Argument(
            metavar="REF|RUN", help="A run id (trained weights), or paper/size/variant (untrained)."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="Folder to write.", callback=filled_in("--to"))],
    as_json: Json = False,
    scale: Annotated[
        str | None, typer.Option("--scale", help="Scale of an untrained model (default: paper).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of an untrained model's initial weights (default 0).")
    ] = None,
) -> None:
    """Write a model as safetensors and a config: a Hugging Face folder where transformers has its class."""
    project = _project(scale or "paper") if "/" in name else _project()
    if to.exists() and not to.is_dir():
        raise UserError(f"--to {to}: is a file; give a folder")
    from respath.model.export import export as write

    if "/" in name:
        from respath.model import build_model

        paper, size, variant = project.library.parse_ref(name)
        spec = project.paper(paper).run(RunRequest(size=size, variant=variant), seed or 0).spec
        model, weights = build_model(spec.model, seed=seed or 0), f"untrained, seed {seed or 0}"
    else:
        if scale is not None or seed is not None:
            raise UserError(
                "--scale and --seed are for an untrained model (paper/size/variant); a run has its own"
            )
        record = project.root / "results" / "runs" / name / "train.json"
        if not record.is_file():
            if name in needs.all_runs(project):
                raise UserError(
                    f"{name} is not trained yet; snakemake --cores all {record.relative_to(project.root)}"
                )
            known = sorted(path.parent.name for path in record.parent.parent.glob("*/train.json"))
            raise UserError(
                f"{name!r} is no finished run: {record} is missing{did_you_mean(name, known) if known else ''}"
            )
        from respath.measure.weights import load_trained

        model, spec = load_trained(
            record, project.root / project.settings.checkpoints / name, accept_code=True
        )
        weights = "trained"
    context = spec.recipe.context
    tokenizer = project.root / "results" / "tokenizers" / tokenizer_id(spec.data) / "tokenizer.json"
    meta = tokenizer.with_name("tokenizer.meta.json")
    end_id = read_json(meta).get("eos_id") if meta.is_file() else None
    has_tokenizer = weights == "trained" and tokenizer.is_file()
    try:
        result = write(
            model,
            to,
            context=context,
            tokenizer=tokenizer if has_tokenizer else None,
            end_id=end_id if has_tokenizer else None,
        )
    except OSError as error:
        raise UserError(explain_os_error(error, "give another folder with --to")) from error
    result = {"name": name, "to": str(to), "weights": weights, **result}
    if as_json:
        return _print_json(result)
    kind = "a Hugging Face folder" if result["format"] == "hugging_face" else "safetensors and config"
    print(f"{to}: {kind}, {result['parameters']:,} parameters ({weights}): {', '.join(result['files'])}")
    if result["note"]:
        print(result["note"])


@app.command("import", short_help="Weights in, as a run's result, without training.")
def import_(
    name: Annotated[
        str,
        typer.Argument(metavar="REF|RUN", help="Whose weights these are: paper/size/variant, or a run id."),
    ],
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            help="Safetensors of ours (DIR/final/model.safetensors, an exported folder), or a Hugging Face folder.",
            callback=filled_in("--from"),
        ),
    ],
    as_json: Json = False,
    scale: Scale = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the run that a model stands for (default: the scale's first).")
    ] = None,
    tokens_manifest: Annotated[
        Path | None,
        typer.Option(
            help="manifest.json that the weights were trained on; evaluation then takes no other.",
            callback=filled_in("--tokens-manifest"),
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Take the place of a run that is there; a training's files are moved."
        ),
    ] = False,
) -> None:
    """Bring finished weights in as a run's result: evaluated, analysed and tabled without training (docs/import.md)."""
    from respath.importing import import_run

    project = _project(scale)
    runs = needs.all_runs(project)
    if "/" in name:
        paper, size, variant = project.library.parse_ref(name)
        wanted = RunRequest(size=size, variant=variant)
        run = project.paper(paper).run(wanted, project.seeds[0] if seed is None else seed)
    elif seed is not None:
        raise UserError("--seed is for a model (paper/size/variant); a run has its own")
    elif name not in runs:
        raise UserError(f"{name!r} is no run at scale {project.settings.scale}{did_you_mean(name, runs)}")
    else:
        run = runs[name]
    try:
        done = import_run(project, run, source, tokens_manifest, replace)
    except OSError as error:
        raise UserError(
            explain_os_error(error, "set `checkpoints:` in config.yaml to another folder")
        ) from error
    if as_json:
        return _print_json(done | {"read_by_artifacts": run.id in runs})
    if done["status"] == "imported":
        print(
            f"{run.id}: imported {done['parameters']:,} parameters ({', '.join(done['dtypes'])}) from {done['name']}"
        )
    else:
        print(f"{run.id}: {done['status']} from {done['name']}")
    if done["moved_to"]:
        print(f"what was there: {done['moved_to']}")
    if run.id in runs:
        print(f"next: snakemake --config scale={project.settings.scale} results/evals/{run.id}/loss.json")
        return
    near = [other.id for other in runs.values() if (other.paper, other.size, other.variant) == _model_of(run)]
    print(
        f"note: no table or figure at scale {project.settings.scale} reads this run"
        + (f"; those of this model: {', '.join(near)}" if near else "")
    )


def _model_of(run: Run) -> tuple[str, str, str]:
    return run.paper, run.size, run.variant


@app.command(short_help="Training histories for TensorBoard.")
def events(
    to: Annotated[
        Path,
        typer.Option("--to", help="Folder to write: one folder per run.", callback=filled_in("--to")),
    ],
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Default: every run with a history.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Training histories, finished and running, as TensorBoard events; again, and files grow by the new steps."""
    from respath.events import convert, histories

    project = _project()
    if to.exists() and not to.is_dir():
        raise UserError(f"--to {to}: is a file; give a folder")
    found = histories(project.root / project.settings.checkpoints, runs)
    try:
        done = [convert(run, path, to) for run, path in found.items()]
    except OSError as error:
        raise UserError(explain_os_error(error, "give another folder with --to")) from error
    if as_json:
        return _print_json(done)
    for one in done:
        print(f"{one['run']}: {one['steps']:,} steps, {one['status']}")
    print(f"look at them: tensorboard --logdir {to}")


@guard
def main() -> int:
    """Entry point. Usage errors are one line and exit code 2."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        return app(args=arguments, prog_name="respath", standalone_mode=False) or 0
    except typer.TyperException as error:
        message = error.format_message().rstrip(".")
        if not arguments:
            print(message)
            return WRONG_USE
        names = [command.name or command.callback.__name__.rstrip("_") for command in app.registered_commands]
        hint = ""
        if "No such command" in message:
            # Typer's own guess says the same with less.
            message, hint = message.split(". Did you mean")[0], did_you_mean(arguments[0], names)
        raise UserError(f"{message}{hint}; see respath --help") from None
    except typer.Exit as error:
        return error.exit_code
    except typer.Abort:
        return 130


if __name__ == "__main__":
    sys.exit(main())
