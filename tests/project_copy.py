"""A temporary copy of what Snakemake reads, so that tests can edit the papers and run the workflow without a trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "workflow", "profiles", "papers", "scales", "envs", "reports/templates")


#: Every setting at its default, whatever the user of this checkout has set.
CONFIG = """\
scale: smoke
papers: [resformer]
seeds: null
corpus: null
locations: {}
tokenizers: {}
items: auto
items_location: null
hf_models: {}
checkpoints: checkpoints
missing: error
runtime:
  threads: 1
  device: auto
"""


class ProjectCopy:
    """A working copy in ``folder``; ``src`` is linked, everything that a user edits is copied."""

    options: tuple[str, ...] = ()

    def __init__(self, folder: Path):
        self.path = folder
        for part in PARTS:
            source, target = ROOT / part, folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        (folder / "config.yaml").write_text(CONFIG)
        (folder / "src").symlink_to(ROOT / "src")

    def snakemake(self, *arguments: str, env: dict[str, str] | None = None, timeout: float = 900):
        """Run Snakemake here; returns the completed process with text output (stdout and stderr apart)."""
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=self.path,
            env={**clean_environment(), **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def planned(self, *arguments: str) -> dict[str, int]:
        """Jobs per rule of a dry run; empty when nothing is to be done."""
        done = self.snakemake("-n", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return job_counts(done.stdout + done.stderr)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text that must be there once in a file of the copy."""
        path = self.path / name
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new))

    def pretend_done(self, *targets: str) -> None:
        """Let every job run, recorded by Snakemake as usual, but only touch its outputs."""
        self.stub()
        self.make(*targets)

    def stub(self) -> None:
        """From now on every job only touches its outputs. Closing lines would read these."""
        self.options = ("--no-hooks",)
        for path in (self.path / "workflow/rules").glob("*.smk"):
            stubbed = re.sub(
                r'"(RAYON_NUM_THREADS=\{threads\} |exec )?python -m ',
                '"touch {output:q}; true ',
                path.read_text(),
            )
            path.write_text(stubbed)

    def make(self, *targets: str) -> None:
        """Run Snakemake, which must succeed."""
        done = self.snakemake(*targets, *self.options)
        assert done.returncode == 0, done.stdout + done.stderr


def clean_environment() -> dict[str, str]:
    """The environment without what would point Snakemake or our code at another project."""
    dropped = ("RESPATH_ROOT", "PYTHONPATH", "SNAKEMAKE_PROFILE")
    return {key: value for key, value in os.environ.items() if key not in dropped}


def job_counts(text: str) -> dict[str, int]:
    """The table "Job stats" of a Snakemake log."""
    match = re.search(r"^Job stats:\njob\s+count\n[-\s]+\n(.*?)^total", text, re.MULTILINE | re.DOTALL)
    rows = match[1].split("\n") if match else []
    return {row.split()[0]: int(row.split()[1]) for row in rows if row.strip()}
