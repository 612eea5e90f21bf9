"""Disturb the workflow at random, run the same command until it ends, and compare with a run that nothing happened to.

``python -m tests.dag.disturbed --count 200 --seed 0``. Stub stages stand behind the real rules of the toy paper; start and end
of a training are the real ones. What a message says is followed literally: files that it names are deleted, a lock is freed.
Each trial is a function of its seed, apart from the moments at which processes die.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.cluster.toy_copy import ToyCopy
from tests.project_copy import ProjectCopy, clean_environment, job_counts

TOY = Path(__file__).resolve().parents[1] / "golden/project"
STUB = Path(__file__).with_name("stub_stage.py")
TARGETS = ("toy_table1", "toy_table2", "toy_table4")
REAL_TARGETS = ("toy_trained", "toy_table1")
#: What must be as in an undisturbed run; everything else only leads there.
COMPARED = ("reports/out/**/*", "results/runs/**/*", "results/evals/**/*", "results/analyses/**/*")
#: Runs of the same command until one must have ended well. Each may meet one more damaged file.
PATIENCE = 12


def base_project(folder: Path) -> ProjectCopy:
    """The toy paper on a folder of text, behind it stub stages."""
    copy = ProjectCopy(folder)
    for part in ("papers", "scales"):
        shutil.rmtree(folder / part)
        shutil.copytree(TOY / part, folder / part)
    scale = folder / "papers/toy/scales/smoke.yaml"
    smoke = yaml.safe_load(scale.read_text())
    smoke["data"]["corpus"] = "tiny"
    scale.write_text(yaml.safe_dump(smoke))
    corpora = yaml.safe_load((folder / "papers/corpora.yaml").read_text())
    corpora["corpora"]["tiny"] = {"name": "tiny", "kind": "local", "train_files": ["*.txt"]}
    (folder / "papers/corpora.yaml").write_text(yaml.safe_dump(corpora))
    for name, text in (("text", "right"), ("other", "wrong")):
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text(text)
    (folder / "config.yaml").write_text("papers: [toy]\nlocations: {tiny: text}\nitems: auto\n")
    for path in (folder / "workflow/rules").glob("*.smk"):
        inputs = "--inputs {input:q} " if path.name == "report.smk" else ""
        path.write_text(
            re.sub(
                r'"(RAYON_NUM_THREADS=\{threads\} )?(exec )?python -m (respath\.[\w.]+)',
                rf'"\2python -S {STUB} \3 --outputs {{output:q}} {inputs}--',
                path.read_text(),
            )
        )
    # Closing lines read real results. Whether all of them stand on one set of tokens and items is asked by the real function.
    common = folder / "workflow/rules/common.smk"
    text = common.read_text()
    closing = 'sys.executable, "-m", "respath.comparison.closing"'
    assert closing in text
    stub = f'"python", "-S", "{STUB}", "respath.comparison.closing", "--"'
    common.write_text(text.replace(closing, stub))
    return copy


class Started:
    """Snakemake in a process group of its own, forked from this process, which has imported it."""

    def __init__(self, folder: Path, *arguments: str):
        self.said = folder / "said.txt"
        self.pid = os.fork()
        if self.pid:
            self.code: int | None = None
            return
        status = 70
        try:
            os.setsid()
            os.chdir(folder)
            stream = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(stream, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            environment = clean_environment()
            os.environ.clear()
            os.environ.update(environment)
            # With ``python -S`` a stub finds packages here.
            os.environ["PYTHONPATH"] = os.pathsep.join(
                path for path in sys.path if path.endswith("site-packages")
            )
            sys.argv = ["snakemake", "--cores", "2", *arguments]
            from snakemake.cli import main

            main(sys.argv[1:])
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except KeyboardInterrupt:
            status = 130
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self, patience: float) -> int:
        """Exit code. A Snakemake that a signal left idle for ever (docs/troubleshooting.md) is ended with its jobs."""
        deadline = time.monotonic() + patience
        while self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                self.signal_all(signal.SIGKILL)
            else:
                time.sleep(0.01)
        return self.code

    def signal_all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait_for_orphans(self, patience: float) -> None:
        """Until no process of the group is left: a login node that restarts leaves jobs at work."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)
        raise AssertionError("jobs outlive their Snakemake")


