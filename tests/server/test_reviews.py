"""Policy and limits of the routes for review: diff, plans, replays, history and stats."""

from __future__ import annotations

import threading

import httpx

from tests.server.live import ADD, PEOPLE, SCHEMA, Live

GONE = "01K3Z7M0Q8W4R6T2Y5V9B1N3XC"


def picked(ana: httpx.Client) -> str:
    """A branch with one commit, and that commit."""
    ana.post("/branches", json={"name": "review"}).raise_for_status()
    body = {"query": ADD, "params": {"name": "cy"}, "branch": "review"}
    return str(ana.post("/mutate", json=body).json()["commit"]["graph_commit_id"])


def status(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json().get("code")


def test_reads_of_review_are_for_readers(guarded: Live):
    commit_id = picked(guarded.client("act-ana"))
    reads = [
        ("GET", "/diff?target=main&source=review", None),
        ("GET", f"/diff?target=main&source={commit_id}", None),
        ("GET", "/history?type=Person&id=ada", None),
        ("GET", "/stats", None),
        ("POST", "/branches/merge/plan", {"source": "review"}),
        ("POST", f"/commits/{commit_id}/revert/plan", {"branch": "review"}),
        ("POST", "/explain", {"query": PEOPLE}),
        ("POST", "/schema/plan", {"schema_source": SCHEMA}),
    ]
    bo, stranger = guarded.client("act-bo"), guarded.client("act-cy")
    for method, path, body in reads:
        assert bo.request(method, path, json=body).status_code == 200, path
        assert status(stranger.request(method, path, json=body)) == (403, "forbidden"), path


def test_a_commit_that_may_not_be_read_is_like_one_that_does_not_exist(guarded: Live):
    commit_id = picked(guarded.client("act-ana"))
    stranger = guarded.client("act-cy")
    for verb in ("cherry-pick", "cherry-pick/plan"):
        found = stranger.post(f"/commits/{commit_id}/{verb}")
        unknown = stranger.post(f"/commits/{GONE}/{verb}")
        assert status(found) == status(unknown) == (404, "not_found")
        assert found.json()["error"].replace(commit_id, GONE) == unknown.json()["error"]


def test_replays_need_change_on_the_branch_they_write_to(guarded: Live):
    ana, bo = guarded.client("act-ana"), guarded.client("act-bo")
    commit_id = picked(ana)
    for verb in ("revert", "cherry-pick"):
        assert status(bo.post(f"/commits/{commit_id}/{verb}")) == (403, "forbidden")
    done = bo.post(f"/commits/{commit_id}/revert", json={"branch": "review"})
    assert done.status_code == 200
    assert (done.json()["actor_id"], done.json()["deleted"]) == ("act-bo", 1)
    assert ana.post(f"/commits/{commit_id}/cherry-pick").json()["inserted"] == 1


def test_a_refused_replay_changes_nothing_and_names_the_conflicts(guarded: Live):
    ana = guarded.client("act-ana")
    commit_id = picked(ana)
    ana.post("/mutate", json={"query": ADD, "params": {"name": "cy"}}).raise_for_status()
    age = 'query q { update Person set { age: 9 } where name = "cy" }'
    ana.post("/mutate", json={"query": age}).raise_for_status()
    head = ana.get("/commits").json()["commits"][0]
    refused = ana.post(f"/commits/{commit_id}/cherry-pick")
    assert status(refused) == (409, "conflict")
    assert refused.json()["merge_conflicts"][0]["entity_id"] == "cy"
    assert ana.get("/commits").json()["commits"][0] == head


def test_bad_parameters_are_named(open_server: Live):
    client = open_server.client()
    for path, told in (
        ("/diff?target=main", "`source`"),
        ("/diff?target=main&source=main&images=yes", "`images`"),
        ("/diff?target=main&source=main&limit=x", "`limit`"),
        ("/diff?target=main&source=main&page_token=x", "change cursor rejected"),
        ("/history?type=Person", "`id`"),
        ("/history?type=Person&id=ada&page_token=x", "change cursor rejected"),
    ):
        answer = client.get(path)
        assert answer.status_code == 400 and told in answer.json()["error"], answer.text
    assert client.get("/diff?target=main&source=none").status_code == 404
    assert client.get("/diff?target=main&source=main&limit=9000").status_code == 413
    assert client.get("/history?type=Person&id=ada&limit=1001").status_code == 413


def test_the_history_of_an_entity_has_pages(open_server: Live):
    client = open_server.client()
    for age in (1, 2, 3):
        text = f'query q {{ update Person set {{ age: {age} }} where name = "ada" }}'
        client.post("/mutate", json={"query": text}).raise_for_status()
    query = {"type": "node:Person", "id": "ada"}
    whole = client.get("/history", params=query).json()["versions"]
    assert len(whole) == 4
    seen, token = [], None
    while True:
        more: dict[str, str] = {} if token is None else {"page_token": token}
        page = client.get("/history", params={**query, "limit": "3", **more}).json()
        seen += page["versions"]
        token = page.get("next_page_token")
        if token is None:
            break
    assert seen == whole


def test_findings_of_stats_name_the_graph_and_not_its_place(open_server: Live):
    answer = open_server.client().get("/stats")
    findings = answer.json()["findings"]
    assert {each["command"] for each in findings} == {"omnigraph index --store default"}
    assert open_server.graph().uri not in answer.text


def test_hostile_reviews_are_refused_with_typed_errors(open_server: Live):
    client = open_server.client()
    picked(client)
    huge = "x" * 10_000_000
    for body, expected in (
        ({"source": "review", "title": huge}, (413, "limit_exceeded")),
        ({"source": "review", "title": "x" * 500_000}, (400, "bad_request")),
        ({"source": "review", "title": "two\nlines"}, (400, "bad_request")),
        ({"source": "../main"}, (400, "bad_request")),
        ({"source": "<script>alert(1)</script>"}, (400, "bad_request")),
        ({"source": "review", "target": "x" * 500_000}, (400, "bad_request")),
        ({"source": "none"}, (404, "not_found")),
    ):
        answer = client.post("/reviews", json=body)
        assert status(answer)[0] == expected[0], answer.text[:500]
        assert len(answer.text) < 5_000
    text = "<img src=x onerror=alert(1)> \u202e 😀 </script>"
    opened = client.post("/reviews", json={"source": "review", "description": text}).json()
    assert opened["description"] == text
    at = f"/reviews/{opened['id']}"
    assert client.post(f"{at}/comments", json={"text": huge}).status_code == 413
    assert client.post(f"{at}/comments", json={"text": "x" * 500_000}).status_code == 400
    path = f"/reviews/{'x' * 3_000}"
    assert client.get(path).status_code in (400, 404)


def test_two_reviewers_who_merge_at_once_get_one_merge_and_one_typed_refusal(open_server: Live):
    client = open_server.client()
    picked(client)
    id = client.post("/reviews", json={"source": "review"}).json()["id"]
    answers: list[httpx.Response] = []
    clients = [open_server.client() for _ in range(2)]
    threads = [
        threading.Thread(target=lambda c=c: answers.append(c.post(f"/reviews/{id}/merge", json={})))
        for c in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done, refused = sorted(answers, key=lambda each: each.status_code)
    assert done.status_code == 200 and status(refused) == (409, "conflict")
    assert "it is merged, as commit" in refused.json()["error"]
    assert "review show" in refused.json()["hint"]
