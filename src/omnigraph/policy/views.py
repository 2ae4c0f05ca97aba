"""Views of actors by the rules of a bundle, decided by Cedar once per actor and schema.

Grants of several rules are combined. If two rules grant different properties of a type on different
rows, the combination as one set of properties and one of rows would grant too much, so a bundle in
which both may apply to one actor is refused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NoReturn

from omnigraph.errors import CompileError, PolicyInvalid
from omnigraph.model.records import dataclass
from omnigraph.model.types import RecordsType, Scalar, ValueType
from omnigraph.policy.bundle import Bundle, PolicyRule, TypeGrant, fail_condition
from omnigraph.policy.cedar import CedarPolicies, TypeResource
from omnigraph.policy.identity import Action, Identity
from omnigraph.strict_yaml import Node
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog, TableType
    from omnigraph.views import RowGrant, TypeRights, View

VIEWS_KEPT_MAX = 1024

_TEXT = ValueType(Scalar.STRING)
_TEXTS = ValueType(Scalar.STRING, is_list=True)
_OF_CLAIMS = (_TEXT, ValueType(Scalar.I64), ValueType(Scalar.F64), ValueType(Scalar.BOOL), _TEXTS)
"""Supported types of claims: a condition is valid if it compiles for one of them."""

_CLAIMS_MAX = 4
"""The maximum number of claims in one condition."""


class Views:
    """The views of one bundle. Thread-safe."""

    def __init__(self, bundle: Bundle, cedar: CedarPolicies) -> None:
        self._bundle = bundle
        self._cedar = cedar
        self._rules = {rule.id: rule for rule in bundle.rules}
        self._known: OrderedDict[tuple[object, ...], View] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, identity: Identity, action: Action, context: Mapping[str, Any], catalog: Catalog
    ) -> View | None:
        """The view of an actor for an action; None for everything."""
        groups = self._bundle.groups_of(identity)
        rules = self._cedar.matching_rules(identity.id, action.value, context, groups=groups)
        if any(self._rules[rule].types is None for rule in rules):
            return None
        key = (identity, action, tuple(rules), catalog.schema_hash)
        known = self._known.get(key)
        if known is None:
            known = self._decided(identity, groups, action, context, catalog)
            with self._lock:
                self._known[key] = known
                if len(self._known) > VIEWS_KEPT_MAX:
                    self._known.popitem(last=False)
        return known

    def _decided(
        self,
        identity: Identity,
        groups: frozenset[str],
        action: Action,
        context: Mapping[str, Any],
        catalog: Catalog,
    ) -> View:
        from omnigraph.views import View

        def rules_on(resource: TypeResource) -> list[str]:
            return self._cedar.matching_rules(
                identity.id, action.value, context, groups=groups, on=resource
            )

        who = _Viewer(identity, groups, catalog)
        rights = {}
        for type in catalog.types:
            granted = rules_on(TypeResource(type.name))
            if not granted:
                continue
            properties = {name: rules_on(TypeResource(type.name, name)) for name in type.properties}
            found = [self._rights(rule, type, properties, who) for rule in granted]
            added = _combined([each for each in found if each is not None])
            if added is not None:
                rights[type.name] = added
        return View.of(catalog, rights)

    def _rights(
        self,
        rule_id: str,
        type: TableType,
        properties: Mapping[str, list[str]],
        who: _Viewer,
    ) -> TypeRights | None:
        """The grant of one rule on a type; None if it cannot be shown."""
        from omnigraph.views import TypeRights

        grant = _grant_of(self._rules[rule_id], type.name)
        shown = frozenset(name for name, rules in properties.items() if rule_id in rules)
        if missing_key(type, shown) is not None:
            return None  # the branch's schema is not the one the bundle was checked with
        names = None if shown == type.properties.keys() else shown
        rows = None
        if grant.where is not None:
            compiled = _compiled(rule_id, grant.where, type, who)
            rows = () if compiled is None else (compiled,)
        return TypeRights((rule_id,), names, rows)

    # --- checking ---------------------------------------------------------------------------------

    def check_names(self, catalog: Catalog) -> None:
        """Raise `PolicyInvalid` for unknown types and properties, and invalid conditions."""
        for rule in self._bundle.rules:
            for grant in rule.types or ():
                _check_grant(rule, grant, catalog)
        self._check_sums(catalog)

    def _check_sums(self, catalog: Catalog) -> None:
        typed = [rule for rule in self._bundle.rules if rule.types is not None]
        for one, other in combinations(typed, 2):
            if not set(one.actions) & set(other.actions) or not self._may_share_actor(one, other):
                continue
            for grant in one.types or ():
                for second in other.types or ():
                    if grant.type_name == second.type_name and not _can_combine(grant, second):
                        _fail(
                            second.places["type"],
                            f"rules `{one.id}` and `{other.id}` grant different properties of "
                            f"{grant.type_name} on different rows, and one actor may have both",
                            "grant the same properties, or the same rows, or keep the groups apart",
                        )

    def _may_share_actor(self, one: PolicyRule, other: PolicyRule) -> bool:
        """Whether an actor may be in the groups of both rules."""
        if one.group == other.group or {one.group, other.group} & self._bundle.claim_groups.keys():
            return True
        members = self._bundle.groups
        return bool(set(members[one.group]) & set(members[other.group]))


@dataclass(frozen=True, slots=True)
class _Viewer:
    """The actor and schema of a view."""

    identity: Identity
    groups: frozenset[str]
    catalog: Catalog


# --- combining grants -----------------------------------------------------------------------------


def _combined(rights: list[TypeRights]) -> TypeRights | None:
    """The combined grant of several rules on one type; None if there is none."""
    from omnigraph.views import TypeRights

    rights = [one for one in rights if not _is_within_another(one, rights)]
    if not rights:
        return None
    rules = tuple(sorted({rule for each in rights for rule in each.rules}))
    if len({_conditions(each) for each in rights}) == 1:
        shown = [each.properties for each in rights]
        properties = None if None in shown else frozenset().union(*filter(None, shown))
        return TypeRights(rules, properties, rights[0].rows)
    # The rows differ. In a checked bundle the properties are equal; otherwise the intersection is
    # safe.
    properties = None
    for each in rights:
        if each.properties is not None:
            properties = each.properties if properties is None else properties & each.properties
    if any(each.rows is None for each in rights):
        return TypeRights(rules, properties, None)
    rows = {row.text: row for each in rights for row in each.rows or ()}
    return TypeRights(rules, properties, tuple(rows.values()))


def _is_within_another(one: TypeRights, rights: list[TypeRights]) -> bool:
    """Whether another grant includes this one, and they are not equal."""
    for other in rights:
        if other is one:
            continue
        rows = other.rows is None or _conditions(one) == _conditions(other) or one.rows == ()
        names = other.properties is None or (
            one.properties is not None and one.properties <= other.properties
        )
        is_same = one.properties == other.properties and _conditions(one) == _conditions(other)
        if rows and names and not is_same:
            return True
    return False


def _conditions(rights: TypeRights) -> tuple[str, ...] | None:
    return None if rights.rows is None else tuple(row.text for row in rights.rows)


def _can_combine(one: TypeGrant, other: TypeGrant) -> bool:
    if one.where == other.where or _as_set(one.properties) == _as_set(other.properties):
        return True
    return any(
        big.where is None
        and (
            big.properties is None
            or (small.properties is not None and set(small.properties) <= set(big.properties))
        )
        for big, small in ((one, other), (other, one))
    )


def _as_set(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _grant_of(rule: PolicyRule, type_name: str) -> TypeGrant:
    return next(grant for grant in rule.types or () if grant.type_name == type_name)


# --- names ----------------------------------------------------------------------------------------


def missing_key(type: TableType, shown: frozenset[str]) -> str | None:
    """A hidden property of the key, whose value ids would reveal."""
    key = getattr(type, "key", ())
    return next((name for name in key if name not in shown), None)


def _check_grant(rule: PolicyRule, grant: TypeGrant, catalog: Catalog) -> None:
    type = catalog.nodes.get(grant.type_name) or catalog.edges.get(grant.type_name)
    whose = f"rule `{rule.id}`: "
    if type is None:
        known = [*catalog.nodes, *catalog.edges]
        hint = did_you_mean(grant.type_name, known)
        if grant.type_name in catalog.interfaces:
            hint = "it is an interface: name the types that implement it"
        _fail(grant.places["type"], f"{whose}there is no type `{grant.type_name}`", hint)
    for name in grant.properties or ():
        if name not in type.properties:
            _fail(
                grant.places[f"property {name}"],
                f"{whose}{type.name} has no property `{name}`",
                did_you_mean(name, type.properties),
            )
    if grant.properties is not None:
        hidden = missing_key(type, frozenset(grant.properties))
        if hidden is not None:
            _fail(
                grant.places["type"],
                f"{whose}`properties` of {type.name} leaves out `{hidden}`, which is its key: ids "
                "show its value",
                f"add `{hidden}`",
            )
    if grant.where is not None:
        _check_condition(rule, grant, type, catalog)


def _check_condition(rule: PolicyRule, grant: TypeGrant, type: TableType, catalog: Catalog) -> None:
    from omnigraph.query.compile import compile_condition

    assert grant.where is not None
    claims = _claims_of(grant.where)
    place = grant.places["where"]
    if len(claims) > _CLAIMS_MAX:
        _fail(place, f"rule `{rule.id}`: `where` reads more than {_CLAIMS_MAX} claims", None)
    problem: CompileError | None = None
    for types in product(_OF_CLAIMS, repeat=len(claims)):
        fields = (*_FIELDS, *zip(claims, types, strict=True))
        try:
            compile_condition(grant.where, type, catalog, RecordsType(fields))
        except CompileError as found:
            problem = problem or found
        else:
            return
    assert problem is not None
    fail_condition(place, rule.id, problem)


_FIELDS = (("id", _TEXT), ("groups", _TEXTS))
"""The fields that every actor has."""


def _claims_of(where: str) -> tuple[str, ...]:
    """The names of the claims that a condition reads."""
    from omnigraph.query.plan import parts_of
    from omnigraph.syntax.query_parser import parse_condition

    known = dict(_FIELDS)
    names = {
        node.name
        for node in parts_of(parse_condition(where)[1])
        if isinstance(node, ast.PropertyRef) and node.variable.name == "actor"
    }
    return tuple(sorted(names - known.keys()))


def _compiled(rule_id: str, where: str, type: TableType, who: _Viewer) -> RowGrant | None:
    """A condition with the values of an actor; None if it never holds for the actor.

    That is so if the actor lacks a claim that it reads, or if the claim has another type.
    """
    from omnigraph.query.compile import compile_condition
    from omnigraph.views import RowGrant

    values: dict[str, object] = {"id": who.identity.id, "groups": sorted(who.groups)}
    fields = dict(_FIELDS)
    for name in _claims_of(where):
        claim = who.identity.claim(name)
        if claim is None:
            return None
        values[name] = list(claim) if isinstance(claim, tuple) else claim
        fields[name] = _type_of(claim)
    try:
        predicate = compile_condition(where, type, who.catalog, RecordsType(tuple(fields.items())))
    except CompileError:
        return None
    parameters = {f"actor.{name}": value for name, value in values.items()}
    return RowGrant(rule_id, where, predicate, parameters)


def _type_of(claim: object) -> ValueType:
    match claim:
        case bool():
            return ValueType(Scalar.BOOL)
        case int():
            return ValueType(Scalar.I64)
        case float():
            return ValueType(Scalar.F64)
        case str():
            return _TEXT
    return _TEXTS


def _fail(place: str, problem: str, hint: str | None) -> NoReturn:
    Node("", place, "", PolicyInvalid).fail(problem, hint=hint)
