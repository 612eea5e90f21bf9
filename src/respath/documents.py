"""YAML documents read safely and checked against typed models, every problem reported at once with file, line and key."""

from __future__ import annotations

import functools
import json
import re
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from respath.errors import UserError, did_you_mean, explain_os_error

try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML without its C library
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]


class _Loader(_BaseLoader):
    """Safe YAML whose plain words mean what YAML 1.2 says; what YAML 1.1 reads as something else is refused.

    PyYAML follows YAML 1.1, where 010 is eight, 1:30 is ninety, ``no`` is false, and 6e-4 is text. A repeated key is an
    error, too. Beyond YAML 1.2, underscores may group digits.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list]] = {}  # type: ignore[misc]  # as PyYAML itself has it

    def get_single_data(self):
        """The document as plain data, without PyYAML's generators: reading the papers takes half the time."""
        node = self.get_single_node()
        data = None if node is None else self._plain(node, {})
        if node is not None and self.ambiguous:
            found = [(keys, word) for keys, word in _words(node, (), set()) if word in self.ambiguous]
            raise _Ambiguous(found, data)
        return data

    @functools.cached_property
    def ambiguous(self) -> list[yaml.ScalarNode]:
        """The words of two meanings that were met."""
        return []

    def _doubtful(self, node: yaml.ScalarNode) -> str:
        self.ambiguous.append(node)
        return node.value

    def _plain(self, node, made):
        if isinstance(node, yaml.ScalarNode):
            read = _SCALARS.get(node.tag)
            return read(self, node) if read else self.construct_object(node)
        if id(node) in made:
            if made[id(node)] is _OPEN:
                raise yaml.constructor.ConstructorError(
                    None, None, "is part of itself (by an alias)", node.start_mark
                )
            return made[id(node)]
        made[id(node)] = _OPEN
        if isinstance(node, yaml.SequenceNode) and node.tag == _LIST:
            data = [self._plain(item, made) for item in node.value]
        elif isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
            data = self._mapping(node, made)
        else:
            data = self.construct_object(node, deep=True)
        made[id(node)] = data
        return data

    def _mapping(self, node, made):
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            key = key_node.value if key_node.tag == _MERGE else self._plain(key_node, made)
            problem = None
            if isinstance(key, dict | list):
                problem = "a key is a name or a number"
            elif key in lines:
                problem = f"key {key!r} appears twice (first in line {lines[key]})"
            if problem:
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            lines[key] = key_node.start_mark.line + 1
        if any(key_node.tag == _MERGE for key_node, _ in node.value):
            self.flatten_mapping(node)  # the merged keys go first, so that the mapping's own win
        return {self._plain(key, made): self._plain(value, made) for key, value in node.value}


_TAG = "tag:yaml.org,2002:"
_LIST, _MAPPING, _MERGE = (f"{_TAG}{kind}" for kind in ("seq", "map", "merge"))
#: Plain words by kind, the first that matches; all others are text. Each with the characters that a word can start with.
_WORDS = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": ("<<", "<"),
    "octal": ("[-+]?0[0-9_]+|[-+]?0[ob][0-9_]+", "-+0"),
    "sixty": (r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", "-+0123456789"),
    "truth": ("yes|Yes|YES|no|No|NO", "yYnN"),
    "int": ("[-+]?(?:[0-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
}  # fmt: skip
for _kind, (_pattern, _first) in _WORDS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first))
#: What is ambiguous about a word, and what to write instead.
_DOUBTS = {
    f"{_TAG}octal": "is a number of base 8 or 2 to some readers of YAML and of base 10, or text, to others; write it without the "
    "leading 0",
    f"{_TAG}sixty": "is a number of base 60 to some readers of YAML and text to others; write a decimal number",
    f"{_TAG}truth": "is true or false to some readers of YAML and text to others; write true or false",
}
_SCALARS = {
    f"{_TAG}{kind}": getattr(_BaseLoader, f"construct_yaml_{kind}")
    for kind in ("str", "int", "float", "bool", "null")
} | dict.fromkeys(_DOUBTS, _Loader._doubtful)
#: Marks a node that is being read.
_OPEN = object()


class _Ambiguous(yaml.YAMLError):
    """Words of two meanings, each with its keys; ``data``: the document with these as text."""

    def __init__(self, found: list[tuple[tuple, yaml.ScalarNode]], data: Any):
        super().__init__()
        self.found, self.data = found, data


