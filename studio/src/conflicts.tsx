// Conflicts of a merge: base, source and target beside each other, and who wins, entity by entity or
// property by property.
import { useState } from "preact/hooks";
import type { ConflictRule, Graph, Image, MergeConflict, MergePlan, MergeRules } from "./api";
import { Cell, type Loaded, plural, shown, useLoad } from "./parts";

type Granularity = NonNullable<MergeRules["granularity"]>;
type Choices = Record<string, ConflictRule>;

/** Kinds that a side can win; a broken schema has no winner. */
const SETTLED_BY_SIDE = ["divergent_insert", "divergent_update", "delete_vs_update"];
const canBeSettled = (conflict: MergeConflict) => SETTLED_BY_SIDE.includes(conflict.kind) && conflict.entity_id !== null;

/** What rules are for: an entity, or each property of it that both sides changed. */
function subjectsOf(conflict: MergeConflict, granularity: Granularity): string[] {
  const { type_name, entity_id, properties } = conflict;
  if (granularity === "entity" || conflict.kind !== "divergent_update" || !properties?.length) {
    return [`${type_name}:${entity_id}`];
  }
  return properties.map((name) => `${type_name}.${name}:${entity_id}`);
}

/** A merge that is being settled: its plan, what was chosen, and the rules that follow from it. */
export interface Settling {
  loaded: Loaded<Record<Granularity, MergePlan> | undefined>;
  plan?: MergePlan;
  granularity: Granularity;
  setGranularity: (next: Granularity) => void;
  choices: Choices;
  choose: (subjects: string[], side: ConflictRule) => void;
  isSettled: boolean;
  rules: MergeRules;
}

/** The plan is asked for if `isNeeded`, and again whenever one of `inputs` changes. */
export function useSettling(graph: Graph, source: string, target: string, isNeeded: boolean, inputs: unknown[]): Settling {
  const [granularity, setGranularity] = useState<Granularity>("entity");
  const [choices, setChoices] = useState<Choices>({});
  const loaded = useLoad(async () => {
    if (!isNeeded) return undefined;
    const entity = await graph.planMerge(source, target);
    const hasConflicts = entity.merge_conflicts.length > 0;
    const property = hasConflicts ? await graph.planMerge(source, target, { granularity: "property" }) : entity;
    return { entity, property };
  }, [isNeeded, ...inputs]);
  const plan = loaded.value?.[granularity];
  const conflicts = plan?.merge_conflicts ?? [];
  const subjects = conflicts.flatMap((each) => subjectsOf(each, granularity));
  return {
    loaded,
    plan,
    granularity,
    setGranularity,
    choices,
    choose: (wanted, side) => setChoices({ ...choices, ...Object.fromEntries(wanted.map((each) => [each, side])) }),
    isSettled:
      !loaded.isLoading && conflicts.every(canBeSettled) && subjects.every((each) => choices[each] !== undefined),
    rules: {
      granularity,
      on_conflict_of: Object.fromEntries(subjects.flatMap((each) => (choices[each] ? [[each, choices[each]]] : []))),
    },
  };
}

interface ConflictsProps extends Settling {
  source: string;
  target: string;
}

