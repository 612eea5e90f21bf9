"""Command-line options that comparison and reports share: the project, its settings, and where results lie."""

from __future__ import annotations

import argparse
from pathlib import Path

from respath.config.arguments import json_argument
from respath.errors import UserError
from respath.papers.check import open_papers
from respath.papers.library import Artifact, find_root
from respath.papers.resolve import Resolver
from respath.results.reader import Results
from respath.settings import Settings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --project-root, --config, --scale, --results and --debug."""
    parser.add_argument(
        "--project-root", type=Path, help="folder with papers/ and scales/ (default: found from here)"
    )
    parser.add_argument(
        "--config",
        metavar="JSON|@FILE",
        help='JSON object of settings that win over config.yaml, e.g. \'{"scale": "mini"}\'',
    )
    parser.add_argument("--scale", help="short for --config '{\"scale\": ...}'")
    parser.add_argument("--results", type=Path, help="folder of results (default: results/ in the project)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def open_project(options: argparse.Namespace) -> tuple[Resolver, Results]:
    """The project and its results as the options say. Raises UserError for a --config that is no JSON object."""
    root = options.project_root.resolve() if options.project_root else find_root()
    settings = Settings()
    settings.add_file(root / "config.yaml", required=False)
    if options.config:
        chosen = json_argument(options.config, "--config")
        if not isinstance(chosen, dict):
            raise UserError(f"--config: expects a JSON object, got {type(chosen).__name__}")
        settings.add("--config", chosen)
    if options.scale:
        settings.add("--scale", {"scale": options.scale})
    project = open_papers(root, settings)
    return project, Results(project, options.results)


def add_artifact_options(parser: argparse.ArgumentParser, target: str) -> None:
    """The options of a main that renders one table or figure; ``target`` is the help of ``--target``."""
    add_options(parser)
    parser.add_argument("--target", required=True, help=target)
    parser.add_argument(
        "--out-dir", type=Path, help="folder of the files (default: reports/out/<scale>/<paper>)"
    )


def open_artifact(options: argparse.Namespace) -> tuple[Resolver, Results, Artifact, Path]:
    """Project, results, the artifact that is asked for, and the folder of its files."""
    project, results = open_project(options)
    artifact = project.artifact(options.target)
    folder = options.out_dir or project.root / "reports" / "out" / project.scale.id / artifact.paper
    return project, results, artifact, folder
