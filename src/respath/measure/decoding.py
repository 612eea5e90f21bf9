"""What decoding costs on this device, with and without a cache of values: time, bytes read, memory, beside the baseline's.

``python -m respath.measure.decoding --model JSON|@FILE --baseline JSON|@FILE --name REF --context 2048 --out decode.json``

Layers whose values are rows of a token table cache no values: they look the rows of all tokens that attention sees up again
(Bank of Values, arXiv 2606.02780, Section 3). A model is measured in several *ways*:

* ``device``: as it is, tables on the device.
* ``folded``: each target layer's coefficient is multiplied into its W_O beforehand, where it costs nothing.
* ``long``: no layer has a short window, in the baseline neither.
* ``host``: tables in host memory; a layer waits for its rows.
* ``prefetch``: the same, all rows asked for before the first layer, so that they travel while earlier layers compute.

On a CPU host and device memory are one, and the last two are not applicable. Each way takes turns with the baseline in one process, at
the same context, batch and windows.
"""

from __future__ import annotations

import argparse
import math
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from respath.config.arguments import json_argument
from respath.documents import check
from respath.errors import UserError, guard
from respath.files import write_json
from respath.measure.system import DECODED, Subject, device_of, free, measure_phase
from respath.measure.timing import Decoder
from respath.measure.weights import chosen_device
from respath.model.origin import Origin
from respath.model.transformer import Transformer
from respath.model.values.table import TableValues
from respath.quantities.decoding import BATCHES, WAYS
from respath.spec.cost import cache_bytes
from respath.spec.model import ModelSpec

SCHEMA = 1


# --- ways ----------------------------------------------------------------------------------------------------------


def looks_up(spec: ModelSpec) -> bool:
    """Whether a model finds values again by token id."""
    from respath.spec.layout import layout

    return layout(spec).keeps_ids


@torch.no_grad()
def fold(model: Transformer) -> Transformer:
    """Multiply W_O of each target layer by its coefficient, in place: gamma (A E) W_O = (A E) (gamma W_O). Returns the model.

    Into W_O and not into the table, which layers may share.
    """
    path = model.values
    for n, weight in zip(path.targets, path.weights()["source"], strict=True):
        model.layers[n].attention.o_proj.weight.mul_(weight)
    document = path.spec.values.model_copy(update={"learnable": False, "source": 1.0})
    with torch.device("meta"):
        bare = TableValues(path.spec.model_copy(update={"values": document}))
    bare.tables = path.tables
    model.values = bare
    return model


class HostTables(nn.Module):
    """A value path of tables whose rows come from host memory, for decoding.

    ``prefetch``: all rows of a call are gathered and sent by a thread of their own, in the order of the layers, while the layers
    before them compute. ``moved``: bytes of rows that were sent so far.
    """

    def __init__(self, path: TableValues, device: torch.device, prefetch: bool):
        super().__init__()
        self.path, self.device, self.prefetch = path, device, prefetch
        self.cuda, self.moved = device.type == "cuda", 0
        tables = [table.detach().to("cpu") for table in path.tables]
        self.host = [table.pin_memory() for table in tables] if self.cuda else tables
        path.tables = nn.ParameterList()
        self.workers = ThreadPoolExecutor(1)
        self.stream = torch.cuda.Stream(device) if self.cuda else None

    def open(self, origin: Origin) -> tuple:
        """Carried: per target layer how to get its rows, and the path's coefficients."""
        ids = [part.cpu().long() for part in (origin.history, origin.near)]
        asked = {}
        for at, n in enumerate(self.path.targets):
            fetch = (self._rows, ids[self.path.near[n]], self.host[0 if len(self.host) == 1 else at])
            asked[n] = self.workers.submit(*fetch) if self.prefetch else fetch
        return asked, self.path.weights()

    @torch.inference_mode()
    def _rows(self, ids: Tensor, table: Tensor) -> tuple[Tensor, Any]:
        """Rows of a table on the device, (batch, keys, kv_width), and when they are there."""
        if not self.cuda:
            rows = F.embedding(ids, table)
            self.moved += rows.nbytes
            return rows, None
        gathered = torch.empty((*ids.shape, table.shape[1]), dtype=table.dtype, pin_memory=True)
        torch.index_select(table, 0, ids.flatten(), out=gathered.flatten(0, 1))
        with torch.cuda.stream(self.stream):
            rows = gathered.to(self.device, non_blocking=True)
            there = self.stream.record_event()
        self.moved += rows.nbytes
        return rows, there

    def mix(
        self, n: int, own: Tensor | None, carried: tuple, x: Tensor, project: nn.Module
    ) -> tuple[Tensor, tuple]:
        """Rows on target layers, the own value elsewhere."""
        if n not in self.path.targets:
            return own, carried
        asked = carried[0][n]
        rows, there = asked.result() if isinstance(asked, Future) else asked[0](*asked[1:])
        if there is not None:
            torch.cuda.current_stream().wait_event(there)
            # Made on the other stream: its memory may not be given away before this one has read it.
            rows.record_stream(torch.cuda.current_stream())
        return rows, carried

    def finish(self, n: int, attended: Tensor, own: Tensor | None, carried: tuple) -> Tensor:
        """The path's own coefficient."""
        return self.path.finish(n, attended, own, carried)


