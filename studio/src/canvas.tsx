// Nodes and edges as a picture. The page beside it lists the same nodes: nothing is only here.
import cytoscape, { type Core, type ElementDefinition, type NodeSingular, type StylesheetJson } from "cytoscape";
import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceSimulation,
  forceX,
  forceY,
  type SimulationNodeDatum,
} from "d3-force";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface Dot {
  key: string;
  label: string;
  colour: string;
  group: string;
  /** How it changed, where a difference is drawn. */
  tone?: "insert" | "update" | "delete";
}
export interface Line {
  key: string;
  from: string;
  to: string;
  label: string;
  tone?: Dot["tone"];
}
export type Layout = "force" | "by type" | "circle" | "grid" | "levels";
export const LAYOUTS: Layout[] = ["force", "by type", "circle", "grid", "levels"];

export interface CanvasProps {
  label: string;
  dots: Dot[];
  lines: Line[];
  selected?: string[];
  pinned?: Set<string>;
  layout: Layout;
  onSelect?: (keys: string[]) => void;
  onOpen?: (key: string) => void;
  onPin?: (key: string) => void;
}

const MANY = 800;

// Cytoscape would add an inline style sheet, which the policy of the page forbids, unless an element
// of this name is there; `style.css` has the rule.
const SHEET = "__________cytoscape_stylesheet";
if (!document.getElementById(SHEET)) {
  document.head.append(Object.assign(document.createElement("meta"), { id: SHEET }));
}

export function Canvas(props: CanvasProps) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<Core | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  useLayoutEffect(() => {
    const cy = cytoscape({
      container: host.current!,
      style: lookOf(host.current!),
      minZoom: 0.05,
      maxZoom: 3,
      textureOnViewport: true,
      boxSelectionEnabled: true,
      selectionType: "single",
    });
    canvas.current = cy;
    (window as unknown as { studioCanvas: Core }).studioCanvas = cy;
    cy.on("tap", "node", (event) => {
      const key: string = event.target.id();
      const held = latest.current.selected ?? [];
      const isAdding = (event.originalEvent as MouseEvent | undefined)?.shiftKey;
      latest.current.onSelect?.(isAdding ? [...held.filter((each) => each !== key), key].slice(-2) : [key]);
    });
    cy.on("tap", (event) => event.target === cy && latest.current.onSelect?.([]));
    cy.on("dbltap", "node", (event) => latest.current.onOpen?.(event.target.id()));
    cy.on("dragfree", "node", (event) => latest.current.onPin?.(event.target.id()));
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => cy.style(lookOf(host.current!));
    dark.addEventListener("change", repaint);
    return () => {
      dark.removeEventListener("change", repaint);
      cy.destroy();
    };
  }, []);
  useLayoutEffect(() => {
    update(canvas.current!, props);
    arrange(canvas.current!, props);
  }, [props.dots, props.lines, props.layout]);
  useLayoutEffect(() => {
    const cy = canvas.current!;
    const wanted = new Set(props.selected ?? []);
    cy.batch(() => cy.nodes().forEach((node) => void node.toggleClass("chosen", wanted.has(node.id()))));
  }, [props.selected, props.dots]);
  return <div class="canvas" ref={host} role="img" aria-label={props.label} />;
}

function update(cy: Core, { dots, lines }: CanvasProps): void {
  const wanted: ElementDefinition[] = [
    ...dots.map(({ key, ...data }) => ({ group: "nodes" as const, data: { id: key, ...data }, classes: data.tone })),
    ...lines.map(({ key, from, to, ...data }) => ({
      group: "edges" as const,
      data: { id: key, source: from, target: to, ...data },
      classes: data.tone,
    })),
  ];
  const keys = new Set(wanted.map((each) => each.data.id));
  cy.batch(() => {
    cy.elements().forEach((each) => void (keys.has(each.id()) || each.remove()));
    for (const each of wanted) {
      const known = cy.getElementById(each.data.id!);
      if (known.empty()) cy.add(each);
      else known.data(each.data);
    }
    cy.elements().toggleClass("many", lines.length > 60);
  });
}

function arrange(cy: Core, { layout, pinned, dots }: CanvasProps): void {
  if (dots.length === 0) return;
  if (layout === "force" || layout === "by type") force(cy, layout === "by type", pinned ?? new Set());
  else {
    const name = layout === "levels" ? "breadthfirst" : layout;
    cy.layout({ name, animate: false, fit: false }).run();
  }
  cy.fit(undefined, 40);
  if (cy.zoom() > 1.4) {
    cy.zoom(1.4);
    cy.center();
  }
}

