// What is shown, as the part of the address behind `#`: `#/GRAPH/PAGE?branch=…`. It is never sent
// to the server, and a colleague who opens the same address sees the same.
import { useEffect, useState } from "preact/hooks";

export type Fields = Record<string, string | undefined>;

export interface Address {
  graph: string;
  page: string;
  fields: Fields;
}

export const MAIN = "main";

export function parse(hash: string): Address {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [graph = "", page = ""] = path.split("/").map(decodeURIComponent);
  return { graph, page, fields: Object.fromEntries(new URLSearchParams(query)) };
}

export function format(address: Address): string {
  const fields = Object.entries(address.fields).filter(([, value]) => value);
  const query = new URLSearchParams(fields as [string, string][]).toString();
  const path = [address.graph, address.page].map(encodeURIComponent).join("/");
  return `#/${path}${query ? `?${query}` : ""}`;
}

/** The address of another page, on the same branch and at the same commit. */
export function to(address: Address, page: string, fields: Fields = {}): string {
  const { branch, at } = address.fields;
  return format({ graph: address.graph, page, fields: { branch, at, ...fields } });
}

/** Change fields of the current page; `keep` replaces the entry of the history. */
export function go(address: Address, fields: Fields, keep = false): void {
  const next = format({ ...address, fields: { ...address.fields, ...fields } });
  if (next === location.hash) return;
  if (keep) {
    history.replaceState(null, "", next);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = next;
  }
}

export function useAddress(): Address {
  const [address, setAddress] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setAddress(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return address;
}