def _words(node: yaml.Node, keys: tuple, seen: set[int]) -> Iterator[tuple[tuple, yaml.ScalarNode]]:
    """Every scalar of a document, keys included, with the keys that lead to it."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield keys, node
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _words(item, (*keys, number), seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*keys, key.value if isinstance(key, yaml.ScalarNode) else "?")
            yield from _words(key, inner, seen)
            yield from _words(value, inner, seen)


Model = TypeVar("Model", bound=BaseModel)
#: Where data is from: a file or an option, or a function that says so for the keys of a value.
Place = str | Path | Callable[[Sequence[str | int]], str]
#: A problem of a document: the keys that lead to it, and ``problem; remedy``.
Finding = tuple[list[str | int], str]


def load_yaml(path: str | Path, part: str | None = None) -> Any:
    """Parse one YAML file. Raises UserError ``file:line: ...`` when it is missing or malformed.

    ``part``: the one key that is ours in a file of another program, where words of two meanings are that program's affair.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise UserError(explain_os_error(error)) from None
    return parse_yaml(text, str(path), part=part)


def parse_yaml(text: str, place: str, keys: tuple[str, ...] = (), part: str | None = None) -> Any:
    """The data of YAML text: a whole file's, or with ``keys`` the value under them from another place, such as an option.

    Raises UserError: with every word of two meanings, or with the first other mistake.
    """

    def where(mark: yaml.Mark | None) -> str:
        if keys:
            return place
        return f"{place}:{mark.line + 1}" if mark else place

    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader subclass
    except _Ambiguous as error:
        ours = [(inner, word) for inner, word in error.found if part is None or inner[0] == part]
        if not ours:
            return error.data
        raise UserError(
            f"{where(word.start_mark)}: {'.'.join(map(str, [*keys, *inner])) or '(document)'}: {word.value} {_DOUBTS[word.tag]}, or "
            f"'{word.value}' in quotes for the text"
            for inner, word in ours
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problem = error.problem
        if mark and any(
            "\t" in line[: mark.column + 1] for line in text.split("\n")[mark.line : mark.line + 1]
        ):
            problem = "a tab where YAML takes only spaces; indent with spaces"
        raise UserError(": ".join([where(mark), *filter(None, [".".join(keys), problem])])) from None
    except yaml.YAMLError as error:
        raise UserError(f"{place}: {error}") from None


@functools.lru_cache(maxsize=16)
def _composed(path: str, changed: int) -> yaml.Node | None:
    """The node tree of a file as it was at a modification time (variants that fit no size ask for many lines)."""
    return yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=_Loader)


def line_of(path: str | Path, keys: Sequence[str | int]) -> int | None:
    """Line of the value under ``keys`` in a YAML file; the nearest parent's line when the key is absent."""
    try:
        node = _composed(str(path), Path(path).stat().st_mtime_ns)
    except (OSError, yaml.YAMLError):
        return None
    line = node.start_mark.line + 1 if node else None
    for key in keys:
        child = None
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                if str(key_node.value) == str(key):
                    child, line = value_node, key_node.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            child = node.value[key]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line


