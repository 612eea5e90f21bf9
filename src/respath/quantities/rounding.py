"""The one rule by which numbers are rounded, where they are shown and where they are compared with printed ones."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

#: Significant digits of a float that count; what follows is dust of sums and products, which must not decide a half.
_DIGITS = 14


def rounded(value: float, decimals: int) -> Decimal:
    """``value`` at so many decimals, halves away from zero: what a reader of the decimal number expects, 52.25 -> 52.3.

    Python's own rounding takes halves to the even digit, and 2.675, which no float is, to 2.67.
    """
    exact = Decimal(value) if isinstance(value, int) else Decimal(f"{value:.{_DIGITS}g}")
    return exact.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)


def fixed(value: float, decimals: int, sign: bool = False) -> str:
    """``value`` with so many decimals and an ASCII sign (``sign``: also a plus), never "-0.000"."""
    if not math.isfinite(value):
        return f"{value:{'+' if sign else ''}f}"
    number = rounded(value, decimals)
    return f"{number if number else abs(number):{'+' if sign else ''}f}"


def signed(value: float) -> str:
    """Three significant digits with a sign that reads as one."""
    return significant(value, 3, sign=True).replace("-", "−")


def significant(value: float, digits: int, sign: bool = False) -> str:
    """``value`` with so many significant digits, in the form of Python's ``g``."""
    if not value or not math.isfinite(value):
        return f"{value:{'+' if sign else ''}.{digits}g}"
    nearest = rounded(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{float(nearest):{'+' if sign else ''}.{digits}g}"


def human_tokens(tokens: float) -> tuple[float, str]:
    """Divisor and unit for an axis of tokens: 2.1e10 -> (1e9, "B tokens")."""
    for divisor, unit in ((1e9, "B tokens"), (1e6, "M tokens"), (1e3, "K tokens")):
        if tokens >= 2 * divisor:
            return divisor, unit
    return 1.0, "tokens"


def short_count(count: float) -> str:
    """82.4e6 -> "82M", 1.04e6 -> "1.0M", 0.54e6 -> "0.54M", 350 -> "350"."""
    for divisor, least, unit in ((1e9, 1e9, "B"), (1e6, 1e5, "M")):
        if count >= least:
            scaled = count / divisor
            return f"{fixed(scaled, 0 if scaled >= 10 else 1 if scaled >= 1 else 2)}{unit}"
    return f"{fixed(count / 1e3, 0)}K" if count >= 1e3 else fixed(count, 0)