interface Body extends SimulationNodeDatum {
  id: string;
  group: string;
}

/** Springs along edges; nodes that have a place keep near it, pinned ones keep it. */
function force(cy: Core, byType: boolean, pinned: Set<string>): void {
  const placed = new Set(cy.nodes().filter((node) => node.scratch("placed")).map((node) => node.id()));
  const bodies: Body[] = cy.nodes().map((node, at) => {
    const near = node.neighborhood().nodes().filter((other) => placed.has(other.id()));
    const from = placed.has(node.id()) ? node.position() : near.nonempty() ? (near.first() as NodeSingular).position() : { x: 0, y: 0 };
    const reach = placed.has(node.id()) ? 0 : 30 + 6 * Math.sqrt(at);
    const [x, y] = [from.x + reach * Math.cos(at * 2.4), from.y + reach * Math.sin(at * 2.4)];
    const isPinned = pinned.has(node.id()) && placed.has(node.id());
    return { id: node.id(), group: node.data("group"), x, y, ...(isPinned ? { fx: x, fy: y } : {}) };
  });
  const groups = [...new Set(bodies.map((body) => body.group))].sort();
  const spread = 90 * Math.sqrt(bodies.length);
  const centre = (body: Body, turn: (angle: number) => number) =>
    byType ? spread * turn((2 * Math.PI * groups.indexOf(body.group)) / groups.length) : 0;
  const links = cy.edges().map((edge) => ({ source: edge.data("source"), target: edge.data("target") }));
  const isLarge = bodies.length > MANY;
  forceSimulation(bodies)
    .force("charge", forceManyBody().strength(isLarge ? -90 : -380).distanceMax(900).theta(isLarge ? 1.3 : 0.9))
    .force("link", forceLink<Body, { source: string; target: string }>(links).id((body) => body.id).distance(isLarge ? 60 : 110).strength(byType ? 0.03 : 0.5))
    .force("collide", isLarge ? null : forceCollide(34))
    .force("x", forceX<Body>((body) => centre(body, Math.cos)).strength(byType ? 0.3 : 0.05))
    .force("y", forceY<Body>((body) => centre(body, Math.sin)).strength(byType ? 0.3 : 0.07))
    .stop()
    .tick(isLarge ? 40 : 200);
  const places = new Map(bodies.map((body) => [body.id, { x: body.x!, y: body.y! }]));
  cy.batch(() =>
    cy.nodes().forEach((node) => {
      node.position(places.get(node.id())!);
      node.scratch("placed", true);
    }),
  );
}

/** Colours of the page, as Cytoscape wants them. */
function lookOf(host: HTMLElement): StylesheetJson {
  const styles = getComputedStyle(host);
  const variable = (name: string) => styles.getPropertyValue(name).trim();
  const tones = { insert: "#1f9d57", update: "#c19c00", delete: "#d64545" };
  return [
    {
      selector: "node",
      style: {
        "background-color": "data(colour)",
        label: "data(label)",
        color: variable("--text"),
        "font-size": 12,
        "text-valign": "bottom",
        "text-margin-y": 5,
        "text-max-width": "110px",
        "text-wrap": "ellipsis",
        "text-outline-color": variable("--raised"),
        "text-outline-width": 2,
        "min-zoomed-font-size": 7,
        width: 26,
        height: 26,
      },
    },
    {
      selector: "edge",
      style: {
        width: 1.5,
        "line-color": variable("--edge"),
        "target-arrow-color": variable("--edge"),
        "target-arrow-shape": "triangle",
        "arrow-scale": 0.9,
        "curve-style": "bezier",
        label: "data(label)",
        "font-size": 9.5,
        color: variable("--quiet"),
        "text-rotation": "autorotate",
        "text-background-color": variable("--raised"),
        "text-background-opacity": 0.85,
        "min-zoomed-font-size": 8,
      },
    },
    { selector: "edge.many", style: { label: "", "curve-style": "straight" } },
    {
      selector: ".chosen",
      style: { "border-width": 4, "border-color": variable("--focus"), "font-weight": "bold" },
    },
    ...Object.entries(tones).map(([tone, colour]) => ({
      selector: `.${tone}`,
      style: {
        "background-color": colour,
        "line-color": colour,
        "target-arrow-color": colour,
        "line-style": tone === "delete" ? ("dashed" as const) : ("solid" as const),
        "background-opacity": tone === "delete" ? 0.55 : 1,
      },
    })),
  ];
}