class Trial:
    """One project that is disturbed."""

    def __init__(self, folder: Path, base: Path, targets: tuple[str, ...], seed: int, real: bool = False):
        self.path, self.targets, self.random, self.real = folder, targets, random.Random(seed), real
        shutil.copytree(base, folder, symlinks=True)
        self.story: list[str] = []
        #: Trainings that may be done once more, because their weights were taken away or their tokens changed.
        self.retrained: Counter[str] = Counter()

    def run(self, *arguments: str) -> tuple[int, str]:
        started = Started(self.path, *arguments)
        code = started.wait(3000 if self.real else 300)
        return code, started.said.read_text(errors="replace")

    def tell(self, text: str) -> None:
        self.story.append(text)

    # --- disturbances ---

    def interrupt(self, *arguments: str) -> None:
        """Start the command and let it die."""
        seconds = self.random.choice((0.6, 1.0, 1.5, 2.0, 3.0, 4.5)) * self.random.uniform(0.7, 1.3)
        # Real stages spend seconds on imports alone.
        seconds *= 10 if self.real else 1
        how = self.random.choice(("Ctrl-C", "kill -9 of all", "kill -9 of Snakemake alone", "kill"))
        self.tell(f"{how} after {seconds:.1f} s: {' '.join(arguments)}")
        started = Started(self.path, *arguments)
        time.sleep(seconds)
        if how == "Ctrl-C":
            started.signal_all(signal.SIGINT)
        elif how == "kill -9 of all":
            started.signal_all(signal.SIGKILL)
        else:
            os.kill(started.pid, signal.SIGKILL if "-9" in how else signal.SIGTERM)
        started.wait(200 if self.real else 20)
        started.wait_for_orphans(600 if self.real else 60)

    def partly(self) -> None:
        self.interrupt(*self.targets)

    def whole(self) -> None:
        self.tell("run")
        self.run(*self.targets)

    def forced(self) -> None:
        rules = "train evaluate_loss table"
        if not self.real:
            rules += " index_corpus scan sample tokenizer tokenize manifest eval_items evaluate_lm"
        rule = self.random.choice(rules.split())
        if self.random.random() < 0.5:
            self.interrupt(*self.targets, "-R", rule)
        else:
            self.tell(f"-R {rule}")
            self.run(*self.targets, "-R", rule)

    def files(self, *patterns: str) -> list[Path]:
        return sorted(path for pattern in patterns for path in self.path.glob(pattern) if path.is_file())

    def deleted(self) -> None:
        everything = self.files("results/**/*", "reports/out/**/*", "checkpoints/*/final/*")
        for path in self.random.sample(everything, min(len(everything), self.random.randint(1, 3))):
            self.tell(f"delete {path.relative_to(self.path)}")
            if path.name == "model.safetensors":
                self.retrained[path.parent.parent.name] += 1
            path.unlink()

    def damaged(self) -> None:
        """Half of a file that others read."""
        everything = self.files(
            "results/**/*.json", "results/**/*.bin", "checkpoints/*/final/model.safetensors"
        )
        if not everything:
            return
        path = self.random.choice(everything)
        self.tell(f"damage {path.relative_to(self.path)}")
        if path.name == "model.safetensors":
            self.retrained[path.parent.parent.name] += 1
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def edited(self, name: str, old: str, new: str, meanwhile: Callable[[], None]) -> None:
        path = self.path / name
        before = path.read_text()
        assert old in before, (name, old)
        self.tell(f"edit {name}: {new}")
        path.write_text(before.replace(old, new))
        meanwhile()
        self.tell("and back")
        path.write_text(before)

    def located_elsewhere(self) -> None:
        place = self.random.choice(("other", "nowhere"))
        self.edited("config.yaml", "tiny: text", f"tiny: {place}", self.partly)

    def collected_elsewhere(self) -> None:
        self.edited("config.yaml", "items: auto", "items: wheel", self.partly)

    def labelled(self) -> None:
        self.edited("papers/toy/variants.yaml", "label:", "label:  ", self.partly)

    def retitled(self) -> None:
        self.edited("papers/toy/tables.yaml", "Loss of the toy models", "Losses", self.whole)

    def more_seeds(self) -> None:
        self.edited("config.yaml", "items: auto", "items: auto\nseeds: [1, 2]", self.partly)

    def unlocked(self) -> None:
        self.tell("--unlock")
        self.run("--unlock", *self.targets)

    DISTURBANCES = (
        partly,
        partly,
        partly,
        whole,
        forced,
        forced,
        deleted,
        deleted,
        damaged,
        located_elsewhere,
        collected_elsewhere,
        labelled,
        retitled,
        more_seeds,
        unlocked,
    )

    #: Those that take minutes with real stages are left to stubs.
    REAL = (partly, partly, partly, forced, deleted, deleted, damaged, labelled, unlocked)

    def disturb(self) -> None:
        for _ in range(self.random.randint(2, 5)):
            self.random.choice(self.REAL if self.real else self.DISTURBANCES)(self)

    # --- the same command until it ends ---

    def recover(self) -> None:
        for _ in range(PATIENCE):
            code, said = self.run(*self.targets)
            if code == 0:
                return
            self.follow(said)
        raise AssertionError(f"the same command failed {PATIENCE} times; at last: {said[-3000:]}")

    def follow(self, said: str) -> None:
        """Do what the messages say."""
        if "--unlock" in said and "LockException" in said:
            self.unlocked()
            return
        for path in named_for_deletion(self.path, said):
            self.delete(path)

    def delete(self, name: Path) -> None:
        path = self.path / name
        self.tell(f"as told: delete {name}")
        if path.is_dir():
            if path.parent.name == "checkpoints":
                self.retrained[path.name] += 1
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    # --- was it right? ---

    def verify(self, expected: dict[str, str]) -> None:
        found = contents(self.path, self.real)
        # A result behind a table that is up to date may be gone: nobody asked for it, and the table shows what it was.
        # Runs of other seeds that an edit asked for may be there.
        differing = sorted(
            name
            for name, content in expected.items()
            if found.get(name, None if name.startswith("reports/") else content) != content
        )
        assert not differing, f"not as in an undisturbed run: {differing}"
        code, said = self.run("-n", *self.targets)
        assert code == 0 and not job_counts(said), f"a plan is left after success: {job_counts(said)}"
        if self.real:
            return
        trained = Counter((self.path / "ledger/trained").read_text().split("\n")[:-1])
        for line, times in trained.items():
            run = line.split()[0]
            assert times <= 1 + self.retrained[run], f"{run} was trained {times} times on the same tokens"


