"""Compiles a bundle to Cedar and evaluates requests with it.

The Cedar schema is constant. A rule is compiled to one `permit` per action, with its id in an
annotation. Texts, entities and schema are parsed once per bundle; requests are passed to Cedar as
data, so nothing has to be escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, cast

from omnigraph.errors import (
    InputError,
    InternalError,
    PolicyEvaluationFailed,
    install_command,
)
from omnigraph.model.records import dataclass
from omnigraph.policy.bundle import (
    TYPED_ACTIONS,
    BranchProtection,
    Bundle,
    PolicyRule,
)
from omnigraph.policy.identity import Action, Identity

if TYPE_CHECKING:
    import cedarpy

NAMESPACE = "Omnigraph"
SERVER_ID = "root"

_GRAPH_ACTIONS = ", ".join(
    action for action in Action if action.kind == "graph" and action not in TYPED_ACTIONS
)
_TYPED_ACTIONS = ", ".join(sorted(TYPED_ACTIONS))
_SERVER_ACTIONS = ", ".join(action for action in Action if action.kind == "server")

SCHEMA = f"""
namespace {NAMESPACE} {{
  type RequestContext = {{
    has_branch: Bool,
    has_target_branch: Bool,
    branch_is_protected: Bool,
    target_branch_is_protected: Bool,
    branch: String,
    target_branch: String,
  }};
  entity Group;
  entity Actor in [Group];
  entity Graph;
  entity Server;
  entity Type in [Graph];
  entity Property in [Type];
  action {_TYPED_ACTIONS} appliesTo {{
    principal: Actor, resource: [Graph, Type, Property], context: RequestContext
  }};
  action {_GRAPH_ACTIONS} appliesTo {{
    principal: Actor, resource: Graph, context: RequestContext
  }};
  action {_SERVER_ACTIONS} appliesTo {{
    principal: Actor, resource: Server, context: RequestContext
  }};
}}
"""

_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\0": "\\0",
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
}


@dataclass(frozen=True, slots=True)
class Uid:
    """The id of a Cedar entity: its type, without the namespace, and its name."""

    type: str
    id: str

    def to_json(self) -> dict[str, str]:
        """The JSON form, for requests and entities."""
        return {"type": f"{NAMESPACE}::{self.type}", "id": self.id}

    def to_text(self) -> str:
        """The text form, for policies."""
        return f"{NAMESPACE}::{self.type}::{literal(self.id)}"


class CedarPolicies:
    """The compiled rules of one bundle. Thread-safe.

    They apply to the server, or to one graph. Raises `InputError` if Cedar is not installed.
    """

    def __init__(self, bundle: Bundle, graph: str) -> None:
        cedar = _cedar()
        is_server = bundle.kind == "server"
        self.resource = Uid("Server", SERVER_ID) if is_server else Uid("Graph", graph)
        text = "\n".join(_permits(bundle.rules, self.resource))
        self._bundle = bundle
        self._entities = lru_cache(ENTITIES_KEPT_MAX)(self._make_entities)
        try:
            self._schema = _schema()
            self._policies = cedar.PolicySet.from_str(text)
            findings = cedar.validate_policies(text, self._schema).errors
        except ValueError as problem:
            raise _not_compiled(bundle, str(problem)) from problem
        if findings:
            raise _not_compiled(bundle, str(findings[0]))

    def matching_rules(
        self,
        actor: str,
        action: str,
        context: Mapping[str, Any],
        *,
        groups: frozenset[str] | None = None,
        on: TypeResource | None = None,
    ) -> list[str]:
        """The sorted ids of the rules that allow a request; empty if it is denied.

        ``groups`` are those of the actor, by default those that list its id. ``on`` is a type or a
        property; by default the resource is the graph or the server. Raises
        `PolicyEvaluationFailed` if Cedar fails or does not decide.
        """
        if groups is None:
            groups = self._bundle.groups_of(Identity(actor))
        resource = self.resource if on is None else on.uid
        request = {
            "principal": Uid("Actor", actor).to_json(),
            "action": Uid("Action", action).to_json(),
            "resource": resource.to_json(),
            "context": context,
        }
        cedar = _cedar()
        try:
            entities = self._entities(actor, groups, on)
            answer = cedar.is_authorized(request, self._policies, entities, self._schema)
            decision, errors = answer.decision, answer.diagnostics.errors
            names = answer.diagnostics.id_annotations_by_reason
            rules = sorted(
                {names[reason].rpartition(":")[0] for reason in answer.diagnostics.reasons}
            )
        except Exception as problem:  # a failure is no decision, not a denial
            raise _no_answer(actor, action, repr(problem)) from problem
        if errors or decision is cedar.Decision.NoDecision:
            raise _no_answer(actor, action, "; ".join(errors) or "no decision")
        if (decision is cedar.Decision.Allow) != bool(rules):
            raise _no_answer(actor, action, f"{decision.value} by {len(rules)} rules")
        return rules

    def _make_entities(
        self, actor: str, groups: frozenset[str], on: TypeResource | None
    ) -> cedarpy.Entities:
        known = [_entity(Uid("Group", group)) for group in self._bundle.groups]
        known.append(
            _entity(Uid("Actor", actor), [Uid("Group", group) for group in sorted(groups)])
        )
        known.append(_entity(self.resource))
        if on is not None:
            known.append(_entity(on.type_uid, [self.resource]))
            if on.property_name is not None:
                known.append(_entity(on.uid, [on.type_uid]))
        entities = _cedar().Entities.from_json_str(json.dumps(known), self._schema)
        return cast("cedarpy.Entities", entities)


ENTITIES_KEPT_MAX = 1024
"""Actors whose parsed entities are cached."""


@dataclass(frozen=True, slots=True)
class TypeResource:
    """A type of a graph, or a property of one, as a Cedar resource."""

    type_name: str
    property_name: str | None = None

    @property
    def type_uid(self) -> Uid:
        """The id of the type."""
        return Uid("Type", self.type_name)

    @property
    def uid(self) -> Uid:
        """The id of the type or property."""
        if self.property_name is None:
            return self.type_uid
        return Uid("Property", f"{self.type_name}.{self.property_name}")


def literal(text: str) -> str:
    r"""A text as Cedar writes it.

    >>> print(literal('a "b"\x7f é'))
    "a \"b\"\u{7f} é"
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    is_control = character < " " or "\x7f" <= character <= "\x9f"
    return f"\\u{{{ord(character):x}}}" if is_control else character


