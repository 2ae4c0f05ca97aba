"""The unit of systemd: hardened, and in step with the server and the entrypoint."""

from __future__ import annotations

from deploy import entrypoint
from omnigraph.server.config import SHUTDOWN_SECONDS
from tests.deploy.launch import DEPLOY, PAGE

Section = dict[str, list[str]]

HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "DynamicUser": "yes",
    "LockPersonality": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHome": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectSystem": "strict",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}


def unit() -> dict[str, Section]:
    """Sections, and every value of every key in them."""
    found: dict[str, Section] = {}
    section: Section = {}
    for line in (DEPLOY / "omnigraph.service").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        else:
            name, equals, value = line.partition("=")
            assert equals, line
            section.setdefault(name, []).append(value)
    return found


SERVICE = unit()["Service"]
VARIABLES = dict(each.split("=", 1) for each in SERVICE["Environment"])


def test_it_has_the_three_sections_and_starts_with_the_machine():
    assert list(unit()) == ["Unit", "Service", "Install"]
    assert unit()["Install"]["WantedBy"] == ["multi-user.target"]
    assert unit()["Unit"]["After"] == unit()["Unit"]["Wants"] == ["network-online.target"]


def test_it_is_hardened():
    assert {name: SERVICE[name] for name in HARDENING} == {
        name: [value] for name, value in HARDENING.items()
    }


def test_the_only_place_it_writes_to_is_its_own():
    assert SERVICE["StateDirectory"] == ["omnigraph"]
    assert VARIABLES["OMNIGRAPH_STORE"].startswith("%S/omnigraph/")
    assert "ReadWritePaths" not in SERVICE


def test_tokens_are_a_credential_and_nothing_in_the_unit_is_secret():
    (credential,) = SERVICE["LoadCredential"]
    name, _, path = credential.partition(":")
    assert VARIABLES["OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"] == f"%d/{name}"
    assert path in PAGE.read_text(encoding="utf-8")
    assert not {"OMNIGRAPH_SERVER_BEARER_TOKEN", "AWS_SECRET_ACCESS_KEY"} & set(VARIABLES)


def test_its_variables_are_settings():
    ours = {name for name in VARIABLES if name.startswith("OMNIGRAPH_")}
    assert ours <= entrypoint.SETTINGS
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in ours if name not in page] == []


def test_the_entrypoint_is_what_runs_and_the_program_is_on_its_path():
    program, script = SERVICE["ExecStart"][0].split()
    assert script.endswith("/entrypoint.py")
    assert VARIABLES["PATH"].split(":")[0] == program.removesuffix("/python")
    assert SERVICE["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


def test_requests_may_end_before_it_is_killed():
    assert float(VARIABLES["OMNIGRAPH_SHUTDOWN_TIMEOUT"]) == SHUTDOWN_SECONDS
    assert float(SERVICE["TimeoutStopSec"][0]) >= SHUTDOWN_SECONDS + 10
    assert SERVICE["KillSignal"] == ["SIGTERM"] and SERVICE["KillMode"] == ["mixed"]


def test_a_refusal_is_not_repeated_and_a_crash_is_mended():
    assert SERVICE["Restart"] == ["on-failure"]
    assert SERVICE["RestartPreventExitStatus"] == [str(entrypoint.REFUSED)]