def made(model: Transformer, way: str) -> Transformer:
    """A model changed in place to decode in this way; the weights say the same as before."""
    if way == "folded":
        return fold(model)
    if way in ("host", "prefetch"):
        model.values = HostTables(model.values, model.embedding.weight.device, way == "prefetch")
    return model


def inapplicable(spec: ModelSpec, way: str, device: str) -> str:
    """Why a model is not measured in a way; empty where it is."""
    if way == "long":
        return "" if spec.windows else "no layer has a short window"
    if way == "device":
        return ""
    if not looks_up(spec):
        return "no values are looked up"
    if way == "folded":
        return ""
    return "" if device.startswith("cuda") else "not applicable: host and device memory are one on a CPU"


# --- bytes ---------------------------------------------------------------------------------------------------------


class BytesRead(TorchDispatchMode):
    """Adds up what the operators of a call read: every tensor argument once per operator; of a gather, rows and not the table.

    What an operator reads again from a cache of the processor, or a fused kernel in several passes, is not seen.
    """

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        schema = func._schema
        if any(one.alias_info is not None and not one.alias_info.is_write for one in schema.returns):
            return result  # a view reads nothing
        given = dict(zip((one.name for one in schema.arguments), args, strict=False)) | (kwargs or {})
        written = {
            one.name for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write
        }
        read = [value for name, value in given.items() if name not in written]
        if func.overloadpacket in _GATHERS:
            self.total += result.nbytes
            read = read[1:]
        if func.overloadpacket not in _NOTHING_READ:
            self.total += sum(map(held, _tensors(read)))
        return result


_GATHERS = (
    torch.ops.aten.embedding,
    torch.ops.aten.index,
    torch.ops.aten.index_select,
    torch.ops.aten.gather,
)
_NOTHING_READ = tuple(
    getattr(torch.ops.aten, name)
    for name in ("_unsafe_view", "empty_like", "zeros_like", "new_zeros", "new_empty")
)


def _tensors(values: Any) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def held(tensor: Tensor) -> int:
    """Bytes behind a tensor: a dimension that repeats one number counts once."""
    return tensor.itemsize * math.prod(
        size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size
    )


# --- measuring -----------------------------------------------------------------------------------------------------


class Served(Subject):
    """A model in one way in one round."""

    def __init__(self, spec: ModelSpec, way: str, *shape: Any):
        super().__init__(spec, *shape)
        self.way, self.facts = way, {}

    def decoder(self) -> Decoder:
        """As ``Subject``, changed to decode in its way, with what is counted and not timed."""
        decoder = super().decoder()
        model, tables = decoder.model, getattr(decoder.model.values, "tables", ())
        made(model, self.way)
        self.facts = {
            "cache_bytes": model.new_cache(self.batch, self.context).nbytes,
            "table_bytes": sum(table.nbytes for table in tables)
            if self.way not in ("host", "prefetch")
            else 0,
        }
        return decoder


def bytes_of_a_step(served: Served) -> dict[str, int]:
    """Bytes that operators on the device read to decode one token per row behind a full context, and that came from the host."""
    decoder = served.decoder()
    before = getattr(decoder.model.values, "moved", 0)
    with torch.inference_mode(), BytesRead() as read:
        decoder.model(decoder.last, cache=decoder.cache)
    moved = getattr(decoder.model.values, "moved", 0) - before
    return {"bytes_read": read.total, "host_bytes": moved, **served.facts}


