// The schema: a diagram of types and edges, every property, and the plan of an edited text.
import { useState } from "preact/hooks";
import { MAIN, go, to } from "../address";
import type { GraphType, Row } from "../api";
import { ApiError } from "../api";
import { Editor } from "../editor";
import type { PageProps } from "../main";
import { Action, EmptyGraph, Failure, Show, asApiError, isEmpty, plural, shown, useLoad } from "../parts";
import { SchemaDiagram } from "../diagram";

export function SchemaPage(props: PageProps) {
  const { address, schema } = props;
  const types = schema.types;
  const chosen = types.find((type) => type.name === address.fields.type);
  const choose = (name: string) => go(address, { type: name }, true);
  return (
    <>
      <h1>Schema</h1>
      {isEmpty(schema) && <EmptyGraph graph={props.graph} schema={schema} />}
      <SchemaDiagram types={types} chosen={chosen?.name} onChoose={choose} />
      <div class="types">
        {types.map((type) => (
          <TypeCard key={`${type.kind} ${type.name}`} type={type} address={address} isChosen={type === chosen} />
        ))}
      </div>
      {props.branch === "main" && !props.at && <EditSchema {...props} />}
    </>
  );
}

function TypeCard(props: { type: GraphType; address: PageProps["address"]; isChosen: boolean }) {
  const { type, address } = props;
  return (
    <section class={`card type ${props.isChosen ? "chosen" : ""}`} aria-label={`${type.kind} ${type.name}`}>
      <h2>
        <span class="kind">{type.kind}</span> {type.name}
        {type.kind === "edge" && (
          <small>
            {" "}
            {type.source} → {type.target}
          </small>
        )}
        {type.entity_count !== undefined && (
          <span class="count">{plural(type.entity_count, type.kind)}</span>
        )}
      </h2>
      {type.description && <p>{type.description}</p>}
      {type.implements && <p>implements {type.implements.join(", ")}</p>}
      {type.properties.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Properties of ${type.name}`}>
          <table>
            <thead>
              <tr>
                <th scope="col">Property</th>
                <th scope="col">Type</th>
                <th scope="col">Rules</th>
                <th scope="col">Indexes</th>
              </tr>
            </thead>
            <tbody>
              {type.properties.map((each) => (
                <tr key={each.name}>
                  <td>
                    {each.name}
                    {each.description && <small> {each.description}</small>}
                  </td>
                  <td>
                    <code>{each.type}</code>
                  </td>
                  <td>
                    <code>{each.rules?.join(" ")}</code>
                  </td>
                  <td>{each.indexes?.join(", ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {type.rules && (
        <p>
          <code>{type.rules.join(" ")}</code>
        </p>
      )}
      {type.kind === "node" && (
        <p>
          <a href={to(address, "query", { q: rowsOf(type) })}>Look at its rows</a>
        </p>
      )}
    </section>
  );
}

export function rowsOf(type: GraphType): string {
  const items = type.properties
    .filter((each) => each.kind !== "blob" && each.kind !== "vector")
    .map((each) => `$n.${each.name} as ${each.name}`);
  return `query rows {\n    match { $n: ${type.name} }\n    return { $n as id${items.length ? `, ${items.filter((item) => !item.endsWith(" as id")).join(", ")}` : ""} }\n    limit 100\n}\n`;
}

function EditSchema({ graph, permissions, refresh }: PageProps) {
  const [isOpen, setOpen] = useState(false);
  const source = useLoad(() => graph.schemaSource(), []);
  return (
    <details class="card" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Text, and the plan of another one</summary>
      {isOpen && (
        <Show of={source} what="the schema">
          {(value) => (
            <Planner
              source={value.schema_source}
              graph={graph}
              mayApply={permissions.actions.includes("schema_apply")}
              refresh={refresh}
            />
          )}
        </Show>
      )}
    </details>
  );
}

function Planner(props: { source: string; graph: PageProps["graph"]; mayApply: boolean; refresh: () => void }) {
  const [text, setText] = useState(props.source);
  const [plan, setPlan] = useState<{ of: string; supported: boolean; steps: Row[] }>();
  const [error, setError] = useState<ApiError>();
  const make = async () => {
    setError(undefined);
    setPlan(undefined);
    try {
      setPlan({ of: text, ...(await props.graph.planSchema(text)) });
    } catch (problem) {
      setError(asApiError(problem));
    }
  };
  const isCurrent = plan !== undefined && plan.of === text;
  return (
    <>
      <Editor
        label="Schema text"
        language="pg"
        graph={props.graph}
        branch={MAIN}
        {...{ text, error }}
        onChange={setText}
        onRun={make}
      />
      <p class="actions">
        <button type="button" onClick={make} disabled={text === props.source}>
          Plan the change
        </button>
        {isCurrent && plan.supported && plan.steps.length > 0 && props.mayApply && (
          <Action
            label="Apply to main"
            kind="primary"
            confirm={`${plural(plan.steps.length, "step")} change the schema of main.`}
            run={async () => {
              await props.graph.applySchema(text);
              setPlan(undefined);
              props.refresh();
            }}
          />
        )}
      </p>
      {error && <Failure error={error} />}
      {isCurrent && (
        <>
          <p role="status">
            {plan.steps.length === 0
              ? "Both texts mean the same schema."
              : `${plural(plan.steps.length, "step")}${plan.supported ? "" : "; not all are supported, so it cannot be applied"}`}
          </p>
          <ol>
            {plan.steps.map((step, at) => (
              <li key={at}>
                <code>{Object.values(step).map(shown).join(" · ")}</code>
              </li>
            ))}
          </ol>
        </>
      )}
    </>
  );
}

