"""Which suites of CORE there are and which tasks each has, by name (no torch: papers are checked against it).

A metric is ``core.<suite>`` (the unweighted mean of centred accuracies), ``core.<suite>.<task>.<field>``, or ``core.<task>.<field>``
of the first suite that has the task. How a task becomes prompts and scores stands in ``measure/core.yaml``.
"""

from __future__ import annotations

_SHARED = (
    *("jeopardy", "bigbench_qa_wikidata", "arc_easy", "arc_challenge", "copa", "commonsense_qa", "piqa"),
    *("openbook_qa", "lambada_openai", "hellaswag", "winograd", "winogrande", "bigbench_dyck_languages"),
    *("agi_eval_lsat_ar", "bigbench_cs_algorithms", "bigbench_operators", "bigbench_repeat_copy_logic"),
    *("squad", "coqa", "boolq", "bigbench_language_identification"),
)
#: Suite -> its tasks. The first that has a task is meant by the task's name alone.
SUITES: dict[str, tuple[str, ...]] = {
    "core21": _SHARED,
    "core22": ("hellaswag_zeroshot", *_SHARED),
}
#: Of one task: raw accuracy; the same centred by the score of guessing; with the later table of such scores.
FIELDS = ("accuracy", "centred", "centred_later")
#: Of a suite beside its mean: the mean with the later table of guessing scores.
MEANS = ("later",)
