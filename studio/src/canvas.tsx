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

/** Nodes from which on a layout is made in slices, and edges are drawn in the cheapest way. */
const MANY = 500;
const SLICE_MS = 12;

/** What became of the last layout, for whoever measures or tests: `studioCanvas.scratch("layout")`. */
export interface LayoutState {
  isSettled: boolean;
  ticks: number;
  /** Parts it was made in, between which the page answers. */
  slices: number;
}

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
  const stop = useRef<(() => void) | undefined>(undefined);
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
    // Another width shows all of it again, unless somebody has moved it.
    let isMoved = false;
    cy.on("dragpan scrollzoom pinchzoom dragfree", () => void (isMoved = true));
    const sized = new ResizeObserver(() => {
      cy.resize();
      if (!isMoved && cy.nodes().nonempty()) fit(cy);
    });
    sized.observe(host.current!);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => cy.style(lookOf(host.current!));
    dark.addEventListener("change", repaint);
    return () => {
      dark.removeEventListener("change", repaint);
      sized.disconnect();
      stop.current?.();
      cy.destroy();
    };
  }, []);
  useLayoutEffect(() => {
    stop.current?.();
    update(canvas.current!, props);
    stop.current = arrange(canvas.current!, props);
  }, [props.dots, props.lines, props.layout]);
  useLayoutEffect(() => {
    const cy = canvas.current!;
    cy.batch(() => {
      cy.$(".chosen").removeClass("chosen");
      for (const key of props.selected ?? []) cy.getElementById(key).addClass("chosen");
    });
  }, [props.selected, props.dots]);
  return <div class="canvas" ref={host} role="img" aria-label={props.label} />;
}

function update(cy: Core, { dots, lines }: CanvasProps): void {
  const sizes = [lines.length > 60 && "many", dots.length > MANY && "crowd"];
  const classesOf = (tone: Dot["tone"]) => [tone, ...sizes].filter(Boolean).join(" ");
  const wanted: ElementDefinition[] = [
    ...dots.map(({ key, ...data }) => ({ group: "nodes" as const, data: { id: key, ...data }, classes: classesOf(data.tone) })),
    ...lines.map(({ key, from, to, ...data }) => ({
      group: "edges" as const,
      data: { id: key, source: from, target: to, ...data },
      classes: classesOf(data.tone),
    })),
  ];
  const keys = new Set(wanted.map((each) => each.data.id));
  cy.batch(() => {
    cy.elements().filter((each) => !keys.has(each.id())).remove();
    const added: ElementDefinition[] = [];
    for (const each of wanted) {
      const known = cy.getElementById(each.data.id!);
      if (known.empty()) added.push(each);
      else known.data(each.data).classes(each.classes as string);
    }
    cy.add(added);
  });
}

/** Show all of it, not larger than it is good to read. */
function fit(cy: Core): void {
  cy.fit(undefined, 40);
  if (cy.zoom() > 1.4) {
    cy.zoom(1.4);
    cy.center();
  }
}

/** Put the nodes in their places; a layout that goes on can be stopped by what is returned. */
function arrange(cy: Core, { layout, pinned, dots }: CanvasProps): (() => void) | undefined {
  if (dots.length === 0) return undefined;
  const state: LayoutState = { isSettled: false, ticks: 0, slices: 0 };
  cy.scratch("layout", state);
  const settled = () => {
    fit(cy);
    state.isSettled = true;
    cy.emit("settled");
  };
  if (layout !== "force" && layout !== "by type") {
    cy.layout({ name: layout === "levels" ? "breadthfirst" : layout, animate: false, fit: false }).run();
    settled();
    return undefined;
  }
  const springs = force(cy, layout === "by type", pinned ?? new Set());
  if (dots.length <= MANY) {
    springs.run(Infinity, state);
    springs.apply();
    settled();
    return undefined;
  }
  // Many nodes are drawn at once where they begin. The springs pull in slices, so that the page
  // answers meanwhile, and the picture follows twice: half way, and at the end.
  springs.apply();
  fit(cy);
  let isHalfShown = false;
  let frame = requestAnimationFrame(function slice() {
    springs.run(SLICE_MS, state);
    state.slices++;
    if (springs.share() >= 1) {
      springs.apply();
      settled();
      return;
    }
    if (springs.share() > 0.5 && !isHalfShown) {
      isHalfShown = true;
      springs.apply();
      fit(cy);
    }
    frame = requestAnimationFrame(slice);
  });
  return () => cancelAnimationFrame(frame);
}