def _models_in(annotation: Any) -> list[Any]:
    """The annotation itself, or the members of a union, without ``Annotated`` and ``None``."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return [model for member in get_args(annotation) for model in _models_in(member)]
    return [annotation]


def _tag(model: Any) -> Any:
    """The ``kind`` that selects a model of a union."""
    field = (
        model.model_fields.get("kind") if isinstance(model, type) and issubclass(model, BaseModel) else None
    )
    return get_args(field.annotation)[0] if field and get_args(field.annotation) else None


def _walk(model: type[BaseModel], location: Sequence[str | int]) -> tuple[list[str | int], list[str]]:
    """A pydantic location as YAML keys (without the tags of unions), and the names allowed beside its last key."""
    keys: list[str | int] = []
    current: list[type[BaseModel]] = [model]
    siblings: list[str] = []
    for part in location:
        if part == "[key]":  # pydantic's mark of a key that is wrong itself
            continue
        tagged = [candidate for candidate in current if _tag(candidate) == part]
        if tagged and len(current) > 1:
            current = tagged
            continue
        keys.append(part)
        siblings, following = [], []
        for candidate in current:
            origin = get_origin(candidate)
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                siblings += list(candidate.model_fields)
                field = candidate.model_fields.get(str(part))
                following += _models_in(field.annotation) if field else []
            elif origin in (dict, tuple, list) and get_args(candidate):
                following += _models_in(get_args(candidate)[1 if origin is dict else 0])
        current = following
    return keys, list(dict.fromkeys(siblings))


def where(path: str | Path, keys: Sequence[str | int]) -> str:
    """``file:line`` of what stands under ``keys`` in a YAML file; any other place is its own name."""
    line = line_of(path, keys) if str(path).endswith((".yaml", ".yml")) else None
    return f"{path}:{line}" if line else str(path)


def _findings(error: ValidationError, model: type[BaseModel]) -> list[Finding]:
    """A pydantic error as keys and ``problem; remedy``."""
    found = []
    for item in error.errors(include_url=False):
        keys, siblings = _walk(model, item["loc"])
        kind, got = item["type"], item.get("input")
        if kind == "extra_forbidden":
            message = f"unknown key{did_you_mean(keys[-1], siblings)}"
        elif kind == "missing":
            message = "is missing"
        elif kind == "bool_type" and isinstance(got, str):
            message = f"expects true or false, got the text {got!r}"
        elif kind in ("int_type", "float_type", "int_parsing", "float_parsing") and isinstance(got, str):
            message = f"expects a number, got the text {got!r}; write it without quotes"
        elif kind in ("literal_error", "union_tag_invalid", "enum"):
            expected = item.get("ctx", {}).get("expected", item.get("ctx", {}).get("expected_tags", ""))
            names = re.findall(r"'([^']+)'", str(expected))
            got = item.get("ctx", {}).get("tag", got)
            message = f"{got!r} is not known{did_you_mean(got, names)}"
        elif kind == "union_tag_not_found":
            message = "has no `kind`, which says what the other keys mean"
        elif kind == "value_error":
            message = str(item["ctx"]["error"])
        else:
            message = item["msg"][0].lower() + item["msg"][1:]
            if not isinstance(got, dict | list):
                message += f", got {got!r}"
        found.append((keys, message))
    return found


def findings(model: type[Model], data: Any) -> tuple[list[Finding], Model | None]:
    """Parsed data as ``model``; or what is wrong with it, and None."""
    try:
        # Through JSON so that strict mode takes lists for tuples, but never text for numbers.
        return [], model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        return _findings(error, model), None
    except (TypeError, ValueError) as error:
        return [([], str(error))], None


def line_at(place: Place, keys: Sequence[str | int], message: str) -> str:
    """One problem as ``file:line: key: message``."""
    at = place(keys) if callable(place) else where(place, keys)
    return f"{at}: {'.'.join(str(part) for part in keys) or '(document)'}: {message}"


def check(model: type[Model], data: Any, place: Place, prefix: Sequence[str | int] = ()) -> Model:
    """Validate parsed data as ``model``. Raises UserError with one line per problem.

    ``place``: the file that the data is from (or the option), or a function that says so for the keys of a value.
    """
    if data is None and not prefix and (required := _required(model)):
        raise UserError(f"{place}: is empty; it needs {', '.join(required)}")
    found, document = findings(model, {} if data is None else data)
    if document is None:
        raise UserError([line_at(place, [*prefix, *keys], message) for keys, message in found])
    return document


def assembled(kind: type[Model], place: Place, prefix: Sequence[str | int] = (), /, **parts: Any) -> Model:
    """A document made of checked parts, whose fit only it can judge. Raises UserError that names ``place``."""
    try:
        return kind(**parts)
    except ValidationError as error:
        found = _findings(error, kind)
        raise UserError([line_at(place, [*prefix, *keys], message) for keys, message in found]) from None


def load(model: type[Model], path: str | Path) -> Model:
    """A YAML file as ``model``. Raises UserError with one line per problem."""
    return check(model, load_yaml(path), path)


def load_list(model: type[Model], path: str | Path) -> tuple[Model, ...]:
    """A YAML file that is a list of entries with distinct ids. Raises UserError with one line per problem."""
    data = load_yaml(path)
    if not isinstance(data, list):
        raise UserError(f"{path}: is not a list; start each entry with `- id:`")
    collect = Collector()
    entries = [collect(check, model, entry, path, (index,)) for index, entry in enumerate(data)]
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if entry is not None and entry.id in seen:
            collect.lines.append(line_at(path, (index, "id"), f"{entry.id!r} is given twice; rename one"))
        seen.add(entry.id if entry else "")
    collect.finish()
    return tuple(entries)


def _required(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if field.is_required()]


class Collector:
    """Gathers the problems of many checks so that all are reported at once."""

    def __init__(self):
        self.lines: list[str] = []

    def __call__(self, function, *args, **kwargs):
        """Call and return; on UserError remember its lines and return None."""
        try:
            return function(*args, **kwargs)
        except UserError as error:
            self.lines += error.lines
            return None

    def finish(self) -> None:
        """Raise everything gathered, each line once."""
        if self.lines:
            # The same mistake seen from several sizes or scales is one mistake.
            unique = {
                re.sub(r" \(size [^()]*, scale [^()]*\)$", "", line): line for line in reversed(self.lines)
            }
            raise UserError(list(reversed(unique.values())))
