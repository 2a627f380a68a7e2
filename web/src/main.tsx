/** Start the pages. */

import { createRoot } from "react-dom/client";
import { App, createClient } from "./app";
import { applyTheme } from "./ui/theme";
import "./styles/tokens.css";
import "./ui/ui.css";
import "./chart/chart.css";

applyTheme();
const root = document.getElementById("root");
if (root !== null) createRoot(root).render(<App client={createClient()} />);
