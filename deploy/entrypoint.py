#!/usr/bin/env python3
"""Start `omnigraph serve` as the environment says, or refuse and say what to change.

Containers and units run this instead of the program. It turns variables into flags, creates the
graph if it was asked to, looks for what would make the server unsafe, and then becomes the server:
the process is replaced, so signals and the exit code are the server's own.

It is Python and not a shell script, because it reads file modes and addresses and suggests names,
and because no value is ever split or expanded on the way. It needs the standard library alone and
takes no settings as arguments: an argument could undo what was just checked.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import unquote, urlsplit

PREFIX = "OMNIGRAPH_"
STORE = "OMNIGRAPH_STORE"
CLUSTER = "OMNIGRAPH_CLUSTER"
INIT_SCHEMA = "OMNIGRAPH_INIT_SCHEMA"
ACCEPT = "OMNIGRAPH_ACCEPT"
BIND = "OMNIGRAPH_BIND"
QUERIES = "OMNIGRAPH_QUERIES"
UNAUTHENTICATED = "OMNIGRAPH_UNAUTHENTICATED"
TOKENS_FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
FAILPOINTS = "OMNIGRAPH_FAILPOINTS"

DEFAULT_BIND = "127.0.0.1:8080"

FLAGS = {
    STORE: "--store",
    "OMNIGRAPH_GRAPH_ID": "--graph-id",
    "OMNIGRAPH_POLICY": "--policy",
    "OMNIGRAPH_SERVER_POLICY": "--server-policy",
    "OMNIGRAPH_LOG_FORMAT": "--log-format",
}
"""What the server takes as a flag only."""

JWT_ISSUER = "OMNIGRAPH_JWT_ISSUER"

TOKEN_SOURCES = (
    TOKENS_FILE,
    "OMNIGRAPH_SERVER_BEARER_TOKEN",
    "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON",
    "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET",
)

SECRET_FILES = {
    "AWS_ACCESS_KEY_ID_FILE": "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY_FILE": "AWS_SECRET_ACCESS_KEY",
}
"""Files whose text becomes the value of another variable, for the server alone."""

SETTINGS = frozenset(
    {
        *FLAGS,
        *TOKEN_SOURCES,
        ACCEPT,
        BIND,
        CLUSTER,
        INIT_SCHEMA,
        QUERIES,
        UNAUTHENTICATED,
        # Read by the server itself.
        "OMNIGRAPH_ALLOWED_HOSTS",
        "OMNIGRAPH_AUDIT",
        "OMNIGRAPH_AUDIT_BYTES",
        "OMNIGRAPH_AUDIT_PARAMS",
        "OMNIGRAPH_AUDIT_REQUIRED",
        "OMNIGRAPH_CONNECTIONS_MAX",
        "OMNIGRAPH_CORS_ORIGINS",
        "OMNIGRAPH_JWT_ACTOR_CLAIM",
        "OMNIGRAPH_JWT_ALGORITHMS",
        "OMNIGRAPH_JWT_AUDIENCE",
        JWT_ISSUER,
        "OMNIGRAPH_JWT_KEYS",
        "OMNIGRAPH_MCP",
        "OMNIGRAPH_MCP_ADHOC",
        "OMNIGRAPH_MCP_REVIEW_WRITE",
        "OMNIGRAPH_METRICS",
        "OMNIGRAPH_METRICS_BIND",
        "OMNIGRAPH_PER_ACTOR_BYTES_MAX",
        "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX",
        "OMNIGRAPH_QUERY_TIMEOUT",
        "OMNIGRAPH_RELOAD_INTERVAL",
        "OMNIGRAPH_REQUIRE_ALL_GRAPHS",
        "OMNIGRAPH_REVOCATIONS",
        "OMNIGRAPH_SERVER_QUERY_BYTES",
        "OMNIGRAPH_SERVER_SETTINGS",
        "OMNIGRAPH_SHUTDOWN_TIMEOUT",
        "OMNIGRAPH_STUDIO",
        "OMNIGRAPH_TLS_CERT",
        "OMNIGRAPH_TLS_KEY",
        "OMNIGRAPH_WORKERS",
        # Read by the engine below it.
        "OMNIGRAPH_AUTO_OPTIMIZE",
        "OMNIGRAPH_CACHE_BYTES",
        "OMNIGRAPH_DURABILITY",
        "OMNIGRAPH_EMBEDDINGS_MOCK",
        "OMNIGRAPH_EMBED_BASE_URL",
        "OMNIGRAPH_EMBED_DEADLINE_MS",
        "OMNIGRAPH_EMBED_MODEL",
        "OMNIGRAPH_EMBED_PROVIDER",
        "OMNIGRAPH_EMBED_RETRY_ATTEMPTS",
        "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS",
        "OMNIGRAPH_EMBED_TIMEOUT_MS",
        "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER",
        "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS",
        "OMNIGRAPH_LEASE_TTL_MS",
        "OMNIGRAPH_LEASE_WAIT_MS",
        "OMNIGRAPH_MAINTENANCE_CONCURRENCY",
        "OMNIGRAPH_MANIFEST_COMPACT_EVERY",
        "OMNIGRAPH_MERGE_MEMORY_BYTES",
        "OMNIGRAPH_QUERY_BYTES",
        "OMNIGRAPH_SPILL_BYTES_MAX",
        "OMNIGRAPH_TABLE_COMPACT_EVERY",
        "OMNIGRAPH_TRAVERSAL_MODE",
        "OMNIGRAPH_WRITE_BYTES_MAX",
        "OMNIGRAPH_WRITE_RETRIES",
        "OMNIGRAPH_WRITE_ROWS_MAX",
    }
)
"""Every variable that means something to a server."""

RISKS = {
    "open-network": "every client that reaches the address may do everything",
    "root": "the server runs as root",
}
"""What `OMNIGRAPH_ACCEPT` may name, and what is accepted with it."""

SERVICE_LINK = re.compile(
    r"OMNIGRAPH\w*_(?:SERVICE_HOST|SERVICE_PORT\w*|PORT_\d+_\w+)=.*|OMNIGRAPH\w*_PORT=\w+://.*"
)
"""What Kubernetes sets for services whose names begin so."""

REFUSED = 2
"""The exit code of the command line for settings that are wrong."""
NOT_READY = 1
READY_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the server is not started, and what to change. Neither holds the value of a secret."""

    error: str
    hint: str


