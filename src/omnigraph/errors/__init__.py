"""The error tree: what went wrong, where, and what the caller may do next.

Every error of the product is an `OmnigraphError`. Classes are split by what a caller can do about
them, and each carries a stable ``code`` (match on that or on the class, never on message text), one
sentence in ``message``, an optional ``hint`` naming the next step, and structured ``details``::

    OmnigraphError
    ├── InputError (ValueError)         fix the request; nothing was written
    │   ├── SchemaContractError         the accepted schema objects do not agree
    │   ├── UnsupportedSchemaChange     a migration step that cannot be applied
    │   ├── WrongVerb                   a query that writes was to be read, or the reverse
    │   ├── ParameterError              a query parameter is missing or mistyped
    │   ├── ValueConversionError        a value does not fit its property
    │   ├── ConstraintViolation         @unique, @range, @check, endpoints, @card
    │   ├── SourceChanged               a file changed while it was loaded
    │   ├── PolicyInvalid               a policy bundle, or a file of its tests
    │   ├── BlobRangeError              a byte range outside the value
    │   ├── ChangeCursorRejected        a cursor or page token of another place
    │   └── CompileError                a .pg or .gq text, with its position
    │       ├── SchemaParseError        parse error: …
    │       ├── CatalogError            catalog error: …
    │       ├── IdentityError           identity error: …
    │       ├── QueryParseError         parse error: …
    │       └── QueryTypeError          type error: T4: …
    ├── NotFound                        branch, commit, type, query, entity, object
    ├── LimitExceeded                   actual, limit, and the knob
    ├── Conflict                        nothing landed; refresh and try again
    │   ├── AlreadyExists               the name is taken
    │   │   └── AlreadyInitialized      the root holds a graph, or leftovers of one
    │   ├── ExpectedVersionMismatch     a table of the write set moved
    │   ├── ReadSetChanged              head, ref or schema moved
    │   ├── KeyConflict                 a strict insert met an existing id
    │   ├── RowLevelCasContention       the publish budget is exhausted
    │   ├── UncoveredDrift              a table moved with no owner
    │   ├── EffectFreeConflict          another writer was first; prepare it again
    │   ├── FencedOut                   another writer took over
    │   ├── PreconditionFailed          a conditional write lost
    │   ├── MergeConflicts              a three-way merge needs a decision
    │   └── ChangeDiffRefused           the commit has no comparable parent
    ├── Busy                            wait and retry
    │   ├── InitializationClaimed       another `init` of the same root is running
    │   ├── WriterBusy                  a live writer holds the lease
    │   └── TooManyRequests             admission control
    ├── RecoveryRequired                an unfinished operation must be settled first
    │   └── UnreadableSidecar           its record cannot be understood
    ├── OutcomeUnknown                  ask again with the operation id
    │   ├── InitializationIndeterminate  `init` got no answer at its commit point
    │   └── AnswerLost                  a server may or may not have done a write
    ├── ServerUnreachable               no server answered
    ├── UnexpectedAnswer                whatever answered is no Omnigraph server
    ├── EmbeddingError                  the provider refused, or sent no usable vector
    ├── Denied                          the actor may not do this
    │   └── PolicyDenied                no rule of the policy allows it
    ├── PolicyEvaluationFailed          the policy has no answer: neither yes nor no
    ├── Unauthenticated                 no valid token
    ├── StorageError                    the store under the graph failed
    │   ├── InitializationCommitted     `init` made the graph, then failed
    │   ├── LeaseLost                   a writer was too slow to keep what it owned
    │   ├── DamagedFile                 a file is cut off, or not what it should be
    │   ├── HistoricalVersionReclaimed  the pinned version was cleaned up
    │   ├── ChangeFeedGap               the feed cannot be read from there
    │   ├── RootMoved                   branches remember another root
    │   ├── UnsupportedStorageVersion   written by a newer product
    │   └── ExternalBlobUnavailable     the object behind a blob URI
    └── InternalError                   a bug; please report it

The modules of this package hold one kind each; import from here. HTTP status and exit codes are one
mapping each, in ``wire`` and ``cli``.
"""

