"""The guide's agent and reviewer, over HTTP, with tokens that are signed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx

from omnigraph.audit import AuditFilter, AuditSettings, read_entries
from omnigraph.graph import init
from omnigraph.server.config import GraphSpec
from tests.server.jwts import Provider
from tests.server.live import serving

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "access.md"
ROWS = """\
{"type": "Person", "data": {"name": "Ada", "city": "Oslo", "salary": 90}}
{"type": "Contract", "data": {"number": "C-1"}}
{"edge": "Signed", "from": "Ada", "to": "C-1", "data": {}}
"""
ADD = """query add($slug: String, $author: String) {
    insert Note { slug: $slug, text: "met in Oslo", author: $author }
    insert About { from: $slug, to: "Ada" }
}"""


def block(language: str) -> str:
    """The last block of a language on the page."""
    text = PAGE.read_text(encoding="utf-8").partition("## An agent and a reviewer")[2]
    found: str = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[-1]
    return found


def test_the_agent_and_the_reviewer_of_the_guide(tmp_path: Path):
    graph = init(tmp_path / "team.omni", block("pg"))
    graph.load(data=ROWS, mode="append")
    (tmp_path / "policy.yaml").write_text(block("yaml"))
    provider = Provider(tmp_path / "jwks.json")
    spec = GraphSpec("default", graph.uri, (), tmp_path / "policy.yaml")
    audit = tmp_path / "audit.jsonl"
    with serving(
        spec,
        environment={"PATH": ""},
        jwt=provider.settings,
        audit=AuditSettings(audit),
        waits=False,
    ) as live:

        def of(actor: str, **claims: Any) -> httpx.Client:
            client = live.client()
            client.headers.update(provider.headers(actor, **claims))
            return client

        agent, rita, stranger = of("bot-7", roles=["agent"]), of("rita"), of("bot-7")

        def asked(query: str, client: httpx.Client = agent, **more: Any) -> httpx.Response:
            return client.post("/query", json={"query": query, **more})

        def people(shown: str) -> str:
            return f"query q {{ match {{ $p: Person }} return {{ $p.{shown} as it }} }}"

        assert asked(people("city")).json()["rows"] == [{"it": "Oslo"}]
        hidden, unknown = asked(people("salary")), asked(people("nosuch"))
        assert hidden.status_code == unknown.status_code == 400
        assert hidden.text.replace("salary", "nosuch") == unknown.text
        types = {each["type_name"] for each in agent.get("/snapshot").json()["datasets"]}
        assert types == {"Person", "Note", "About"}
        assert asked(people("name"), stranger).status_code == 403
        assert asked(people("salary"), rita).json()["rows"] == [{"it": 90}]

        def note(slug: str, author: str, branch: str) -> httpx.Response:
            params = {"slug": slug, "author": author}
            return agent.post("/mutate", json={"query": ADD, "params": params, "branch": branch})

        assert note("n1", "bot-7", "main").status_code == 403
        assert agent.post("/branches", json={"name": "other"}).status_code == 403
        assert agent.post("/branches", json={"name": "agent/7"}).status_code == 200
        forged = note("n1", "rita", "agent/7")
        assert forged.status_code == 403
        assert "Note" in forged.json()["error"]
        assert note("n1", "bot-7", "agent/7").status_code == 200
        opened = agent.post("/reviews", json={"source": "agent/7", "title": "A note"}).json()
        review = f"/reviews/{opened['id']}"
        assert agent.post(f"{review}/merge", json={}).status_code == 403
        assert rita.post(f"{review}/review", json={"verdict": "approve"}).status_code == 200
        assert rita.post(f"{review}/merge", json={}).status_code == 200
        notes = "query q { match { $n: Note  $n about $p } return { $n.slug as n, $p.name as p } }"
        assert asked(notes).json()["rows"] == [{"n": "n1", "p": "Ada"}]
    readers = {
        each.facts["actor"]
        for each in read_entries([audit], AuditFilter.of(None, "Person", None))
        if each.facts["decision"] == "allow"
    }
    assert readers == {"bot-7", "rita"}
    assert "Bearer" not in audit.read_text()
