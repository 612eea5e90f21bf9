"""JSON schemas and the config reference page, generated from the typed documents.

``python -m respath.config.schema`` writes them; ``--check`` only says which are out of step (exit code 1).
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import json
import sys
import textwrap
from pathlib import Path

from pydantic import BaseModel

from respath import settings
from respath.errors import guard
from respath.generated import add_check_option, write_or_check
from respath.papers import claims, decisions, figures, paper, reported, scales, tables
from respath.papers.library import find_root
from respath.spec.document import Document

SCHEMAS: dict[str, type[BaseModel]] = {
    "config": settings.UserConfig,
    "paper": paper.Paper,
    "variants": paper.Variants,
    "tables": tables.Tables,
    "figures": figures.Figures,
    "reported": reported.Reported,
    "claims": claims.Claims,
    "scale": scales.Scale,
    "scale_of_paper": scales.ScalePaper,
    "corpora": paper.Corpora,
}
#: Files that are lists of entries.
LISTS: dict[str, type[BaseModel]] = {"decisions": decisions.Decision}


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """What the string below each field says.

    Read from the source here, and not by pydantic at class creation, which would cost every dry run a third of a second.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def _described(schema: dict, models: dict[str, type[BaseModel]]) -> dict:
    """Add the descriptions to a model's JSON schema and to those that it refers to."""
    for name, part in [(schema.get("title", ""), schema), *schema.get("$defs", {}).items()]:
        if name in models:
            for field, text in descriptions(models[name]).items():
                if field in part.get("properties", {}):
                    part["properties"][field]["description"] = text
    return schema


def _documents() -> dict[str, type[BaseModel]]:
    """Every typed document by class name."""
    found: dict[str, type[BaseModel]] = {}
    queue: list[type[BaseModel]] = [Document]
    while queue:
        for model in queue.pop().__subclasses__():
            found[model.__name__] = model
            queue.append(model)
    return found


def _rows(model: type[BaseModel], prefix: str = "") -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            rows += _rows(kind, f"{prefix}{name}.")
            continue
        schema = model.model_json_schema()["properties"][name]
        options = schema.get("anyOf", [schema])
        shown = []
        for option in options:
            if "enum" in option or "const" in option:
                shown += [f"`{value}`" for value in option.get("enum", [option.get("const")])]
            elif option.get("type") == "array":
                shown.append(f"list of {option.get('items', {}).get('type', 'values')}s")
            else:
                shown.append(
                    {"null": "`null`", "object": "mapping"}.get(option.get("type"), option.get("type", ""))
                )
        default = json.dumps(field.get_default(call_default_factory=True))
        rows.append(f"| `{prefix}{name}` | {', '.join(shown)} | `{default}` | {descriptions(model)[name]} |")
    return rows


def generated(root: Path) -> dict[Path, str]:
    """Every generated file with its text."""
    files = {}
    for name, model in (SCHEMAS | LISTS).items():
        body = _described(model.model_json_schema(), _documents())
        if name in LISTS:
            definitions = {**body.pop("$defs", {}), model.__name__: body}
            body = {"$defs": definitions, "type": "array", "items": {"$ref": f"#/$defs/{model.__name__}"}}
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}
        files[root / f"workflow/schemas/{name}.schema.json"] = (
            json.dumps(schema, indent=2, sort_keys=True) + "\n"
        )
    files[root / "docs/config.md"] = "\n".join(
        [
            "# config.yaml",
            "",
            "Generated from `src/respath/settings.py` by `python -m respath.config.schema`. Every key is optional.",
            "Settings may also stand in a second file (`--configfile`), on the command line (`--config scale=mini`,",
            "`--config 'runtime={compile: on}'`) and under `config:` of a profile; each wins over the one before, key by key,",
            "and the command line over all. The same text means the same in each place. What readers of YAML disagree on is",
            "refused: `010` (eight or ten), `1:30` (ninety or text), `yes` and `no`. Paths may begin with `~` and hold `$VAR`.",
            "",
            "| key | values | default | meaning |",
            "|---|---|---|---|",
            *_rows(settings.UserConfig),
            "",
        ]
    )
    return files


@guard
def main(argv: list[str] | None = None) -> int:
    """Write or check the generated files. Raises CheckFailed naming each file that is out of step."""
    parser = argparse.ArgumentParser(prog="python -m respath.config.schema", description=__doc__)
    add_check_option(parser)
    arguments = parser.parse_args(argv)
    root = find_root()
    write_or_check(root, generated(root), "python -m respath.config.schema", arguments.check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
