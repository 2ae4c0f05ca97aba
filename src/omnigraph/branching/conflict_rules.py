"""Who wins where both sides of a merge changed one entity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from omnigraph.errors import InputError, NotFound
from omnigraph.model.merging import ConflictPolicy, MergeGranularity
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax.suggest import did_you_mean

POLICIES: tuple[str, ...] = get_args(ConflictPolicy)
GRANULARITIES: tuple[str, ...] = get_args(MergeGranularity)


@dataclass(frozen=True)
class ConflictRules:
    """Who wins where both sides changed one entity."""

    on_conflict: ConflictPolicy = "fail"
    of_types: Mapping[str, ConflictPolicy] = field(default_factory=dict)
    """By type name, instead of ``on_conflict``."""
    granularity: MergeGranularity = "entity"

    def check(self, catalog: Catalog) -> None:
        """Refuse words that mean nothing, and types there are not."""
        for word, allowed in (
            (self.on_conflict, POLICIES),
            *((each, POLICIES) for each in self.of_types.values()),
            (self.granularity, GRANULARITIES),
        ):
            if word not in allowed:
                hint = did_you_mean(word, allowed) or f"it is one of {', '.join(allowed)}"
                raise InputError(f"a merge knows no `{word}`", hint=hint)
        known = sorted({*catalog.nodes, *catalog.edges})
        for name in self.of_types:
            if name not in known:
                hint = did_you_mean(name, known) or f"the types are {', '.join(known)}"
                raise NotFound(f"there is no type '{name}'", hint=hint, details={"type": name})

    def policy(self, type_name: str) -> ConflictPolicy:
        """The rule for one type."""
        return self.of_types.get(type_name, self.on_conflict)
