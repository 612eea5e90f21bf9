"""Questions that a paper leaves open: the default that is taken, its evidence, and the variants that show what it is worth."""

from __future__ import annotations

from typing import Any, Literal

from respath.config.request import Overrides
from respath.spec.document import Document


class Arm(Document):
    """Another answer: a variant, with what else differs in its run."""

    variant: str
    size: str | None = None
    recipe: Overrides = {}
    data: dict[str, Any] = {}

    def text(self) -> str:
        """One line for people."""
        return ", ".join(f"{key} {value}" for key, value in self.model_dump(exclude_defaults=True).items())


class Decision(Document):
    """One entry of decisions.yaml."""

    id: str
    question: str
    default: str
    default_arm: str | None
    """The variant that the default is; null where no variant differs."""
    evidence: str
    arms: tuple[str | Arm, ...]
    status: Literal["default taken", "open"]

    def variants(self) -> tuple[str, ...]:
        """Every variant that the entry names."""
        arms = (arm if isinstance(arm, str) else arm.variant for arm in self.arms)
        return (*([self.default_arm] if self.default_arm else []), *arms)
