"""Compiles a bundle to Cedar and evaluates requests with it.

The schema is a constant of the product. A rule becomes one `permit` for each of its actions, with
its id in an annotation. Texts, entities and schema are parsed once per bundle; a request goes to
Cedar as data, never as text that would have to be escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InputError, InternalError, PolicyEvaluationFailed
from omnigraph.policy.bundle import Action, BranchProtection, Bundle, PolicyRule

if TYPE_CHECKING:
    import cedarpy

NAMESPACE = "Omnigraph"
SERVER_ID = "root"

_GRAPH_ACTIONS = ", ".join(action for action in Action if action.kind == "graph")
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
        """The form of requests and entities."""
        return {"type": f"{NAMESPACE}::{self.type}", "id": self.id}

    def to_text(self) -> str:
        """The form of policy texts."""
        return f"{NAMESPACE}::{self.type}::{literal(self.id)}"


class CedarPolicies:
    """The compiled rules of one bundle. Safe to share between threads.

    They apply to the server, or to the one graph they are compiled for. Raises `InputError` when
    Cedar is not installed.
    """

    def __init__(self, bundle: Bundle, graph: str) -> None:
        cedar = _cedar()
        is_server = bundle.kind == "server"
        self.resource = Uid("Server", SERVER_ID) if is_server else Uid("Graph", graph)
        text = "\n".join(_permits(bundle.rules, self.resource))
        try:
            self._schema = _schema()
            self._policies = cedar.PolicySet.from_str(text)
            entities = json.dumps(list(_entities(bundle, self.resource)))
            self._entities = cedar.Entities.from_json_str(entities, self._schema)
            findings = cedar.validate_policies(text, self._schema).errors
        except ValueError as problem:
            raise _not_compiled(bundle, str(problem)) from problem
        if findings:
            raise _not_compiled(bundle, str(findings[0]))

    def matching_rules(self, actor: str, action: str, context: Mapping[str, Any]) -> list[str]:
        """The ids of the rules that allow it, sorted; none if it is denied.

        Raises `PolicyEvaluationFailed` when Cedar fails or does not decide.
        """
        request = {
            "principal": Uid("Actor", actor).to_json(),
            "action": Uid("Action", action).to_json(),
            "resource": self.resource.to_json(),
            "context": context,
        }
        cedar = _cedar()
        try:
            answer = cedar.is_authorized(request, self._policies, self._entities, self._schema)
            decision, errors = answer.decision, answer.diagnostics.errors
            names = answer.diagnostics.id_annotations_by_reason
            rules = sorted(
                names[reason].rpartition(":")[0] for reason in answer.diagnostics.reasons
            )
        except Exception as problem:  # any failure means no decision, not a denial
            raise _no_answer(actor, action, repr(problem)) from problem
        if errors or decision is cedar.Decision.NoDecision:
            raise _no_answer(actor, action, "; ".join(errors) or "no decision")
        if (decision is cedar.Decision.Allow) != bool(rules):
            raise _no_answer(actor, action, f"{decision.value} by {len(rules)} rules")
        return rules


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
            yield (
                f"@id({literal(f'{rule.id}:{action}')})\n"
                f"permit (\n"
                f"  principal in {Uid('Group', rule.group).to_text()},\n"
                f"  action == {Uid('Action', action).to_text()},\n"
                f"  resource == {resource.to_text()}\n"
                f"){when};\n"
            )


def _condition(rule: PolicyRule) -> str | None:
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


def _entities(bundle: Bundle, resource: Uid) -> Iterator[dict[str, Any]]:
    parents: dict[str, list[Uid]] = {}
    for group, members in bundle.groups.items():
        yield _entity(Uid("Group", group))
        for actor in dict.fromkeys(members):
            parents.setdefault(actor, []).append(Uid("Group", group))
    for actor, groups in parents.items():
        yield _entity(Uid("Actor", actor), groups)
    yield _entity(resource)


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
            "policies need Cedar, which is not installed", hint="pip install 'omnigraph[policy]'"
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
