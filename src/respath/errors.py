"""User errors: one or a few lines that name file, key and remedy, without a traceback."""

from __future__ import annotations

import difflib
import errno
import functools
import io
import os
import re
import sys
from collections.abc import Callable, Iterable

OK, CHECK_FAILED, WRONG_USE = 0, 1, 2
#: Exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130
#: Exit code of a stage that stopped on request (signal, time limit) with its work saved: start it again.
RETRY = 75


class UserError(Exception):
    """Something the user can mend. ``lines``: one per problem, each naming file, key and remedy."""

    exit_code = WRONG_USE

    def __init__(self, lines: str | Iterable[str]):
        self.lines = [lines] if isinstance(lines, str) else list(lines)
        super().__init__("\n".join(self.lines))


class CheckFailed(UserError):
    """A comparison that ran and found a deviation (exit code 1)."""

    exit_code = CHECK_FAILED


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """`` (did you mean X?)`` for the nearest known name; the list of known names when none is near."""
    names = [str(k) for k in known]
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.55)
    if near:
        return f" (did you mean {near[0]!r}?)"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f" (known: {shown})" if names else ""


def explain_os_error(error: OSError, elsewhere: str | None = None) -> str:
    """One line for the operating-system errors that users meet: disk full, permission, missing file, file for folder.

    ``elsewhere``: what to do to write to another place, e.g. "give another folder with --to".
    """
    where = error.filename if error.filename is not None else "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        other = f" (or {elsewhere})" if elsewhere else ""
        return (
            f"{where}: no space left on the device; free some space{other} and run the same command again: "
            "what is finished is kept"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where}: permission denied; make it writable for this user or {elsewhere or 'choose another folder'}"
    if error.errno == errno.ENOENT:
        return f"{where}: no such file or folder"
    if error.errno == errno.EEXIST:
        return f"{where}: is a file, and a folder is needed there; move it away or {elsewhere or 'choose another folder'}"
    if error.errno == errno.ENOTDIR:
        return f"{where}: a part of this path is a file, not a folder; move it away or {elsewhere or 'choose another path'}"
    if error.errno == errno.EISDIR:
        return f"{where}: is a folder, and a file is needed there; give a file name"
    return f"{where}: {error.strerror or error}"


#: How PyTorch and NumPy say that memory is used up, on a CPU and on a GPU.
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|Unable to allocate", re.IGNORECASE)


def explain_no_memory(error: BaseException) -> str | None:
    """One line for an error that says that memory is used up; None for any other."""
    used_up = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not used_up and not _NO_MEMORY.search(str(error)):
        return None
    asked = re.search(r"(?:tried to|Tried to|Unable to) allocate ([\d.]+ \w+)", str(error))
    return (
        f"out of memory{f' (asked for {asked[1]})' if asked else ''}; give the job more (mem_mb of its rule) or let fewer run at once "
        "(snakemake --cores); a training needs less with runtime.micro_batch: 1 or checkpoint_activations: true. Then run the same "
        "command again: what is finished is kept"
    )


def guard(main: Callable[..., int | None]) -> Callable[..., int]:
    """Run a command-line main; turn user errors, Ctrl-C, full disks and used-up memory into lines on stderr and an exit code.

    ``--debug`` among the arguments, or RESPATH_DEBUG=1, lets the traceback through.
    """

    @functools.wraps(main)
    def wrapped(*args, **kwargs) -> int:
        # A letter that the terminal's encoding lacks is shown by its number, as on stderr, and ends nothing.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        debug = "--debug" in sys.argv or os.environ.get("RESPATH_DEBUG", "") not in ("", "0")
        try:
            return main(*args, **kwargs) or OK
        except UserError as error:
            if debug:
                raise
            for line in error.lines:
                print(f"error: {line}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            if debug:
                raise
            print("stopped by Ctrl-C; run the same command again: what is finished is kept", file=sys.stderr)
            return INTERRUPTED
        except OSError as error:
            if debug or error.errno is None:
                raise
            if error.errno == errno.EPIPE:
                # The reader (head, less) went away: not an error of ours. Point stdout elsewhere so that
                # the interpreter's last flush does not raise again.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return OK
            print(f"error: {explain_no_memory(error) or explain_os_error(error)}", file=sys.stderr)
            return WRONG_USE
        except (MemoryError, RuntimeError) as error:
            short = explain_no_memory(error)
            if debug or short is None:
                raise
            print(f"error: {short}", file=sys.stderr)
            return WRONG_USE

    return wrapped
