/** Start the pages. */

// Before the parts of the page, whose styles are laid over these.
import "./styles/tokens.css";
import "./ui/base.css";
import "./ui/frame.css";
import "./ui/controls.css";
import "./ui/panels.css";
import "./ui/tables.css";
import "./ui/figures.css";
import "./ui/states.css";
import "./chart/chart.css";

import { createRoot } from "react-dom/client";
import { App, createClient } from "./app";

const root = document.getElementById("root");
if (root !== null) createRoot(root).render(<App client={createClient()} />);
