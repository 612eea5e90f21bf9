"""What is measured of decoding, by name (no torch): ``decode.b<batch>.<way>.<field>``. The ways are those of ``measure/decoding.py``."""

from __future__ import annotations

#: Rows that are decoded together.
BATCHES = (1, 8)
WAYS = ("device", "folded", "long", "host", "prefetch")
#: Fields of one way, and their units. ``saved_bytes``: the baseline's cache less the model's and its tables on the device.
FIELDS = {
    "first_token_seconds": "s",
    "first_token_ratio": "1",
    "token_seconds": "s",
    "token_ratio": "1",
    "tokens_per_second": "tokens/s",
    "bytes_read": "bytes",
    "bytes_read_ratio": "1",
    "host_bytes": "bytes",
    "peak_bytes": "bytes",
    "cache_bytes": "bytes",
    "cache_ratio": "1",
    "table_bytes": "bytes",
    "saved_bytes": "bytes",
    "formula_saved_bytes": "bytes",
}
#: Of the machine.
DEVICE = ("name", "kind", "clock_mhz", "threads")
