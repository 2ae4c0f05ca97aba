// The frame around every page: who looks at which branch of which graph, and at which commit.
import { Component, type ComponentChildren, type FunctionComponent, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Address, MAIN, format, go, to, useAddress } from "./address";
import { ApiError, Graph, type Permissions, SIGNED_OUT, type Schema, keepToken } from "./api";
import { Branches } from "./pages/branches";
import { Compare } from "./pages/compare";
import { EntityPage } from "./pages/entity";
import { Explore } from "./pages/explore";
import { Health } from "./pages/health";
import { QueryPage } from "./pages/query";
import { Reviews } from "./pages/reviews";
import { SchemaPage } from "./pages/schema";
import { Failure, Show, shortId, useLoad } from "./parts";
import { SignIn, onlyGraph, start } from "./session";

/** What every page gets. */
export interface PageProps {
  address: Address;
  graph: Graph;
  branch: string;
  at?: string;
  schema: Schema;
  permissions: Permissions;
  /** Ask for branches, schema and permissions again, after a change. */
  refresh: () => void;
  branches: string[];
}

const PAGES: Record<string, { title: string; page: FunctionComponent<PageProps>; isHidden?: boolean }> = {
  explore: { title: "Explore", page: Explore },
  query: { title: "Query", page: QueryPage },
  schema: { title: "Schema", page: SchemaPage },
  branches: { title: "Branches", page: Branches },
  compare: { title: "Compare", page: Compare },
  reviews: { title: "Reviews", page: Reviews },
  health: { title: "Health", page: Health },
  entity: { title: "Entity", page: EntityPage, isHidden: true },
};
const FIRST = "explore";

function Studio({ problem }: { problem?: ApiError }) {
  const address = useAddress();
  const [signInProblem, setProblem] = useState(problem);
  const [isAsking, setAsking] = useState(problem !== undefined);
  const [round, setRound] = useState(0);
  const found = useLoad(() => find(address), [address.graph, round]);
  const refused = found.error?.status === 401 ? found.error : undefined;
  useEffect(() => {
    if (found.value && !address.graph) {
      history.replaceState(null, "", format({ graph: found.value, page: FIRST, fields: {} }));
      dispatchEvent(new HashChangeEvent("hashchange"));
    }
  }, [found.value, address.graph]);
  // Whatever was asked for: a token that ended leads to the form, and from there back to this page.
  useEffect(() => {
    const signOut = ({ detail }: CustomEvent<ApiError>) => {
      keepToken(null);
      setProblem(detail);
      setAsking(true);
    };
    addEventListener(SIGNED_OUT, signOut as EventListener);
    return () => removeEventListener(SIGNED_OUT, signOut as EventListener);
  }, []);
  if (isAsking || refused) {
    return (
      <SignIn
        graph={address.graph}
        problem={signInProblem}
        done={(graph) => {
          setProblem(undefined);
          setAsking(false);
          if (graph !== address.graph) location.hash = format({ graph, page: FIRST, fields: {} });
          setRound(round + 1);
        }}
      />
    );
  }
  return (
    <Show of={found} what="the graph">
      {() => (address.graph ? <Shell key={address.graph} address={address} /> : null)}
    </Show>
  );
}

/** The graph of the address; raises what keeps it from being looked at. */
async function find(address: Address): Promise<string | null> {
  if (!address.graph) return onlyGraph();
  await new Graph(address.graph).permissions();
  return address.graph;
}

function Shell({ address }: { address: Address }) {
  const branch = address.fields.branch ?? MAIN;
  const at = address.fields.at;
  const [graph] = useState(() => new Graph(address.graph));
  const loaded = useLoad(async () => {
    const [schema, permissions, branches] = await Promise.all([
      graph.schema({ branch, at }),
      graph.permissions(branch),
      graph.branches(),
    ]);
    return { schema, permissions, branches };
  }, [branch, at]);
  const known = PAGES[address.page || FIRST];
  useEffect(() => {
    document.title = `${known?.title ?? "Not found"} · ${address.graph} · Omnigraph Studio`;
    document.getElementById("main")?.focus();
  }, [address.page, address.graph]);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the page
      </a>
      <header>
        <a class="brand" href={to(address, FIRST)}>
          <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
            <path d="M8 9 23 8M8 9 16 24M23 8 16 24" stroke="currentColor" stroke-width="2" />
            <circle cx="8" cy="9" r="5" class="a" />
            <circle cx="24" cy="8" r="4" class="b" />
            <circle cx="16" cy="24" r="5.5" class="c" />
          </svg>
          <span>{address.graph}</span>
        </a>
        <nav aria-label="Pages">
          {Object.entries(PAGES).map(([name, entry]) =>
            entry.isHidden ? null : (
              <a
                key={name}
                href={to(address, name)}
                aria-current={name === (address.page || FIRST) ? "page" : undefined}
              >
                {entry.title}
              </a>
            ),
          )}
        </nav>
        <label class="branch">
          <span>Branch</span>
          <select
            value={branch}
            onChange={(event) => go(address, { branch: event.currentTarget.value, at: undefined })}
          >
            {[...new Set([...(loaded.value?.branches ?? [MAIN]), branch])].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <span class="actor">{loaded.value?.permissions.actor_id}</span>
      </header>
      {at && (
        <p class="past" role="status">
          You see the graph as it was at commit{" "}
          <a href={to(address, "branches", { commit: at })}>
            <code>{shortId(at)}</code>
          </a>
          . <a href={format({ ...address, fields: { ...address.fields, at: undefined } })}>Back to now</a>
        </p>
      )}
      <main id="main" tabIndex={-1}>
        <Guard key={address.page}>
          {known === undefined ? (
            <Failure error={new ApiError(404, `there is no page '${address.page}'`, "Choose one above.")} />
          ) : (
            <Show of={loaded} what="the schema">
              {(value) => (
                <known.page
                  key={`${address.page} ${branch} ${at}`}
                  {...{ address, graph, branch, at, ...value, refresh: loaded.reload }}
                />
              )}
            </Show>
          )}
        </Guard>
      </main>
    </>
  );
}

function skip(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** An error of the page itself becomes a message, never a blank page. */
class Guard extends Component<{ children: ComponentChildren }, { problem?: Error }> {
  static getDerivedStateFromError(problem: Error) {
    return { problem };
  }

  render() {
    const { problem } = this.state;
    if (problem === undefined) return this.props.children;
    const error = new ApiError(0, `the page failed: ${problem.message}`, "This is a bug of Studio.");
    return <Failure error={error} retry={() => location.reload()} />;
  }
}

start().then((problem) => render(<Studio problem={problem} />, document.getElementById("app")!));