from __future__ import annotations

# In the order of the tree: the reference page lists errors as they are defined.
# isort: off
from omnigraph.errors.base import OmnigraphError
from omnigraph.errors.request import (
    BlobRangeError,
    ChangeCursorRejected,
    ConstraintViolation,
    InputError,
    LimitExceeded,
    NotFound,
    ParameterError,
    PolicyInvalid,
    SchemaContractError,
    SourceChanged,
    UnsupportedSchemaChange,
    ValueConversionError,
    WrongVerb,
)
from omnigraph.errors.texts import (
    CatalogError,
    CompileError,
    IdentityError,
    Position,
    QueryParseError,
    QueryTypeError,
    SchemaParseError,
)
from omnigraph.errors.conflicts import (
    FencedOut,
    EffectFreeConflict,
    AlreadyExists,
    AlreadyInitialized,
    ChangeDiffRefused,
    Conflict,
    ExpectedVersionMismatch,
    KeyConflict,
    MergeConflicts,
    PreconditionFailed,
    ReadSetChanged,
    RowLevelCasContention,
    UncoveredDrift,
)
from omnigraph.errors.waiting import (
    Busy,
    InitializationClaimed,
    TooManyRequests,
    WriterBusy,
)
from omnigraph.errors.outcomes import (
    UnreadableSidecar,
    AnswerLost,
    InitializationIndeterminate,
    OutcomeUnknown,
    RecoveryRequired,
)
from omnigraph.errors.remote import (
    EmbeddingError,
    ServerUnreachable,
    UnexpectedAnswer,
)
from omnigraph.errors.access import (
    Denied,
    PolicyDenied,
    PolicyEvaluationFailed,
    Unauthenticated,
)
from omnigraph.errors.store import (
    LeaseLost,
    ChangeFeedGap,
    DamagedFile,
    ExternalBlobUnavailable,
    HistoricalVersionReclaimed,
    InitializationCommitted,
    RootMoved,
    StorageError,
    UnsupportedStorageVersion,
)
from omnigraph.errors.internal import InternalError

# isort: on

__all__ = [
    "AlreadyExists",
    "AlreadyInitialized",
    "AnswerLost",
    "BlobRangeError",
    "Busy",
    "CatalogError",
    "ChangeCursorRejected",
    "ChangeDiffRefused",
    "ChangeFeedGap",
    "CompileError",
    "Conflict",
    "ConstraintViolation",
    "DamagedFile",
    "Denied",
    "EffectFreeConflict",
    "EmbeddingError",
    "ExpectedVersionMismatch",
    "ExternalBlobUnavailable",
    "FencedOut",
    "HistoricalVersionReclaimed",
    "IdentityError",
    "InitializationClaimed",
    "InitializationCommitted",
    "InitializationIndeterminate",
    "InputError",
    "InternalError",
    "KeyConflict",
    "LeaseLost",
    "LimitExceeded",
    "MergeConflicts",
    "NotFound",
    "OmnigraphError",
    "OutcomeUnknown",
    "ParameterError",
    "PolicyDenied",
    "PolicyEvaluationFailed",
    "PolicyInvalid",
    "Position",
    "PreconditionFailed",
    "QueryParseError",
    "QueryTypeError",
    "ReadSetChanged",
    "RecoveryRequired",
    "RootMoved",
    "RowLevelCasContention",
    "SchemaContractError",
    "SchemaParseError",
    "ServerUnreachable",
    "SourceChanged",
    "StorageError",
    "TooManyRequests",
    "Unauthenticated",
    "UncoveredDrift",
    "UnexpectedAnswer",
    "UnreadableSidecar",
    "UnsupportedSchemaChange",
    "UnsupportedStorageVersion",
    "ValueConversionError",
    "WriterBusy",
    "WrongVerb",
]

# Which module a class is written in is nobody's business: tracebacks, pickles and the reference
# page name the place it is imported from.
for _name in __all__:
    globals()[_name].__module__ = __name__
