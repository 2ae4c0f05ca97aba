// Who is looking: a token is kept for this tab alone, and shared with other tabs of this server.
import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, graphs, keepToken, openSession, token } from "./api";
import { Failure, asApiError } from "./parts";

const TABS = new BroadcastChannel("omnigraph-studio");

TABS.onmessage = ({ data }) => {
  const own = token();
  if (data === "token?" && own !== null) TABS.postMessage({ token: own });
};

/** Ask other tabs of this server for their token: a link opened in a new tab then just works. */
function tokenOfOtherTab(): Promise<string | null> {
  return new Promise((resolve) => {
    const asking = new BroadcastChannel("omnigraph-studio");
    const done = (found: string | null) => {
      asking.close();
      resolve(found);
    };
    asking.onmessage = ({ data }) => typeof data?.token === "string" && done(data.token);
    asking.postMessage("token?");
    setTimeout(() => done(null), 150);
  });
}

/** Exchange the one-time code of the address, which then disappears from it and from the history. */
export async function start(): Promise<ApiError | undefined> {
  const given = new URLSearchParams(location.hash.slice(1));
  const code = given.get("code");
  if (code === null) {
    if (token() === null) keepToken(await tokenOfOtherTab());
    return undefined;
  }
  history.replaceState(null, "", `#/${given.get("graph") ?? ""}`);
  try {
    keepToken((await openSession(code)).token);
    return undefined;
  } catch (problem) {
    return asApiError(problem);
  }
}

/** The graph that is meant if the address names none; null if it has to be asked for. */
export async function onlyGraph(): Promise<string | null> {
  const listed = await graphs().catch((problem: ApiError) => {
    if (problem.status === 403) return ["default"];
    throw problem;
  });
  return listed.length === 1 ? (listed[0] ?? null) : null;
}

export function SignIn(props: { graph: string; problem?: ApiError; done: (graph: string) => void }) {
  const [given, setGiven] = useState("");
  const [graph, setGraph] = useState(props.graph || "default");
  const [error, setError] = useState<ApiError | undefined>(props.problem);
  useEffect(() => {
    document.title = "Sign in · Omnigraph Studio";
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    keepToken(given.trim() || null);
    try {
      await ask("GET", `/graphs/${encodeURIComponent(graph)}/permissions`);
      props.done(graph);
    } catch (problem) {
      keepToken(null);
      setError(asApiError(problem));
    }
  };
  return (
    <main class="sign-in" id="main">
      <h1>Omnigraph Studio</h1>
      {error && <Failure error={error} />}
      <p>
        This server asks for a token. It is kept in this tab until you close it. If you started{" "}
        <code>omnigraph studio</code>, its address works once: end it with Ctrl-C and start it again
        for a new one.
      </p>
      <form onSubmit={submit}>
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            value={given}
            onInput={(event) => setGiven(event.currentTarget.value)}
          />
        </label>
        <label>
          Graph
          <input value={graph} required onInput={(event) => setGraph(event.currentTarget.value)} />
        </label>
        <button class="primary">Sign in</button>
      </form>
    </main>
  );
}
