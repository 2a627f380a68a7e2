/** Jobs and models as the GPUs that they hold now tell of them. */

import type { Gpu } from "../../api/fleet";
import { type Sums, sumsOf } from "../../panels/sums";

export interface Work extends Sums {
  name: string;
  team: string;
  model: string;
  jobs: number;
  clusters: string;
}

function one(values: readonly string[]): string {
  const names = [...new Set(values)].filter(Boolean);
  return names.length <= 2 ? names.join(", ") : `${names[0]} and ${names.length - 1} more`;
}

/** GPUs by job or by model; GPUs of none are left out. */
export function worksOf(gpus: readonly Gpu[], kind: "job" | "model"): Work[] {
  const groups = new Map<string, Gpu[]>();
  for (const gpu of gpus) {
    const name = gpu[kind];
    if (name === "") continue;
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [gpu]);
    else group.push(gpu);
  }
  return [...groups].map(([name, members]) => ({
    name,
    team: one(members.map((gpu) => gpu.team)),
    model: one(members.map((gpu) => gpu.model)),
    jobs: new Set(members.map((gpu) => gpu.job)).size,
    clusters: one(members.map((gpu) => gpu.cluster)),
    ...sumsOf(members),
  }));
}