def measure_way(
    model: ModelSpec,
    baseline: ModelSpec,
    way: str,
    context: int,
    batch: int,
    precision: str,
    device: str,
    turns: int,
) -> dict[str, Any]:
    """One way at one batch: times over the baseline's, bytes, and what is saved of the baseline's cache."""
    if reason := inapplicable(model, way, device):
        return {"status": "not applicable", "reason": reason}
    if way == "long":
        model, baseline = (one.model_copy(update={"windows": None}) for one in (model, baseline))

    def subjects(calls: int) -> tuple[Served, Served]:
        shape = (context, batch, precision, device, calls)
        return Served(model, way, *shape), Served(baseline, "device", *shape)

    phases = {}
    for phase in ("prefill", "decode"):
        phases[phase] = measure_phase(phase, subjects, turns, turns, device)
        if phases[phase]["status"] != "done":
            return phases[phase]
    counted = []
    for one in subjects(1):
        counted.append(bytes_of_a_step(one))
        free(device)
    own, plain = counted
    stored = 2 if precision == "bf16" else 4
    formula = cache_bytes(baseline, context, batch, stored) - cache_bytes(model, context, batch, stored)
    first, each = phases["prefill"], phases["decode"]
    peaks = [phase["peak_bytes"] for phase in (first, each)]
    return {
        "status": "done",
        "first_token_seconds": first["seconds"],
        "first_token_ratio": first["ratio"],
        "token_seconds": each["seconds"] / DECODED,
        "token_ratio": each["ratio"],
        "tokens_per_second": each["tokens_per_second"],
        "peak_bytes": max(peaks) if None not in peaks else None,
        **own,
        "bytes_read_ratio": own["bytes_read"] / plain["bytes_read"],
        "cache_ratio": own["cache_bytes"] / plain["cache_bytes"],
        "saved_bytes": plain["cache_bytes"] - own["cache_bytes"] - own["table_bytes"],
        "formula_saved_bytes": formula - (table_parameters(model) * stored if own["table_bytes"] else 0),
    }


def table_parameters(spec: ModelSpec) -> int:
    """Entries of all value tables, in closed form."""
    return spec.values.parameters(spec).get("tables", 0)


def measure(
    model: ModelSpec,
    baseline: ModelSpec,
    *,
    context: int,
    precision: str,
    device: str,
    turns: int,
    batches=BATCHES,
) -> dict[str, Any]:
    """Content of the result. Raises UserError for a context that the model cannot read."""
    longest = context + DECODED * (2 * turns + 1)
    for spec in (model, baseline):
        if spec.max_positions is not None and spec.max_positions < longest:
            raise UserError(
                f"--context {context}: {longest} positions are read with those decoded, the model has {spec.max_positions}"
            )
    return {
        "schema": SCHEMA,
        "kind": "decode",
        "device": device_of(device),
        "precision": precision,
        "context": context,
        "decoded": DECODED,
        "batches": {
            str(batch): {
                way: measure_way(model, baseline, way, context, batch, precision, device, turns)
                for way in WAYS
            }
            for batch in batches
        },
    }


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.decoding", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="model spec as JSON or @FILE")
    parser.add_argument("--baseline", required=True, help="the spec that ratios are over")
    parser.add_argument("--name", required=True, help="what the result calls the model")
    parser.add_argument("--context", type=int, required=True, help="tokens per row before the decoded ones")
    parser.add_argument("--turns", type=int, default=3, help="rounds, and turns in each")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    specs = [
        check(ModelSpec, json_argument(text, option), option)
        for text, option in ((given.model, "--model"), (given.baseline, "--baseline"))
    ]
    device = chosen_device(given.device)
    precision = "bf16" if device.startswith("cuda") else "fp32"
    content = measure(*specs, context=given.context, precision=precision, device=device, turns=given.turns)
    write_json(given.out, {**content, "model": given.name})
    for batch, ways in content["batches"].items():
        for way, entry in ways.items():
            shown = entry.get("reason") or entry["status"]
            if entry["status"] == "done":
                shown = f"{entry['token_ratio']:.3f} of the baseline's time a token, {entry['bytes_read_ratio']:.3f} of its bytes"
            print(f"batch {batch}, {way}: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