def named_for_deletion(folder: Path, said: str) -> list[Path]:
    """Paths, below a project or absolute, that messages ask to delete."""
    named = []
    again = r"(?:run the same command|collect (?:the|them|it))"
    for line in said.splitlines():
        text = line.strip().removeprefix("error: ")
        if match := re.match(rf"(\S+?)(?::\d+)?: (.*?)\bdelete (.+?) and {again}", text):
            where = Path(match[1])
            other = re.search(r"(?:in|of) (\S+); $", match[2])
            names = match[3].replace("both", f"it and {other[1]}" if other else "it")
            for name in re.split(r",? and |, ", names):
                path = where if name == "it" else Path(name)
                named.append(path if (folder / path).exists() else where.parent / path)
    return named


def contents(folder: Path, real: bool = False) -> dict[str, str]:
    """What is compared, by file. Real results hold times and places besides, so that their numbers are taken."""
    files = [path for pattern in COMPARED for path in folder.glob(pattern) if path.is_file()]
    if real:
        return {str(path.relative_to(folder)): text for path in files if (text := numbers(path))}
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def numbers(path: Path) -> str:
    """What a real result says whenever it is computed; empty for files that say nothing of that."""
    if path.suffix == ".csv":
        return path.read_text()
    if path.name not in ("train.json", "loss.json"):
        return ""
    content = json.loads(path.read_text())
    return json.dumps([content.get(key) for key in ("status", "weights", "domains", "mean_loss")])


def disturbed(
    count: int,
    seed: int,
    keep: Path | None = None,
    targets: tuple[str, ...] = TARGETS,
    real: bool = False,
) -> list[str]:
    """Run trials; returns one line per difference. ``real``: the stages themselves, from tokens that are there."""
    # Imported once; each Snakemake is a fork of this process.
    import snakemake.cli  # noqa: F401

    import respath.papers.check
    import respath.results.reader  # noqa: F401

    failures = []
    with tempfile.TemporaryDirectory(prefix="disturbed-") as name:
        root = Path(name)
        base = root / "base"
        base.mkdir()
        ToyCopy(base) if real else base_project(base)
        reference = Trial(root / "reference", base, targets, 0, real)
        code, said = reference.run(*targets)
        assert code == 0, said
        expected = contents(reference.path, real)
        assert expected, said
        for number in range(seed, seed + count):
            trial = Trial(root / f"trial-{number}", base, targets, number, real)
            begun = time.monotonic()
            try:
                trial.disturb()
                trial.recover()
                trial.verify(expected)
                outcome = "as undisturbed"
            except AssertionError as error:
                outcome = "\n  ".join([f"DIFFERS: {error}", *trial.story])
                failures.append(f"seed {number}: {error}")
                if keep is not None:
                    shutil.copytree(trial.path, keep / f"trial-{number}", symlinks=True, dirs_exist_ok=True)
            print(
                f"seed {number}: {time.monotonic() - begun:.0f} s, {len(trial.story)} acts, {outcome}",
                flush=True,
            )
            shutil.rmtree(trial.path, ignore_errors=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; the others follow")
    parser.add_argument("--keep", type=Path, help="folder for the projects of trials that differ")
    parser.add_argument(
        "--targets", nargs="+", help=f"default: {' '.join(TARGETS)}; with --real: {' '.join(REAL_TARGETS)}"
    )
    parser.add_argument("--real", action="store_true", help="real stages, a minute or more for a trial")
    given = parser.parse_args()
    targets = tuple(given.targets or (REAL_TARGETS if given.real else TARGETS))
    failures = disturbed(given.count, given.seed, given.keep, targets, given.real)
    for line in failures:
        print(line)
    print(f"{given.count} trials from seed {given.seed}: {len(failures)} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
