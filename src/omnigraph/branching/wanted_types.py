"""Which types the names in a filter mean, today and in the past."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.branching.moments import types_of
from omnigraph.commit.schema_change import identity_of
from omnigraph.errors import NotFound
from omnigraph.model.changes import ChangeFilter
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.manifest_rows import TableIdentity
from omnigraph.syntax.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class WantedTypes:
    """The types of a filter, under whatever names they had or will have.

    A name means the type that has it today, and if there is none, the last one that had it.
    """

    wanted: ChangeFilter
    identities: frozenset[TableIdentity] = frozenset()
    """Of the types that are named; of no meaning if none is."""

    @classmethod
    def of(cls, wanted: ChangeFilter, catalogs: Iterable[Catalog]) -> WantedTypes:
        """The types of a filter, looked up in the newest of ``catalogs`` that has them.

        They come newest first, and are asked for only as far as names are not known yet. Raises
        `NotFound` for a name that none of them has.
        """
        missing, named = set(wanted.types), set[TableIdentity]()
        known: list[str] = []
        if missing:
            for catalog in catalogs:
                known = known or sorted({type.name for type in types_of(catalog)})
                found = [type for type in types_of(catalog) if type.name in missing]
                named |= {identity_of(type) for type in found}
                missing -= {type.name for type in found}
                if not missing:
                    break
        for name in sorted(missing):
            raise NotFound(
                f"there is no type '{name}'",
                hint=did_you_mean(name, known) or f"the types are {', '.join(known)}",
                details={"type": name},
            )
        return cls(wanted, frozenset(named))

    def wants(self, type: NodeType | EdgeType) -> bool:
        """Whether changes of a type, of today or of the past, are wanted."""
        kinds = self.wanted.kinds
        if kinds and ("edge" if isinstance(type, EdgeType) else "node") not in kinds:
            return False
        return not self.wanted.types or identity_of(type) in self.identities
