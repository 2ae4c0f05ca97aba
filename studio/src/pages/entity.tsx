// One node or edge: all properties, its edges by type, its history.
import { useState } from "preact/hooks";
import { type Address, to } from "../address";
import { ApiError, type GraphType, type Row } from "../api";
import type { PageProps } from "../main";
import { Action, Cell, EntityLink, Failure, Moment, Show, capital, count, shortId, useLoad } from "../parts";
import { type Node, type Way, countWays, findEdge, findNode, follow, labelOf, typeNamed } from "../queries";
import { differences } from "./branches";

const EDGES_SHOWN = 50;

export function EntityPage(props: PageProps) {
  const { address, schema } = props;
  const { type: typeName = "", id = "" } = address.fields;
  const type = typeNamed(schema, typeName);
  if (!type || type.kind === "interface") {
    const hint = "It may have another name on this branch; look at the page Schema.";
    return <Failure error={new ApiError(404, `there is no type '${typeName}'`, hint)} />;
  }
  const View = type.kind === "node" ? NodeView : EdgeView;
  return <View key={`${typeName} ${id}`} {...props} type={type} id={id} />;
}

type EntityProps = PageProps & { type: GraphType; id: string };

function NodeView(props: EntityProps) {
  const { graph, schema, type, id, branch, at } = props;
  const found = useLoad(() => findNode(graph, type, id, { branch, at }), []);
  return (
    <Show of={found} what={`${type.name} ${id}`}>
      {(node) =>
        node === null ? (
          <Missing {...props} />
        ) : (
          <>
            <h1 dir="auto">
              {labelOf(schema, node)} <span class="kind">{type.name}</span>
              <a class="button" href={to(props.address, "explore", { show: exploreKey(type.name, id), select: exploreKey(type.name, id) })}>
                Show on the canvas
              </a>
            </h1>
            <div class="split">
              <div>
                <Properties {...props} properties={{ id: node.id, ...node.properties }} />
                <Edges {...props} node={node} />
              </div>
              <History {...props} />
            </div>
          </>
        )
      }
    </Show>
  );
}

const exploreKey = (type: string, id: string) => `${type}:${id}`.replace(/[%,]/g, encodeURIComponent);

function EdgeView(props: EntityProps) {
  const { graph, type, id, branch, at, address } = props;
  const { from, to } = address.fields;
  const found = useLoad(() => findEdge(graph, type, id, { branch, at }, from && to ? { from, to } : undefined), []);
  return (
    <Show of={found} what={`${type.name} ${id}`}>
      {(edge) =>
        edge === null ? (
          <Missing {...props} />
        ) : (
          <>
            <h1>
              <EntityLink address={address} type={edge.fromType} id={edge.from} /> → {type.name} →{" "}
              <EntityLink address={address} type={edge.toType} id={edge.to} />
            </h1>
            <div class="split">
              <Properties {...props} properties={{ id: edge.id, from: edge.from, to: edge.to, ...edge.properties }} />
              <History {...props} />
            </div>
          </>
        )
      }
    </Show>
  );
}

/** It is not here now; its history may say where it was. */
function Missing(props: EntityProps) {
  const where = props.at ? `at commit ${shortId(props.at)}` : `on branch ${props.branch}`;
  return (
    <>
      <h1>{props.type.name}</h1>
      <Failure
        error={new ApiError(404, `there is no ${props.type.name} '${props.id}' ${where}`, "Its history, if it has one, is below.")}
      />
      <History {...props} />
    </>
  );
}

