"""A scripted client, with no model behind it, finds its way by what it reads, and works on a graph.

It knows the protocol and the forms of the texts it is given, and nothing of the graph: types,
queries and branches come from resources. The session is kept in `session.md`, without ids, so that
a change of what a model sees is seen in review.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, TextContent, TextResourceContents

from omnigraph.graph import Graph, open_graph
from tests.mcp.test_stdio import ask
from tests.server.live import QUERIES, new_graph
from tests.support.pages import same_but_for_chance

RECORDED = Path(__file__).parent / "session.md"
VALUES: dict[str, Any] = {"String": "eve", "I32": 1, "I64": 1, "Date": "2024-05-01"}


@dataclass
class Session:
    """A client, and what was said so far."""

    client: Client
    lines: list[str] = field(default_factory=list)

    async def read(self, uri: str) -> str:
        """A resource."""
        found = await self.client.read_resource(uri)
        (contents,) = found.contents
        assert isinstance(contents, TextResourceContents)
        self.lines += [f"## Read `{uri}`", "", "```text", contents.text.rstrip(), "```", ""]
        return contents.text

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What a tool answers, its refusal included."""
        found: CallToolResult = await self.client.call_tool(tool, arguments)
        (block,) = found.content
        assert isinstance(block, TextContent)
        assert found.structured_content is not None
        failed = " (refused)" if found.is_error else ""
        asked = json.dumps(arguments, indent=1)
        shown = block.text if found.is_error else json.dumps(found.structured_content, indent=1)
        self.lines += [f"## Call `{tool}`{failed}", "", "```json", asked, "```", ""]
        self.lines += ["```text", re.sub(r'("\w+_at": )\d+', r"\1(moment)", shown), "```", ""]
        answer: dict[str, Any] = found.structured_content
        return answer | {"refused": found.is_error, "text": block.text}


def examples(primer: str) -> dict[str, str]:
    """The examples of a primer, by their titles."""
    found = re.findall(r"^## ([^\n]+)\n\n```gq\n(.*?)^```$", primer, re.MULTILINE | re.DOTALL)
    return dict(found)


def parameters(query: str) -> dict[str, Any]:
    """A value for each parameter, by its declared type."""
    declared = re.findall(r"\$(\w+): (\w+)", query.partition("{")[0])
    return {name: VALUES[type_] for name, type_ in declared}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "team.omni")


def test_a_client_without_a_model_discovers_asks_branches_writes_and_opens_a_review(
    tmp_path: Path, graph: Graph
) -> None:
    recorded: list[str] = []

    async def work(client: Client) -> None:
        session = Session(client)
        listed = {str(each.uri) for each in (await client.list_resources()).resources}
        assert listed == {"omnigraph://schema", "omnigraph://primer", "omnigraph://queries"}
        # What there is.
        schema = await session.read("omnigraph://schema")
        types = re.findall(r"^node (\w+)", schema, re.MULTILINE)
        primer = await session.read("omnigraph://primer")
        shown = examples(primer)
        stored = json.loads(await session.read("omnigraph://queries"))["queries"]
        assert types[0] == "Person" and {query["name"] for query in stored} >= {"everybody"}
        (branches,) = re.findall(r"Writes land on '(\w+)/\*' alone", primer)
        # Every example that reads answers, as it stands.
        reads = [text for text in shown.values() if "return {" in text]
        assert len(reads) >= 10
        for text in reads:
            found = await client.call_tool(
                "graph_query", {"query": text, "params": parameters(text)}
            )
            assert not found.is_error, found.content
        one = await session.call(
            "graph_query", query=shown["One Person by its key"], params={"name": "ada"}
        )
        assert one["rows"][0]["person"]["age"] == 36
        plain = next(query for query in stored if not query["parameters"]["required"])
        assert (await session.call(plain["name"]))["row_count"] == 2
        # A mistake says where and what was meant, and the mended query runs.
        wrong = "query q {\n    match { $p: Persom  $p.age > 40 }\n    return { $p.name }\n}"
        refused = await session.call("graph_query", query=wrong)
        assert refused["refused"] and refused["diagnostic"] == "T1"
        assert (refused["position"]["line"], refused["position"]["column"]) == (2, 17)
        (meant,) = re.findall(r"did you mean `(\w+)`\?", refused["hint"])
        assert "2 |     match { $p: Persom" in refused["text"] and "^^^^^^" in refused["text"]
        mended = await session.call("graph_query", query=wrong.replace("Persom", meant))
        assert mended["rows"] == [{"p.name": "bo"}]
        # A branch of its own, a write on it, and a request to merge it.
        branch = f"{branches}/first"
        await session.call("graph_branch_create", name=branch)
        title = next(title for title in shown if title.startswith("Insert "))
        insert, type_name = shown[title], title.split()[1].rstrip(",")
        written = await session.call(
            "graph_mutate", query=insert, params=parameters(insert), branch=branch
        )
        assert written["affected_nodes"] == 1
        refused = await session.call("graph_mutate", query=insert, params=parameters(insert))
        assert refused["refused"] and "main" in refused["error"]
        again = await session.call(
            "graph_query",
            query=shown[f"One {type_name} by its key"],
            params=parameters(insert),
            branch=branch,
        )
        assert again["row_count"] == 1
        review = await session.call("open_review", source=branch, title="One more")
        opened = await session.call("show_review", id=review["id"])
        assert opened["source"] == branch and opened["state"] == "open"
        with pytest.raises(MCPError):
            await client.read_resource("omnigraph://secrets")
        with pytest.raises(MCPError):
            await client.call_tool("merge_review", {"id": review["id"]})
        recorded.extend(session.lines)

    queries = tmp_path / "people.gq"
    queries.write_text(QUERIES)
    options = ["--queries", str(queries), "--allow-write", "agent/*", "--adhoc"]
    ask(tmp_path, ["--store", graph.uri, *options], work)
    after = open_graph(graph.uri)
    assert after.query(
        "query q { match { $p: Person } return { count($p) as n } }"
    ).to_pylist() == [{"n": 2}]
    assert len(after.reviews.list(state="open").to_dict()["reviews"]) == 1
    text = same_but_for_chance("\n".join(recorded).replace(f"{tmp_path}/", ""))
    head = "# A session of a scripted client\n\nWritten by `tests/mcp/test_session.py`.\n\n"
    if not RECORDED.exists():
        RECORDED.write_text(head + text, encoding="utf-8")
        pytest.fail("session.md is written anew: read what a model is shown, and keep it")
    assert RECORDED.read_text(encoding="utf-8") == head + text