def main(arguments: Sequence[str]) -> int:  # noqa: RET503 (it ends by becoming another program)
    """Become the server; or return the exit code of a refusal, or of the question `--ready`."""
    environment = {name: value for name, value in os.environ.items() if value.strip()}
    if list(arguments) == ["--ready"]:
        return 0 if is_ready(environment.get(BIND, DEFAULT_BIND)) else NOT_READY
    found = list(problems(environment, arguments, os.geteuid()))
    if found:
        for problem in found:
            _say(f"error: {problem.error}\nhint: {problem.hint}")
        return REFUSED
    for name in unknown_names(environment):
        _say(f"warning: {name} is no setting of a server and is not read")
    for variable, target in SECRET_FILES.items():
        if path := environment.get(variable):
            environment[target] = Path(path).read_text(encoding="utf-8").strip()
    program = shutil.which("omnigraph", path=environment.get("PATH"))
    if program is None:
        _say("error: there is no program `omnigraph`\nhint: add the folder it lies in to PATH")
        return REFUSED
    if (schema := environment.get(INIT_SCHEMA)) and (
        code := create(program, schema, environment[STORE], environment)
    ):
        return code
    # From here on this process is the server.
    os.execve(program, [program, *serve_arguments(environment)], environment)  # noqa: S606


def serve_arguments(environment: Mapping[str, str]) -> list[str]:
    """What comes after `omnigraph`. Secrets never do: others of the machine see arguments."""
    words = ["serve"]
    for variable, flag in FLAGS.items():
        if value := environment.get(variable):
            words.append(f"{flag}={value}")  # one word: no value can pass for another flag
    return words + [f"--queries={path}" for path in _listed(environment, QUERIES)]


