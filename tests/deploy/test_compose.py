"""The compose example: every name in it means something, and its settings make a server on S3."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from deploy import entrypoint
from omnigraph.server.config import SHUTDOWN_SECONDS
from tests.deploy.launch import DEPLOY, PAGE, PATIENCE_SECONDS, ROOT, serving
from tests.effects import s3_server

TEXT = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = YAML(typ="safe").load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
SERVER: dict[str, Any] = SERVICES["omnigraph"]
SETTINGS: dict[str, str] = SERVER["environment"]
OURS = ("OMNIGRAPH_", "AWS_")


def mounts() -> dict[str, Path]:
    """Where each file of the server comes from, by its place in the container."""
    found = {
        f"/run/secrets/{name}": DEPLOY / COMPOSE["secrets"][name]["file"]
        for name in SERVER["secrets"]
    }
    for volume in SERVER["volumes"]:
        source, target, mode = volume.split(":")
        assert mode == "ro"
        found[target] = (DEPLOY / source).resolve()
    return found


def test_every_setting_is_one_the_entrypoint_knows_and_is_explained():
    page = PAGE.read_text(encoding="utf-8")
    for name in SETTINGS:
        if name.startswith("OMNIGRAPH_"):
            assert name in entrypoint.SETTINGS, name
        elif name.endswith("_FILE"):
            assert name in entrypoint.SECRET_FILES, name
        assert f"`{name}`" in page, name


def test_every_variable_of_the_file_itself_is_explained_and_has_a_default():
    used = re.findall(r"(?<!\$)\$\{?(\w+)(:-)?", TEXT)
    assert used == [("OMNIGRAPH_USER", ":-")]
    assert "`OMNIGRAPH_USER`" in PAGE.read_text(encoding="utf-8")
    assert SERVER["user"] == "${OMNIGRAPH_USER:-10001:10001}"
    assert "USER 10001:10001" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def test_every_file_a_setting_names_is_mounted():
    places = mounts()
    named = [value for value in SETTINGS.values() if value.startswith("/")]
    assert sorted(named) == sorted(places)


def test_every_file_exists_and_secrets_are_made_by_the_operator():
    page = PAGE.read_text(encoding="utf-8")
    for path in mounts().values():
        if path.parent == DEPLOY / "secrets":
            assert f"secrets/{path.name}" in page
        else:
            assert path.is_file() and path.is_relative_to(ROOT)
    assert "/secrets/" in (DEPLOY / ".gitignore").read_text().splitlines()
    ignored = subprocess.run(
        ["git", "check-ignore", "--quiet", "deploy/secrets/tokens.json"], cwd=ROOT, check=False
    )
    assert ignored.returncode in (0, 128), "128 is an unpacked release, which has no git"


def test_no_secret_is_written_down():
    for service in SERVICES.values():
        for name in service.get("environment", {}):
            if re.search(r"TOKEN|SECRET|PASSWORD|ROOT_USER|ACCESS_KEY", name):
                assert name.endswith("_FILE"), name


def test_everything_that_is_referred_to_is_declared():
    for service in SERVICES.values():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source.startswith("../") or source in COMPOSE["volumes"]


def test_images_are_plain_names_and_ours_is_built_here():
    for service in SERVICES.values():
        first, *_ = service["image"].split("/")
        assert "." not in first and ":" not in first
    build = SERVER["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def test_the_server_waits_for_a_healthy_store_with_a_bucket():
    assert "healthcheck" in SERVICES["store"]
    assert "healthcheck" not in SERVER, "it has the one of its image"
    assert SERVER["depends_on"] == {
        "store": {"condition": "service_healthy"},
        "bucket": {"condition": "service_completed_successfully"},
    }
    bucket = SETTINGS["OMNIGRAPH_STORE"].removeprefix("s3://").partition("/")[0]
    assert f"store/{bucket}" in SERVICES["bucket"]["entrypoint"][-1]
    assert SERVICES["store"]["volumes"] == ["store:/data"]
    assert "ports" not in SERVICES["store"]


def test_the_server_is_confined():
    assert SERVER["read_only"] is True
    assert SERVER["cap_drop"] == ["ALL"]
    assert SERVER["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in SERVER["ports"])


def test_requests_may_end_before_it_is_killed():
    assert float(SETTINGS["OMNIGRAPH_SHUTDOWN_TIMEOUT"]) == SHUTDOWN_SECONDS
    assert float(SERVER["stop_grace_period"].removesuffix("s")) >= SHUTDOWN_SECONDS + 10


def test_the_cache_is_a_quarter_of_the_memory():
    assert SERVER["mem_limit"] == "2g"
    assert int(SETTINGS["OMNIGRAPH_CACHE_BYTES"]) * 4 == 2 << 30


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """The settings of the example, with what a machine of its own would provide."""
    secrets = {
        "/run/secrets/tokens": '{"act-ana": "token-of-ana-0001"}',
        "/run/secrets/store_user": s3_server.ACCESS_KEY,
        "/run/secrets/store_password": s3_server.SECRET_KEY,
    }
    places = {place: str(path) for place, path in mounts().items()}
    for place, text in secrets.items():
        path = tmp_path / Path(place).name
        path.write_text(text)
        path.chmod(0o400)
        places[place] = str(path)
    return {name: places.get(value, value) for name, value in SETTINGS.items()}


def test_the_settings_of_the_example_make_a_server_on_s3(settings: dict[str, str]):
    asking = {"Authorization": "Bearer token-of-ana-0001"}
    body = {"params": {"handle": "nobody"}}
    with s3_server.running_s3() as endpoint:
        s3_server.create_bucket(endpoint, "graphs")
        there = {"AWS_ENDPOINT_URL": endpoint, "OMNIGRAPH_BIND": "127.0.0.1:0"}
        with serving(settings | there) as (process, address):
            assert httpx.get(f"http://{address}/readyz").status_code == 200
            url = f"http://{address}/graphs/social/queries/person"
            answer = httpx.post(url, json=body, headers=asking)
            assert (answer.status_code, answer.json()["row_count"]) == (200, 0), answer.text
            assert httpx.post(url, json=body).status_code == 401
            process.send_signal(signal.SIGTERM)
            _, logged = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0
    assert "created a graph at s3://graphs/social" in logged
    assert s3_server.SECRET_KEY not in logged
