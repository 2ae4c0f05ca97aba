"""`omnigraph serve`, `studio` and `mcp`: a graph over HTTP, in a browser, or as tools."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import actor_of, cluster_place, config_of, resolve, storage_target
from omnigraph.cli.failures import UsageError, require_library
from omnigraph.cli.help import Commands, ControlCommand, GraphCommand, PayloadCommand
from omnigraph.cli.opening import graph_to_read, graph_to_write
from omnigraph.cli.options import (
    Given,
    GlobalFlag,
    JsonFlag,
    QueriesOption,
    exclusive,
    flag,
    one_of,
    option,
)
from omnigraph.cli.output import output_of

if TYPE_CHECKING:
    from omnigraph.audit import AuditSettings
    from omnigraph.mcp.toolbox import McpResource, Tool, ToolAccess

COMMANDS = Commands()
LISTEN_LINE = "OMNIGRAPH_LISTEN_ADDR"
STUDIO_SHUTDOWN_SECONDS = 5.0

BindOption = Annotated[
    str | None,
    option(
        "--bind", "HOST:PORT", "where to listen; 127.0.0.1:8080 by default, port 0 takes a free one"
    ),
]
GraphIdOption = Annotated[
    str | None, option("--graph-id", "ID", "the graph's name in URLs; `default` by default")
]
PolicyOption = Annotated[Path | None, option("--policy", "FILE", "who may do what with the graph")]
ServerPolicyOption = Annotated[
    Path | None, option("--server-policy", "FILE", "who may list the graphs")
]
ExternalBlobsOption = Annotated[
    list[str] | None,
    option(
        "--external-blobs",
        "URI",
        "a folder of a bucket, s3://, whose objects loads may name; repeatable",
    ),
]
JwtIssuerOption = Annotated[
    str | None,
    option("--jwt-issuer", "URL", "accept tokens that this identity provider signed (JWT)"),
]
JwtAudienceOption = Annotated[
    str | None, option("--jwt-audience", "TEXT", "the audience that signed tokens have to name")
]
JwtKeysOption = Annotated[
    str | None,
    option("--jwt-keys", "FILE|URL", "the public keys of the identity provider, a JWKS"),
]
JwtAlgorithmOption = Annotated[
    list[str] | None,
    option(
        "--jwt-algorithm",
        "NAME",
        "how tokens may be signed, RS256 and ES256 by default; repeatable",
    ),
]
JwtActorOption = Annotated[
    str | None,
    option("--jwt-actor-claim", "NAME", "the claim that names the actor; `sub` by default"),
]
RevocationsOption = Annotated[
    Path | None,
    option(
        "--revocations", "FILE", "actors and ids of tokens to refuse, as JSON; read when it changes"
    ),
]
TlsCertOption = Annotated[
    Path | None, option("--tls-cert", "FILE", "serve TLS with this certificate chain, PEM")
]
TlsKeyOption = Annotated[Path | None, option("--tls-key", "FILE", "its private key, PEM")]
WorkersOption = Annotated[
    int | None,
    option("--workers", "N", "processes that share the address; 1 by default", min=1),
]
OpenFlag = Annotated[
    bool, flag("--unauthenticated", "serve without tokens: every client may do everything")
]
AllGraphsFlag = Annotated[
    bool, flag("--require-all-graphs", "do not start if a graph cannot be served")
]
ReloadOption = Annotated[
    float | None,
    option(
        "--reload-interval",
        "SECONDS",
        "look for changed queries, policies and tokens this often; SIGHUP always does",
    ),
]
ShutdownOption = Annotated[
    float | None,
    option(
        "--shutdown-timeout",
        "SECONDS",
        "how long requests may take to end when the server stops; 30 by default",
    ),
]
ConnectionsOption = Annotated[
    int | None,
    option(
        "--connections-max", "N", "how many connections there is room for; 1000 by default", min=1
    ),
]
QueryTimeoutOption = Annotated[
    float | None,
    option("--query-timeout", "SECONDS", "how long a query may take; 30 by default, 0 is no limit"),
]
ActorTimeoutOption = Annotated[
    list[str] | None,
    option("--actor-query-timeout", "ACTOR=SECONDS", "the same for one actor; repeatable"),
]
MetricsFlag = Annotated[bool, flag("--metrics", "offer numbers for Prometheus at /metrics")]
MetricsBindOption = Annotated[
    str | None, option("--metrics-bind", "HOST:PORT", "the same on an address that needs no token")
]
OriginOption = Annotated[
    list[str] | None,
    option("--cors-origin", "ORIGIN", "let browsers of this origin in; repeatable"),
]
AllowedHostOption = Annotated[
    list[str] | None,
    option(
        "--allowed-host",
        "NAME",
        "a name beside localhost that a server without tokens answers to; repeatable",
    ),
]
McpFlag = Annotated[bool, flag("--mcp", "offer operations and stored queries as tools, at /mcp")]
McpAdhocFlag = Annotated[bool, flag("--mcp-adhoc", "also tools that run queries of the caller")]
StudioFlag = Annotated[bool, flag("--studio", "offer the graph in a browser, at /studio/")]
McpReviewFlag = Annotated[
    bool, flag("--mcp-review-write", "also tools that approve and merge change requests")
]
AuditOption = Annotated[
    Path | None, option("--audit", "FILE", "record every decision and access in this file")
]
AuditRequiredFlag = Annotated[
    bool, flag("--audit-required", "refuse what cannot be recorded, reads included")
]
AuditParamsFlag = Annotated[bool, flag("--audit-params", "also record the values of parameters")]
AuditBytesOption = Annotated[
    int | None,
    option("--audit-bytes", "N", "put the audit file aside at this size; 268435456 by default"),
]
SettingsOption = Annotated[
    Path | None, option("--settings", "FILE", "a file with `reviews.webhooks`")
]
LogFormatOption = Annotated[
    str,
    option(
        "--log-format",
        "text|json",
        "how to log on stderr; text by default",
        check=one_of(("text", "json")),
    ),
]


class ServeCommand(ControlCommand):
    """`serve`, which takes two global flags: `--store` and `--cluster`."""

    takes = frozenset({GlobalFlag.STORE, GlobalFlag.CLUSTER})


@COMMANDS.add(ServeCommand)
def serve(
    ctx: typer.Context,
    *,
    bind: BindOption = None,
    graph_id: GraphIdOption = None,
    queries: QueriesOption = None,
    policy: PolicyOption = None,
    server_policy: ServerPolicyOption = None,
    external_blobs: ExternalBlobsOption = None,
    jwt_issuer: JwtIssuerOption = None,
    jwt_audience: JwtAudienceOption = None,
    jwt_keys: JwtKeysOption = None,
    jwt_algorithm: JwtAlgorithmOption = None,
    jwt_actor_claim: JwtActorOption = None,
    revocations: RevocationsOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    unauthenticated: OpenFlag = False,
    require_all_graphs: AllGraphsFlag = False,
    reload_interval: ReloadOption = None,
    workers: WorkersOption = None,
    shutdown_timeout: ShutdownOption = None,
    connections_max: ConnectionsOption = None,
    query_timeout: QueryTimeoutOption = None,
    actor_query_timeout: ActorTimeoutOption = None,
    metrics: MetricsFlag = False,
    metrics_bind: MetricsBindOption = None,
    cors_origin: OriginOption = None,
    allowed_host: AllowedHostOption = None,
    mcp: McpFlag = False,
    mcp_adhoc: McpAdhocFlag = False,
    studio: StudioFlag = False,
    mcp_review_write: McpReviewFlag = False,
    audit: AuditOption = None,
    audit_required: AuditRequiredFlag = False,
    audit_params: AuditParamsFlag = False,
    audit_bytes: AuditBytesOption = None,
    settings: SettingsOption = None,
    log_format: LogFormatOption = "text",
    json: JsonFlag = False,
) -> None:
    """Serve a graph, or the graphs of a cluster, over HTTP, at /graphs/ID.

    With `--cluster`, exactly the applied revision is served: graphs, stored queries and policies
    come from the storage root, each verified by its digest. SIGHUP switches to a newer revision. A
    graph that cannot be served is left out, and `/readyz` names it.

    Tokens come from `OMNIGRAPH_SERVER_BEARER_TOKEN`, or from the file that
    `OMNIGRAPH_SERVER_BEARER_TOKENS_FILE` names: a JSON object of actors and tokens. With
    `--jwt-issuer`, tokens that an identity provider signed are accepted as well. Once it
    listens, stdout has one line with the address; logs go to stderr. SIGTERM lets requests end and
    exits with 0. `--json` shapes the error of a server that does not start.

    omnigraph serve --cluster fleet
    omnigraph serve --store team.omni --unauthenticated
    omnigraph serve --store team.omni --queries queries/ --policy policy.yaml --bind 0.0.0.0:8080
    """
    require_library("omnigraph.server.run", "serve", extra="server")
    from omnigraph.access.identity import JwtSettings
    from omnigraph.server.config import (
        CONNECTIONS_MAX,
        DEFAULT_BIND,
        DEFAULT_GRAPH_ID,
        QUERY_SECONDS,
        SHUTDOWN_SECONDS,
        GraphSpec,
        ServerConfig,
        count_of,
        flag_of,
        seconds_of,
    )
    from omnigraph.server.run import serve as run_server

    output = output_of(ctx)
    given = output.environment
    own = {
        "graph_id": graph_id,
        "queries": queries,
        "policy": policy,
        "server_policy": server_policy,
        "external_blobs": external_blobs,
    }
    cluster = Given.of(ctx).cluster or given.get("OMNIGRAPH_CLUSTER") or None
    store = _store(ctx, cluster, own)
    specs: tuple[GraphSpec, ...] = ()
    if store is not None:
        spec = GraphSpec(
            graph_id or DEFAULT_GRAPH_ID,
            store,
            tuple(queries or ()),
            policy,
            external_blobs=tuple(external_blobs or ()),
        )
        specs = (spec,)
    origins = cors_origin or given.get("OMNIGRAPH_CORS_ORIGINS", "").split(",")
    hosts = allowed_host or given.get("OMNIGRAPH_ALLOWED_HOSTS", "").split(",")
    config = ServerConfig(
        graphs=specs,
        cluster=None if cluster is None else cluster_place(ctx, cluster),
        applies_schemas=store is not None,
        bind=bind or given.get("OMNIGRAPH_BIND") or DEFAULT_BIND,
        workers=workers or count_of(given, "OMNIGRAPH_WORKERS", 1),
        server_policy=server_policy,
        jwt=JwtSettings.given(
            given,
            issuer=jwt_issuer,
            audience=jwt_audience,
            keys=jwt_keys,
            algorithms=jwt_algorithm,
            actor_claim=jwt_actor_claim,
        ),
        revocations=revocations or _path_of(given, "OMNIGRAPH_REVOCATIONS"),
        tls_cert=tls_cert or _path_of(given, "OMNIGRAPH_TLS_CERT"),
        tls_key=tls_key or _path_of(given, "OMNIGRAPH_TLS_KEY"),
        unauthenticated=unauthenticated or flag_of(given, "OMNIGRAPH_UNAUTHENTICATED"),
        require_all_graphs=require_all_graphs or flag_of(given, "OMNIGRAPH_REQUIRE_ALL_GRAPHS"),
        reload_seconds=_seconds(
            "--reload-interval",
            reload_interval,
            seconds_of(given, "OMNIGRAPH_RELOAD_INTERVAL", 0.0),
        ),
        shutdown_seconds=_seconds(
            "--shutdown-timeout",
            shutdown_timeout,
            seconds_of(given, "OMNIGRAPH_SHUTDOWN_TIMEOUT", SHUTDOWN_SECONDS),
        ),
        connections_max=connections_max
        or count_of(given, "OMNIGRAPH_CONNECTIONS_MAX", CONNECTIONS_MAX),
        query_seconds=_seconds(
            "--query-timeout",
            query_timeout,
            seconds_of(given, "OMNIGRAPH_QUERY_TIMEOUT", QUERY_SECONDS),
        ),
        query_seconds_of=dict(map(_actor_seconds, actor_query_timeout or ())),
        metrics=metrics or flag_of(given, "OMNIGRAPH_METRICS"),
        metrics_bind=metrics_bind or given.get("OMNIGRAPH_METRICS_BIND") or None,
        cors_origins=tuple(each.strip() for each in origins if each.strip()),
        allowed_hosts=tuple(each.strip() for each in hosts if each.strip()),
        mcp=mcp or flag_of(given, "OMNIGRAPH_MCP"),
        mcp_adhoc=mcp_adhoc or flag_of(given, "OMNIGRAPH_MCP_ADHOC"),
        studio=studio or flag_of(given, "OMNIGRAPH_STUDIO"),
        mcp_review_write=mcp_review_write or flag_of(given, "OMNIGRAPH_MCP_REVIEW_WRITE"),
        audit=_audit(given, audit, audit_required, audit_params, audit_bytes),
        settings=settings or _path_of(given, "OMNIGRAPH_SERVER_SETTINGS"),
        log_format="json" if log_format == "json" else "text",
        environment=given,
    )

    def announce(address: str) -> None:
        output.line(f"{LISTEN_LINE}={address}")
        output.flush()

    raise typer.Exit(run_server(config, announce))


def _store(ctx: typer.Context, cluster: str | None, own: Mapping[str, object]) -> str | None:
    """The storage of a single graph to serve; None for the graphs of a cluster."""
    store = Given.of(ctx).storage()
    exclusive(cluster=cluster, store=store)
    if cluster is not None:
        for name, value in own.items():
            hint = (
                "leave it out: cluster.yaml declares it, and `omnigraph cluster apply` applies it"
            )
            exclusive(hint, cluster=cluster, **{name: value})
        return None
    if store is None:
        raise UsageError(
            "`omnigraph serve` does not know what to serve",
            hint="pass `--cluster DIR|URI`, what was applied to a cluster, or `--store URI`, one "
            "graph",
        )
    return storage_target(store).uri


def _audit(
    environment: Mapping[str, str],
    path: Path | None,
    required: bool,
    params: bool,
    size: int | None,
) -> AuditSettings | None:
    """Audit settings from flags, else from variables; raises `UsageError` without an audit file."""
    from omnigraph.graph.opening import audit_settings

    found = audit_settings(path, environment)
    if found is None:
        if required or params or size is not None:
            raise UsageError("there is no audit file", hint="name it with `--audit FILE`")
        return None
    return replace(
        found,
        required=required or found.required,
        params=params or found.params,
        bytes_max=found.bytes_max if size is None else size,
    )


def _path_of(environment: Mapping[str, str], name: str) -> Path | None:
    text = environment.get(name, "").strip()
    return Path(text) if text else None


def _seconds(flag: str, given: float | None, otherwise: float) -> float:
    if given is None:
        return otherwise
    if not 0 <= given < float("inf"):
        raise UsageError(f"`{flag}` takes a number of seconds, not {given}")
    return given


def _actor_seconds(text: str) -> tuple[str, float]:
    actor, _, seconds = text.rpartition("=")
    try:
        value = float(seconds)
    except ValueError:
        value = -1.0
    if not actor or not 0 <= value < float("inf"):
        raise UsageError(f"`--actor-query-timeout` takes ACTOR=SECONDS, not `{text}`")
    return actor, value


NoOpenFlag = Annotated[bool, flag("--no-open", "only print the address; open no browser")]


class StudioCommand(GraphCommand):
    """`studio`; writes from the page have the actor of the command line."""

    takes = GraphCommand.takes | {GlobalFlag.ACTOR}


@COMMANDS.add(StudioCommand)
def studio(
    ctx: typer.Context,
    *,
    queries: QueriesOption = None,
    no_open: NoOpenFlag = False,
    json: JsonFlag = False,
) -> None:
    """Open a graph in the browser: explore, query, compare branches.

    A server on this machine alone, on a free port, serves the page until Ctrl-C. The address that
    is printed opens one session: its code works once. Other users of the machine, and other pages
    in the browser, are refused. For a graph that several people look at, `omnigraph serve --studio`
    offers the same page behind tokens and a policy.

    omnigraph studio --store team.omni
    omnigraph studio --store team.omni --queries queries/ --no-open
    """
    require_library("omnigraph.server.run", "studio", extra="server")
    from omnigraph.server.auth import OwnerSession
    from omnigraph.server.config import DEFAULT_GRAPH_ID, GraphSpec, ServerConfig
    from omnigraph.server.run import serve as run_server

    output = output_of(ctx)
    owner = OwnerSession(actor_of(ctx))
    config = ServerConfig(
        graphs=(GraphSpec(DEFAULT_GRAPH_ID, resolve(ctx).uri, tuple(queries or ())),),
        bind="127.0.0.1:0",
        shutdown_seconds=STUDIO_SHUTDOWN_SECONDS,
        studio=True,
        owner=owner,
        logs_requests=False,
        environment=output.environment,
    )

    def announce(address: str) -> None:
        # In the fragment, so that the code is in no request and in no log.
        page = f"http://{address}/studio/#code={owner.code}&graph={DEFAULT_GRAPH_ID}"
        if json:
            output.json({"address": page})
        else:
            output.line(f"Studio is at {page}")
            output.line("The address works once. Ctrl-C ends Studio.")
        output.flush()
        if not no_open:
            threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()

    raise typer.Exit(run_server(config, announce))


WriteOption = Annotated[
    list[str] | None,
    option(
        "--allow-write",
        "BRANCH",
        "allow writes to this branch, or below a prefix with `agent/*`; repeatable",
    ),
]
AdhocFlag = Annotated[bool, flag("--adhoc", "also run queries that the model makes up")]
ReviewWriteFlag = Annotated[bool, flag("--review-write", "also approve and merge change requests")]
RowsOption = Annotated[int, option("--max-rows", "N", "rows of an answer; 200 by default", min=1)]


@COMMANDS.add(PayloadCommand)
def mcp(
    ctx: typer.Context,
    *,
    queries: QueriesOption = None,
    allow_write: WriteOption = None,
    adhoc: AdhocFlag = False,
    review_write: ReviewWriteFlag = False,
    max_rows: RowsOption = 200,
    json: JsonFlag = False,
) -> None:
    """Offer a graph to a language model, as tools of the Model Context Protocol.

    A client starts this command and talks to it over stdin and stdout. Every stored query is a tool
    with typed parameters, and others show the schema, branches and commits. Nothing is written
    unless `--allow-write` names branches; a server's policy decides on top of that. `--json` shapes
    the errors on stderr.

    omnigraph mcp --store team.omni --queries queries/
    omnigraph mcp --server https://graph.example.com --graph team
    omnigraph mcp --store team.omni --queries queries/ --allow-write 'agent/*' --adhoc
    """
    require_library("omnigraph.mcp.stdio", "mcp", extra="mcp")
    from omnigraph.mcp.stdio import serve
    from omnigraph.mcp.toolbox import ToolAccess

    access = ToolAccess.of(
        allow_write or (),
        adhoc=adhoc,
        rows_max=max_rows,
        actor=config_of(ctx).actor,
        reviews=review_write,
    )
    serve(*_tools(ctx, queries or [], access))


def _tools(
    ctx: typer.Context, queries: list[Path], access: ToolAccess
) -> tuple[list[Tool], list[McpResource]]:
    from omnigraph.client import RemoteGraph
    from omnigraph.mcp.toolbox import resources_of, stored_in_files, stored_on_server, tools_of

    flags = {"--queries": bool(queries)}
    if access.writes or access.reviews:
        graph = graph_to_write(ctx, "mcp", only_stored=flags)
    else:
        graph = graph_to_read(ctx, only_stored=flags)
    if isinstance(graph, RemoteGraph):
        stored = stored_on_server(graph)
    else:
        stored = stored_in_files(graph, queries, access.actor)
    return tools_of(graph, stored, access), resources_of(graph, stored, access)
