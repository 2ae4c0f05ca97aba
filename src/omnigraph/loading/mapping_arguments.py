"""The arguments `map`, `where` and `csv` of a load: the `TableMapping` of each of its tables.

Each entry may begin with its scope, a type or a file, and a colon: `Person:Full Name=name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from omnigraph.errors import InputError
from omnigraph.loading.map_expressions import ColumnRef, parse_expression
from omnigraph.loading.mapping import Condition, MappedColumn, TableMapping, cell_text
from omnigraph.loading.records.problems import name_hint
from omnigraph.loading.sources import FileSource
from omnigraph.model.ids import TableKey
from omnigraph.model.load_options import MappingArguments
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, TableType


@dataclass(slots=True)
class _Parts:
    """The entries of one scope: a type, a file, or all tables."""

    columns: list[MappedColumn] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    delimiter: str | None = None
    list_separator: str | None = None


class Mappings:
    """The mapping of each source: that of its file, else that of its type.

    Entries without a scope apply to the only table of the load; CSV options without one, to all
    tables.
    """

    def __init__(
        self,
        given: MappingArguments,
        tables: Sequence[tuple[str, str | None]],
        catalog: Catalog | None,
        *,
        has_records: bool = False,
    ) -> None:
        """``tables`` are table keys with the paths of files, None for frames.

        ``has_records``: graph records are loaded too, of any type of the ``catalog``.

        Raises `InputError` for arguments that cannot be read or concern no table.
        """
        self._scopes: dict[str, set[str]] = {}
        for key, path in tables:
            name = TableKey(key).type_name
            for scope in (name, key, *(() if path is None else (path,))):
                self._scopes.setdefault(scope, set()).add(key)
        self._record_types: dict[str, TableType] = {}
        for each in catalog.types if catalog is not None and has_records else ():
            self._record_types.setdefault(each.name, each)
            self._record_types[each.table_key] = each
        self._keys = {key for key, _ in tables}
        self._parts: dict[str | None, _Parts] = {}
        for scope, left, right in self._entries("map", given.map, split_last=True):
            self._parts_of(scope).columns.append(
                MappedColumn(left, parse_expression(left), right.strip() or None)
            )
        for scope, left, right in self._entries("where", given.where, split_last=False):
            column = parse_expression(left.removesuffix("!"))
            if not isinstance(column, ColumnRef):
                raise InputError(
                    f"`where` compares a column, not '{left}'",
                    hint='write it as "type=city", or "type!=city"',
                )
            is_negated = left.endswith("!")
            self._parts_of(scope).where.append(Condition(column, right or None, is_negated))
        for scope, text in self._texts("delimiter", given.csv.delimiter):
            self._parts_of(scope).delimiter = _delimiter(text)
        for scope, text in self._texts("list_separator", given.csv.list_separator):
            if not text:
                raise InputError("the list separator is empty", hint="leave it out for JSON arrays")
            self._parts_of(scope).list_separator = text

    def of(self, table_key: str, path: str | None = None) -> TableMapping:
        """The mapping of a source."""
        scopes = (path, table_key, TableKey(table_key).type_name, None)
        parts = [self._parts[scope] for scope in scopes if scope in self._parts]
        return TableMapping(
            next((tuple(each.columns) for each in parts if each.columns), ()),
            next((tuple(each.where) for each in parts if each.where), ()),
            next((each.delimiter for each in parts if each.delimiter), None),
            next((each.list_separator for each in parts if each.list_separator), None),
        )

    def applied(self, source: FileSource) -> FileSource:
        """The file with its mapping; files of graph records get none."""
        if source.table_key is None:
            return source
        return replace(source, mapping=self.of(source.table_key, source.path))

    def of_records(self) -> dict[str, TableMapping]:
        """By table key: the mapping of `data` of graph records, for types that no table has."""
        found: dict[str, TableMapping] = {}
        for scope, type in self._record_types.items():
            if scope in self._parts and scope not in self._scopes:
                mapping = TableMapping(tuple(self._parts[scope].columns))
                found[type.table_key] = mapping.checked(type, "graph records", of_records=True)
        return found

    def _parts_of(self, scope: str | None) -> _Parts:
        return self._parts.setdefault(scope, _Parts())

    def _entries(
        self, argument: str, given: Any, *, split_last: bool
    ) -> Iterable[tuple[str | None, str, str]]:
        """Scope, left and right side of each entry."""
        if given is None:
            return
        if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
            raise InputError(
                f"`{argument}` takes a mapping or a list, not {type(given).__name__}",
                hint=_EXAMPLES[argument],
            )
        if isinstance(given, Mapping):
            for name, value in given.items():
                scope, inner = (
                    (name, value) if isinstance(value, Mapping) else (None, {name: value})
                )
                self._check_scope(argument, scope)
                for left, right in inner.items():
                    yield scope, self._side(argument, left), self._side(argument, right)
            return
        for text in given:
            scope, rest = self._split_scope(self._side(argument, text))
            self._check_scope(argument, scope)
            left, mark, right = _sides(rest, split_last=split_last)
            if not mark:
                raise InputError(
                    f"`{argument}` takes a column and what it is, not '{text}'",
                    hint=_EXAMPLES[argument],
                )
            yield scope, left, right

    def _side(self, argument: str, value: Any) -> str:
        if argument == "map" and not isinstance(value, str | None.__class__):
            raise InputError(f"`map` has {value!r}, which is no name", hint=_EXAMPLES["map"])
        return cell_text(value) or ""

    def _texts(self, argument: str, given: Any) -> Iterable[tuple[str | None, str]]:
        """Scope and text of a CSV option."""
        if given is None:
            return
        if isinstance(given, Mapping):
            pairs: list[tuple[str | None, str]] = list(given.items())
        else:
            pairs = [
                self._split_scope(each) for each in ([given] if isinstance(given, str) else given)
            ]
        for scope, text in pairs:
            if scope is not None:
                self._check_scope(argument, scope)
            yield scope, text

    def _split_scope(self, text: str) -> tuple[str | None, str]:
        """`Person:Full Name=name` as `Person` and the rest; the longest known scope wins."""
        known = [
            each for each in (*self._scopes, *self._record_types) if text.startswith(f"{each}:")
        ]
        if not known:
            return None, text
        scope = max(known, key=len)
        return scope, text[len(scope) + 1 :]

    def _check_scope(self, argument: str, scope: str | None) -> None:
        if scope is None:
            if len(self._keys) == 1:
                return
            raise InputError(
                f"`{argument}` does not say of which table"
                if self._keys
                else f"`{argument}` does not say of which type",
                hint=f"write {_SCOPED[argument]}",
            )
        if scope in self._scopes or (argument == "map" and scope in self._record_types):
            return
        known = [*self._scopes, *(self._record_types if argument == "map" else ())]
        raise InputError(
            f"`{argument}` names '{scope}', of which nothing is loaded",
            hint=name_hint(scope, known, "tables of this load"),
        )


_EXAMPLES = {
    "map": '`--map "Full Name=name"`, in Python map={"Person": {"Full Name": "name"}}',
    "where": '`--where type=city` or `type!=city`, in Python where={"City": {"type": "city"}}',
}
_SCOPED = {
    "map": '`--map "Person:Full Name=name"`, in Python map={"Person": {"Full Name": "name"}}',
    "where": '`--where City:type=city`, in Python where={"City": {"type": "city"}}',
}


def _sides(text: str, *, split_last: bool) -> tuple[str, str, str]:
    """The two sides of the last or the first `=`; the first may be in backticks."""
    if split_last:
        return text.rpartition("=")
    start = text.find("`", 1) + 1 if text.startswith("`") else 0
    left, mark, right = text[start:].partition("=")
    return text[:start] + left, mark, right


def _delimiter(text: str) -> str:
    text = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(text) != 1 or not text.isascii() or text.isalnum() or text in '"\r\n\0':
        raise InputError(
            f"a delimiter is one character between cells, not {text!r}",
            hint="such as , or ; or | or \\t",
        )
    return text
