import { defineConfig } from "vite";

// The server sends files of one folder, so there are no folders inside. A development server
// (`npm run dev`) passes requests on to `omnigraph serve --studio --unauthenticated`.
const api = "http://127.0.0.1:8080";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/omnigraph/server/page",
    emptyOutDir: true,
    assetsDir: "",
    target: "es2023",
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1500,
  },
  server: { proxy: { "/graphs": api, "/session": api, "/readyz": api, "/healthz": api } },
});
