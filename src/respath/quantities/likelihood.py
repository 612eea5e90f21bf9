"""Sets of the likelihood suite (DepthBench, arXiv 2609.32534, Figure 4), two for each domain."""

#: A domain's number is the plain mean of its two sets'.
DOMAINS: dict[str, tuple[str, str]] = {
    "coding": ("mbpp", "humaneval"),
    "stem": ("sciq", "gpqa_diamond"),
    "mathematics": ("gsm8k", "math500"),
}
SETS = tuple(name for pair in DOMAINS.values() for name in pair)