def create(program: str, schema: str, store: str, environment: Mapping[str, str]) -> int:
    """Create the graph unless there is one; the exit code of `omnigraph init` if that fails."""
    command = [program, "init", "--json", f"--schema={schema}", "--", store]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        _say(f"created a graph at {store}")
        return 0
    try:
        is_there = json.loads(done.stdout)["code"] == "conflict"
    except (ValueError, KeyError, TypeError):
        is_there = False
    if is_there:
        # Also while another one creates it: the server will see a graph then, or say that it is
        # not there, and its supervisor starts it again.
        _say(f"{store} was there before; {INIT_SCHEMA} is for new graphs and was not applied")
        return 0
    sys.stderr.write(done.stderr)
    return done.returncode


def problems(
    environment: Mapping[str, str], arguments: Sequence[str], user: int
) -> Iterator[Problem]:
    """Everything that keeps the server from being started."""
    if arguments:
        yield Problem(
            "it takes its settings from the environment, not from arguments",
            f"set variables such as {BIND}; or run `omnigraph serve` itself, which checks less",
        )
    accepted = _listed(environment, ACCEPT)
    for name in accepted:
        if name not in RISKS:
            yield Problem(f"{ACCEPT} names '{name}'", f"it takes {' and '.join(RISKS)}")
    if user == 0 and "root" not in accepted:
        yield Problem(
            "it runs as root, and a server needs no right that only root has",
            f"run it as another user, or set {ACCEPT}=root",
        )
    if FAILPOINTS in environment:
        yield Problem(
            f"{FAILPOINTS} makes a server die on purpose", "unset it: it belongs into tests"
        )
    yield from _misspelt(environment)
    yield from _network_problems(environment, accepted)
    for variable in (TOKENS_FILE, *SECRET_FILES):
        if variable in environment:
            yield from _secret_problems(variable, Path(environment[variable]))
    for variable, target in SECRET_FILES.items():
        if variable in environment and target in environment:
            yield Problem(f"both {variable} and {target} are set", "unset one of them")
    yield from _store_problems(environment)