export function Conflicts(props: ConflictsProps) {
  const { granularity, source, target } = props;
  const conflicts = props.plan?.merge_conflicts ?? [];
  const subjects = conflicts.filter(canBeSettled).flatMap((each) => subjectsOf(each, granularity));
  const left = subjects.filter((each) => props.choices[each] === undefined).length;
  return (
    <section class="conflicts" aria-label="Conflicts">
      <div class="answer-head">
        <h3>{plural(conflicts.length, "conflict")}</h3>
        <div role="group" aria-label="Settle them" class="tabs">
          {(["entity", "property"] as const).map((each) => (
            <button key={each} type="button" aria-pressed={granularity === each} onClick={() => props.setGranularity(each)}>
              By {each}
            </button>
          ))}
        </div>
      </div>
      <p>
        {granularity === "entity"
          ? "One side wins for each entity, with all of its properties."
          : "Edits of different properties go together. Where both sides changed a property, one of them wins."}
      </p>
      {subjects.length > 1 && (
        <p class="actions">
          All:
          <button type="button" onClick={() => props.choose(subjects, "source")}>
            take <bdi>{source}</bdi>
          </button>
          <button type="button" onClick={() => props.choose(subjects, "target")}>
            keep <bdi>{target}</bdi>
          </button>
        </p>
      )}
      {conflicts.map((each, at) => (
        <Conflict key={`${granularity} ${at}`} {...props} conflict={each} />
      ))}
      {conflicts.length > 0 && (
        <p role="status">{left === 0 ? "Everything is settled." : `${plural(left, "choice")} left.`}</p>
      )}
    </section>
  );
}

function Conflict(props: ConflictsProps & { conflict: MergeConflict }) {
  const { conflict, granularity, choices, choose, source, target } = props;
  const subjects = subjectsOf(conflict, granularity);
  const images = [conflict.base, conflict.source, conflict.target];
  const values = images.map(flat);
  const names = conflict.properties?.length
    ? conflict.properties
    : [...new Set(values.flatMap((each) => Object.keys(each)))].filter(
        (name) => new Set(values.map((each) => JSON.stringify(each[name]))).size > 1,
      );
  const bySubject = granularity === "property" && subjects[0]!.includes(".") && subjects.length === names.length;
  const title = `${conflict.type_name} ${conflict.entity_id ?? ""}`;
  const side = (subject: string, which: "source" | "target", text: string, what: string) => (
    <label class="inline">
      <input
        type="radio"
        name={subject}
        checked={choices[subject] === which}
        onChange={() => choose([subject], which)}
        aria-label={`${which === "source" ? `take ${source}` : `keep ${target}`} for ${what}`}
      />
      {text}
    </label>
  );
  return (
    <fieldset class="conflict">
      <legend>
        {conflict.type_name} <bdi>{conflict.entity_id}</bdi>
      </legend>
      <p>{conflict.message}</p>
      {names.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
          <table>
            <thead>
              <tr>
                <th scope="col">Property</th>
                <th scope="col">Base</th>
                <th scope="col">Source: {source}</th>
                <th scope="col">Target: {target}</th>
              </tr>
            </thead>
            <tbody>
              {names.map((name, at) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td>
                    <Value image={images[0]} value={values[0]![name]} />
                  </td>
                  {(["source", "target"] as const).map((which, column) => {
                    const isChosen = choices[bySubject ? subjects[at]! : subjects[0]!] === which;
                    return (
                      <td key={which} class={isChosen ? "chosen" : undefined}>
                        {bySubject ? side(subjects[at]!, which, shown(values[column + 1]![name]) || "null", name) : (
                          <Value image={images[column + 1]} value={values[column + 1]![name]} />
                        )}
                      </td>
                    );
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!canBeSettled(conflict) && <p>No side can win this one: change one of the branches, then come back.</p>}
      {canBeSettled(conflict) && !bySubject && (
        <p class="actions">
          {side(subjects[0]!, "source", `take ${source}${conflict.source ? "" : ", which removed it"}`, title)}
          {side(subjects[0]!, "target", `keep ${target}${conflict.target ? "" : ", which removed it"}`, title)}
        </p>
      )}
    </fieldset>
  );
}

function Value({ image, value }: { image?: Image; value: unknown }) {
  return image === undefined ? <small>not there</small> : <Cell value={value} />;
}

/** The values of one side; the ends of an edge are among them. */
export function flat(image?: Image): Record<string, unknown> {
  if (!image) return {};
  const { endpoints } = image;
  return { ...(endpoints ? { from: endpoints.from, to: endpoints.to } : {}), ...image.properties };
}
