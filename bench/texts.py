"""Input of any size: schemas and queries made from a number, the same every time."""

from __future__ import annotations

from collections.abc import Iterator

LINES_PER_NODE = 12
_NODE = """\
node Kind{n} implements Named {{
    code: String @key
    size: I64? @index
    weight: F64?
    state: enum(draft, open, closed) @default(draft)
    tags: [String]?
    since: Date?
    changed: DateTime? @description("When kind {n} was touched last")
    @range(weight, 0.0..1000.0)
    @check(code, "^K{n}-[0-9]+$")
}}
edge Link{n}: Kind{n} -> Kind{m} @card(0..8) {{ weight: F32?  @unique(src, dst) }}
"""


def schema_text(lines: int) -> str:
    """A schema of exactly this many lines, at least 4: one interface, then nodes in a ring."""
    head = ["interface Named {", "    name: String @index", "}", ""]
    count = max(1, (lines - len(head)) // LINES_PER_NODE)
    body = [
        line for n in range(count) for line in _NODE.format(n=n, m=(n + 1) % count).splitlines()
    ]
    text = (head + body)[:lines] if lines <= len(head) else head + body
    return "\n".join([*text, *["// padding"] * (lines - len(text))]) + "\n"


def query_texts(count: int) -> Iterator[str]:
    """Queries of ten lines, no two alike, for the schema of `schema_text` with 5 kinds or more.

    Names, constants and the shape differ, so that nothing can be remembered from one to the next.
    """
    for n in range(count):
        kind, other = n % 4, n % 4 + 1
        comparison = ("<", "<=", ">", ">=")[n % 4]
        yield f"""\
query find_{n}($code: String, $least: I64, $day: Date?) {{
    match {{
        $a: Kind{kind} {{ code: $code, state: "open" }}
        $a $link:link{kind} $b
        $b.size {comparison} $least
        not {{ $b link{other} $c  $c.since < $day }}
    }}
    return {{ $b.name as name_{n}, count($a) as links, avg($link.weight) as weight }}
    order {{ links desc, name_{n} }} limit {n % 90 + 10}
}}
"""