def _permits(rules: tuple[PolicyRule, ...], resource: Uid) -> Iterator[str]:
    for rule in rules:
        for action in rule.actions:
            condition = _condition(rule)
            when = f" when {{ {condition} }}" if condition is not None else ""
            for scope in _resources(rule, action, resource):
                yield (
                    f"@id({literal(f'{rule.id}:{action}')})\n"
                    f"permit (\n"
                    f"  principal in {Uid('Group', rule.group).to_text()},\n"
                    f"  action == {Uid('Action', action).to_text()},\n"
                    f"  resource {scope}\n"
                    f"){when};\n"
                )


def _resources(rule: PolicyRule, action: Action, resource: Uid) -> Iterator[str]:
    """The resources of a rule: the graph with all types, or the graph and some types."""
    if rule.types is None:
        yield f"{'in' if action in TYPED_ACTIONS else '=='} {resource.to_text()}"
        return
    yield f"== {resource.to_text()}"
    for grant in rule.types:
        named = TypeResource(grant.type_name)
        if grant.properties is None:
            yield f"in {named.uid.to_text()}"
            continue
        yield f"== {named.uid.to_text()}"
        for name in grant.properties:
            yield f"== {TypeResource(grant.type_name, name).uid.to_text()}"


def _condition(rule: PolicyRule) -> str | None:
    if rule.branches:
        branch = "target_branch" if rule.is_about_target else "branch"
        tests = [_branch_test(f"context.{branch}", name) for name in rule.branches]
        return f"context.has_{branch} && ({' || '.join(tests)})"
    if rule.branch_scope is not None:
        scope, branch = rule.branch_scope, "branch"
    elif rule.target_branch_scope is not None:
        scope, branch = rule.target_branch_scope, "target_branch"
    else:
        return None
    match scope:
        case BranchProtection.ANY:
            return "true"
        case BranchProtection.PROTECTED:
            return f"context.has_{branch} && context.{branch}_is_protected"
        case BranchProtection.UNPROTECTED:
            return f"context.has_{branch} && context.{branch}_is_protected == false"


def _branch_test(branch: str, name: str) -> str:
    if not name.endswith("/*"):
        return f"{branch} == {literal(name)}"
    # In a Cedar pattern `*` matches any text; a literal star is escaped with a backslash.
    pattern = literal(name.removesuffix("*"))[1:-1].replace("*", "\\*")
    return f'{branch} like "{pattern}*"'


def _entity(uid: Uid, parents: list[Uid] | None = None) -> dict[str, Any]:
    return {
        "uid": uid.to_json(),
        "attrs": {},
        "parents": [parent.to_json() for parent in parents or []],
    }


@cache
def _schema() -> cedarpy.Schema:
    schema: cedarpy.Schema = _cedar().Schema.from_str(SCHEMA)
    return schema


def _cedar() -> Any:
    try:
        import cedarpy
    except ImportError:
        raise InputError(
            "policies need Cedar, which is not installed", hint=install_command("policy")
        ) from None
    return cedarpy


def _no_answer(actor: str, action: str, problem: str) -> PolicyEvaluationFailed:
    return PolicyEvaluationFailed(
        f"the policy cannot tell whether actor `{actor}` may `{action}`: {problem}",
        hint="this is a bug; please report it with the bundle",
    )


def _not_compiled(bundle: Bundle, problem: str) -> InternalError:
    return InternalError(
        f"the bundle {bundle.name} is valid, but Cedar refuses it: {problem}",
        hint="this is a bug; please report it with the bundle",
    )
