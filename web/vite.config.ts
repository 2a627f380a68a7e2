import { loadEnv } from "vite";
import { defineConfig } from "vitest/config";

export default defineConfig(({ mode }) => {
  // The api serves the built pages; while developing, requests go to a running platform.
  const { SECONDSIGHT_URL = "http://127.0.0.1:8470" } = loadEnv(mode, ".", "SECONDSIGHT_");
  return {
    esbuild: { jsx: "automatic" },
    build: {
      outDir: "../src/secondsight/api/static",
      emptyOutDir: true,
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      target: "es2022",
      // Marks of server components in libraries; there is no server here that would read them.
      rollupOptions: {
        onwarn: (warning, warn) => warning.code !== "MODULE_LEVEL_DIRECTIVE" && warn(warning),
        // What changes least, so that a new version of the pages leaves it in the browser's cache.
        output: { manualChunks: { vendor: ["react", "react-dom/client", "@tanstack/react-query"] } },
      },
    },
    server: { proxy: { "/v1": SECONDSIGHT_URL } },
    test: { include: ["src/**/*.test.ts"], environment: "node" },
  };
});