def unknown_names(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none."""
    return [
        name
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX)
        and name not in SETTINGS
        and name != FAILPOINTS
        and not SERVICE_LINK.fullmatch(f"{name}={value}")
    ]


def nearest_setting(name: str) -> str | None:
    """The setting that was most likely meant, also where the first words of it were left out.

    >>> nearest_setting("OMNIGRAPH_QUERY"), nearest_setting("OMNIGRAPH_TOKEN_FILE")
    ('OMNIGRAPH_QUERIES', 'OMNIGRAPH_SERVER_BEARER_TOKENS_FILE')
    """
    endings: dict[str, str] = {}
    for setting in sorted(SETTINGS):
        words = _words(setting)
        endings["_".join(words)] = setting
        for start in range(1, len(words) - 1):
            endings.setdefault("_".join(words[start:]), setting)
    found = get_close_matches("_".join(_words(name)), endings, n=1, cutoff=0.75)
    return endings[found[0]] if found else None


def _words(name: str) -> list[str]:
    """What comes after the prefix, with one and many taken for the same."""
    words = name.removeprefix(PREFIX).split("_")
    return [re.sub("S$", "", re.sub("IES$", "Y", word)) for word in words]


def is_ready(bind: str) -> bool:
    """Whether the server at this address takes work; no proxy of the environment is asked."""
    host, _, port = bind.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))  # noqa: S104
    try:
        connection = http.client.HTTPConnection(host, int(port), timeout=READY_SECONDS)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _misspelt(environment: Mapping[str, str]) -> Iterator[Problem]:
    for name in unknown_names(environment):
        if meant := nearest_setting(name):
            yield Problem(f"{name} is no setting", f"did you mean {meant}?")


def _network_problems(environment: Mapping[str, str], accepted: Sequence[str]) -> Iterator[Problem]:
    has_tokens = any(name in environment for name in (*TOKEN_SOURCES, JWT_ISSUER))
    is_open = environment.get(UNAUTHENTICATED, "").strip().lower() not in ("", "0", "false")
    bind = environment.get(BIND, DEFAULT_BIND)
    if not has_tokens and not is_open:
        yield Problem(
            "there are no tokens, so clients cannot be told apart",
            f"name a file with them in {TOKENS_FILE}, as in "
            '{"actor": "token"}; or, on a loopback address, '
            f"set {UNAUTHENTICATED}=1",
        )
    # With a file of no tokens the flag would open the server: it never goes with a network.
    if is_open and not _is_loopback(bind) and "open-network" not in accepted:
        yield Problem(
            f"it would listen on {bind} and let in every client",
            f"unset {UNAUTHENTICATED} and name tokens in {TOKENS_FILE}, "
            f"or set {BIND}={DEFAULT_BIND}, or {ACCEPT}=open-network",
        )


def _is_loopback(bind: str) -> bool:
    host = bind.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _secret_problems(variable: str, path: Path) -> Iterator[Problem]:
    try:
        mode = path.stat().st_mode
        is_empty = not path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as problem:
        reason = (getattr(problem, "strerror", None) or "it is no text").lower()
        yield Problem(
            f"the file of {variable}, {path}, cannot be read: {reason}",
            "name a file that the user of the server may read",
        )
        return
    # Its group may read it: that is how systemd and Kubernetes hand secrets over.
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        yield Problem(
            f"the file of {variable}, {path}, is open to others: its mode is "
            f"{stat.S_IMODE(mode):04o}",
            f"run `chmod 400 {path}`, or 0440 for a secret that its group reads",
        )
    if is_empty:
        yield Problem(f"the file of {variable}, {path}, is empty", "write the secret into it")


def _store_problems(environment: Mapping[str, str]) -> Iterator[Problem]:
    store = environment.get(STORE)
    if store is None:
        if CLUSTER not in environment:
            yield Problem(
                "it does not know what to serve",
                f"set {STORE} to the path of a graph, or to s3://bucket/folder",
            )
        if INIT_SCHEMA in environment:
            yield Problem(f"{INIT_SCHEMA} is set without {STORE}", f"set {STORE}, or unset it")
        elif CLUSTER in environment:
            yield from _cluster_problems(environment[CLUSTER])
        return
    if CLUSTER in environment:
        yield Problem(
            f"both {CLUSTER} and {STORE} are set, and a server serves one of them",
            f"leave the other empty; the image sets {STORE}, and `{STORE}=` empties it",
        )
        return
    path = _local_path(store)
    if path is None:
        return
    try:
        folder = next(each for each in (path, *path.parents) if each.exists())
        if folder == path or INIT_SCHEMA in environment:
            with tempfile.TemporaryFile(dir=folder):
                return
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        yield Problem(
            f"the store {path} cannot be written: {reason}",
            f"let the user of the server, number {os.geteuid()}, own the folder, "
            "or mount it for writing",
        )
        return
    yield Problem(
        f"there is no graph at {path}",
        f"mount the folder that holds it, or set {INIT_SCHEMA} to a schema to begin with",
    )


def _cluster_problems(cluster: str) -> Iterator[Problem]:
    """A folder that cannot be read; what is applied, the server itself looks at."""
    path = _local_path(cluster)
    if path is not None and not os.access(path, os.R_OK | os.X_OK):
        yield Problem(
            f"the cluster {path} cannot be read",
            f"mount its folder so that the user of the server, number {os.geteuid()}, may read it",
        )


def _local_path(store: str) -> Path | None:
    if store.lower().startswith("file:"):
        return Path(unquote(urlsplit(store).path)).absolute()
    return None if "://" in store else Path(store).absolute()


def _listed(environment: Mapping[str, str], variable: str) -> list[str]:
    return [each.strip() for each in environment.get(variable, "").split(",") if each.strip()]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