interface Body extends SimulationNodeDatum {
  id: string;
  group: string;
}

interface Springs {
  /** Let them pull for some milliseconds, or until they are done. */
  run: (ms: number, state: LayoutState) => void;
  /** How much of it is done. */
  share: () => number;
  /** Draw the nodes where they are. */
  apply: () => void;
}

/** Springs along edges; nodes that have a place keep near it, pinned ones keep it. */
function force(cy: Core, byType: boolean, pinned: Set<string>): Springs {
  const nodes = cy.nodes();
  const isLarge = nodes.length > MANY;
  const placed = new Set(nodes.filter((node) => node.scratch("placed")).map((node) => node.id()));
  const bodies: Body[] = nodes.map((node, at) => {
    const isPlaced = placed.has(node.id());
    const near = isPlaced || placed.size === 0 ? undefined : node.neighborhood().nodes().filter((other) => placed.has(other.id()));
    const from = isPlaced ? node.position() : near?.nonempty() ? (near.first() as NodeSingular).position() : { x: 0, y: 0 };
    const reach = isPlaced ? 0 : 30 + (isLarge ? 22 : 6) * Math.sqrt(at);
    const [x, y] = [from.x + reach * Math.cos(at * 2.4), from.y + reach * Math.sin(at * 2.4)];
    const isPinned = pinned.has(node.id()) && isPlaced;
    return { id: node.id(), group: node.data("group"), x, y, ...(isPinned ? { fx: x, fy: y } : {}) };
  });
  const groups = [...new Set(bodies.map((body) => body.group))].sort();
  const spread = 90 * Math.sqrt(bodies.length);
  const centre = (body: Body, turn: (angle: number) => number) =>
    byType ? spread * turn((2 * Math.PI * groups.indexOf(body.group)) / groups.length) : 0;
  const links = cy.edges().map((edge) => ({ source: edge.data("source"), target: edge.data("target") }));
  const simulation = forceSimulation(bodies)
    .force("charge", forceManyBody().strength(isLarge ? -90 : -380).distanceMax(900).theta(isLarge ? 1.3 : 0.9))
    .force("link", forceLink<Body, { source: string; target: string }>(links).id((body) => body.id).distance(isLarge ? 60 : 110).strength(byType ? 0.03 : 0.5))
    .force("collide", isLarge ? null : forceCollide(34))
    .force("x", forceX<Body>((body) => centre(body, Math.cos)).strength(byType ? 0.3 : 0.05))
    .force("y", forceY<Body>((body) => centre(body, Math.sin)).strength(byType ? 0.3 : 0.07))
    .stop();
  const wanted = isLarge ? 60 : 200;
  let done = 0;
  if (isLarge) simulation.alphaDecay(1 - 0.001 ** (1 / wanted));
  return {
    run(ms, state) {
      const end = performance.now() + ms;
      do {
        simulation.tick();
        state.ticks = ++done;
      } while (done < wanted && performance.now() < end);
    },
    share: () => done / wanted,
    apply() {
      const places = new Map(bodies.map((body) => [body.id, { x: body.x!, y: body.y! }]));
      cy.batch(() =>
        nodes.forEach((node) => {
          node.position(places.get(node.id())!);
          node.scratch("placed", true);
        }),
      );
    },
  };
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
      selector: "edge.crowd",
      style: { "curve-style": "haystack", width: 1, opacity: 0.45, "target-arrow-shape": "none" },
    },
    { selector: "node.crowd", style: { width: 16, height: 16, "text-outline-width": 0 } },
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
