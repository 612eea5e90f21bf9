"""Result files as they stand below one folder: read on demand, checked, never made."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.errors import UserError
from respath.files import read_json
from respath.quantities.kinds import KINDS, Kind

if TYPE_CHECKING:
    import numpy as np

#: Schema version of every result file that is understood here.
SCHEMA = 1

Key = Mapping[str, str]


class Store:
    """The result files below ``folder``, by kind (``respath.quantities.kinds``) and key ({run}, {paper}, {tokens}, ...).

    None where a file does not exist (yet). A file that exists and is not what its name says (kind, schema, run) raises
    UserError: a comparison over files that were mixed up would be worse than none.
    """

    def __init__(self, folder: str | Path, root: str | Path | None = None):
        self.folder, self.root = Path(folder), Path(root) if root is not None else None
        self._read: dict[Path, dict[str, Any]] = {}

    @property
    def source(self) -> str:
        """Where the files lie, for readers."""
        return "results/"

    def path(self, kind: str, key: Key) -> str:
        """A document's path, relative to the project where it lies inside: for messages."""
        return self._shown(self.folder / KINDS[kind].file(key))

    def document(self, kind: str, key: Key) -> dict[str, Any] | None:
        """A result file."""
        record = KINDS[kind]
        path = self.folder / record.file(key)
        if path not in self._read:
            if not path.exists():
                return None  # and looked for again: it may be made any moment
            self._read[path] = _checked(record, path, key)
        return self._read[path]

    def array(self, kind: str, name: str, key: Key) -> np.ndarray | None:
        """The array ``<module>.<name>`` beside a document. UserError when the archive is not the one that the document speaks of."""
        module, _, field = name.partition(".")
        modules = (self.document(kind, key) or {}).get("modules", {})
        shape = (modules.get(module, {}).get("arrays") or {}).get(field)
        if shape is None:
            return None
        import numpy as np

        file = self.folder / KINDS[kind].arrays.format(**key)
        remedy = f"delete {file.parent} and run the same command again"
        try:
            with np.load(file, allow_pickle=False) as archive:
                array = archive[name]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(f"{file}: cannot be read ({error}); {remedy}") from None
        if list(array.shape) != shape:
            raise UserError(f"{file}: {name} has shape {list(array.shape)}, not {shape}; {remedy}")
        return array

    def claims(self, run: str) -> Mapping[str, str] | None:
        """Hashes of the claims that were in force when a run's results were kept, by their ids; None where that is not recorded."""
        return None

    def _shown(self, path: Path) -> str:
        if self.root is not None and path.is_relative_to(self.root):
            return str(path.relative_to(self.root))
        return str(path)


def _checked(kind: Kind, path: Path, key: Key) -> dict[str, Any]:
    data = read_json(path)
    remedy = "delete it and run the same command again"
    if not isinstance(data, dict) or data.get("kind") != kind.writes:
        found = data.get("kind") if isinstance(data, dict) else type(data).__name__
        raise UserError(f"{path}: kind: is {found!r}, not {kind.writes!r}; {remedy}")
    if data.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: schema: version {data.get('schema')!r} is not readable here (needs {SCHEMA}); {remedy}"
        )
    if absent := [name for name in kind.keys if name not in data]:
        raise UserError(f"{path}: has no {', '.join(absent)}; {remedy}")
    if "run" in kind.keyed_by() and data.get("run") != key["run"]:
        raise UserError(f"{path}: run: belongs to {data.get('run')!r}, not to {key['run']!r}; {remedy}")
    return data
