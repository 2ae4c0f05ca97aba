// One colour for each node type, the same on every page; light enough and dark enough for both themes.
const PALETTE = ["#4f6bed", "#0e9f8e", "#e0603a", "#b146c2", "#c19c00", "#3a96dd", "#8e562e", "#6b7a2f", "#d13f6d", "#5c7a99"];

export function colourOf(type: string, names: string[]): string {
  const at = [...names].sort().indexOf(type);
  return PALETTE[(at < 0 ? PALETTE.length - 1 : at) % PALETTE.length]!;
}