function Properties(props: EntityProps & { properties: Row }) {
  const blobs = props.type.properties.filter((each) => each.kind === "blob");
  return (
    <section class="card" aria-label="Properties">
      <table class="properties">
        <tbody>
          {Object.entries(props.properties).map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>
                <Cell value={value} />
              </td>
            </tr>
          ))}
          {blobs.map((each) => (
            <tr key={each.name}>
              <th scope="row">{each.name}</th>
              <td>
                <BlobValue {...props} property={each.name} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Bytes are fetched when they are asked for: pictures are shown, all else is offered as a file. */
function BlobValue({ graph, type, id, branch, at, property }: EntityProps & { property: string }) {
  const [found, setFound] = useState<{ url: string; isPicture: boolean; size: number }>();
  if (found === undefined) {
    const load = async () => {
      const response = await graph.blob(type.kind, type.name, id, property, { branch, at });
      const bytes = await response.arrayBuffer();
      const media = pictureType(new Uint8Array(bytes));
      const url = URL.createObjectURL(new Blob([bytes], { type: media ?? "application/octet-stream" }));
      setFound({ url, isPicture: media !== null, size: bytes.byteLength });
    };
    return <Action label="Load" run={load} />;
  }
  return (
    <>
      {found.isPicture && <img class="blob" src={found.url} alt={`${property} of ${id}`} />}
      <a href={found.url} download={`${id}-${property}`}>
        Save {count(found.size)} bytes
      </a>
    </>
  );
}

/** The media type of a picture, by its first bytes. Never SVG, which could hold a script. */
function pictureType(bytes: Uint8Array): string | null {
  const start = String.fromCharCode(...bytes.slice(0, 12));
  if (start.startsWith("\x89PNG")) return "image/png";
  if (start.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (start.startsWith("GIF8")) return "image/gif";
  return start.startsWith("RIFF") && start.endsWith("WEBP") ? "image/webp" : null;
}

// --- edges ---------------------------------------------------------------------------------------

function Edges(props: EntityProps & { node: Node }) {
  const { graph, schema, node, branch, at } = props;
  const ways = useLoad(() => countWays(graph, schema, node, { branch, at }), []);
  return (
    <section class="card" aria-label="Edges">
      <h2>Edges</h2>
      <Show of={ways} what="edges">
        {(found) =>
          found.every(({ count }) => count === 0) ? (
            <p>No edges.</p>
          ) : (
            <>
              {found
                .filter(({ count }) => count > 0)
                .map(({ way, count }) => (
                  <Direction key={`${way.edge.name} ${way.direction}`} {...props} way={way} amount={count} />
                ))}
            </>
          )
        }
      </Show>
    </section>
  );
}

function Direction(props: EntityProps & { node: Node; way: Way; amount: number }) {
  const { graph, schema, node, way, amount, branch, at, address } = props;
  const [isOpen, setOpen] = useState(amount <= 10);
  const load = () => follow(graph, node, way, { branch, at }, EDGES_SHOWN);
  const arrow = way.direction === "out" ? "→" : "←";
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {arrow} {way.edge.name} <span class="count">{count(amount)}</span>
      </summary>
      {isOpen && <Neighbours {...{ load, address, schema, amount }} />}
    </details>
  );
}

function Neighbours(props: {
  load: () => ReturnType<typeof follow>;
  address: Address;
  schema: PageProps["schema"];
  amount: number;
}) {
  const found = useLoad(props.load, []);
  return (
    <Show of={found} what="edges">
      {({ nodes, edges }) => (
        <ul>
          {nodes.map((node, at) => (
            <li key={edges[at]!.id}>
              <EntityLink address={props.address} type={node.type} id={node.id}>
                <bdi>{labelOf(props.schema, node)}</bdi>
              </EntityLink>{" "}
              <small>
                {node.type} · <EntityLink address={props.address} {...edges[at]!}>edge</EntityLink>
              </small>
            </li>
          ))}
          {props.amount > nodes.length && <li>… and {count(props.amount - nodes.length)} more</li>}
        </ul>
      )}
    </Show>
  );
}

// --- history -------------------------------------------------------------------------------------

function History({ graph, type, id, branch, at, address }: EntityProps) {
  const found = useLoad(() => graph.history(`${type.kind}:${type.name}`, id, branch), []);
  return (
    <section class="card" aria-label="History">
      <h2>History</h2>
      <Show of={found} what="the history">
        {({ versions }) =>
          versions.length === 0 ? (
            <p>No commit of this branch changed it.</p>
          ) : (
            <ol class="history">
              {versions.map(({ cause, change }) => {
                const commit = cause.graph_commit_id;
                return (
                  <li key={commit} class={change.op} aria-current={commit === at ? "true" : undefined}>
                    <a href={to(address, "entity", { type: type.name, id, at: commit, branch: undefined })}>
                      {capital(change.op)} <Moment us={cause.authored_at} />
                    </a>{" "}
                    by {cause.actor_id ?? "no actor"} on <bdi>{cause.authored_branch}</bdi>,{" "}
                    <a href={to(address, "branches", { commit })}>
                      <code>{shortId(commit)}</code>
                    </a>
                    <br />
                    <small>{differences(change)}</small>
                  </li>
                );
              })}
            </ol>
          )
        }
      </Show>
    </section>
  );
}
