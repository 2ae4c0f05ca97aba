"""A store that goes away under a live server and comes back at the same address."""

from __future__ import annotations

import threading

import httpx

from omnigraph.errors import StorageUnavailable
from omnigraph.graph import init
from omnigraph.server.config import GraphSpec
from omnigraph.wire.failures import error_of
from tests.effects.s3_server import InterruptibleS3
from tests.server.live import ADD, PATIENCE_SECONDS, PEOPLE, RECORDS, SCHEMA, serving


def test_after_an_outage_of_the_store_a_live_server_reads_and_writes_again(
    s3: InterruptibleS3, uri: str
) -> None:
    graph = init(uri, SCHEMA)
    graph.load(data=RECORDS, mode="append", engine="local")
    graph.close()
    with serving(GraphSpec("default", uri)) as live:
        client, reader = live.client(), live.client()

        def add(name: str) -> httpx.Response:
            body = {"query": ADD, "params": {"name": name}}
            return client.post("/mutate", json=body, headers={"Idempotency-Key": f"key-{name}"})

        def people() -> httpx.Response:
            return reader.post("/query", json={"query": PEOPLE})

        assert add("cy").status_code == 200
        assert people().status_code == 200
        read: list[httpx.Response] = []
        s3.stop()
        try:
            refused = add("dan")
            assert refused.status_code == 503, refused.text
            assert refused.json()["error_code"] == StorageUnavailable.code
            assert refused.json()["outcome"] == "unknown"
            assert refused.headers["Retry-After"] == "1"
            assert isinstance(error_of(503, refused.json()), StorageUnavailable)
            assert s3.endpoint not in refused.text and "graphs/" not in refused.text
            assert client.get(f"{live.url}/healthz").status_code == 200
            # It asks again for some seconds: it may be answered as soon as the store is back.
            reading = threading.Thread(target=lambda: read.append(people()))
            reading.start()
        finally:
            s3.start()
        reading.join(PATIENCE_SECONDS)
        assert read[0].status_code in (200, 503), read[0].text
        assert add("dan").status_code == 200
        assert [row["p.name"] for row in people().json()["rows"]] == ["ada", "bo", "cy", "dan"]
