/** Addresses of the ladder: fleet > cluster > rack > host > GPU, and of jobs and models. */

import type { Gpu } from "../api/fleet";
import type { Step } from "../ui/crumbs";
import { keepWindow, type View } from "../ui/view";

export function clusterPath(cluster: string): string {
  return `/clusters/${encodeURIComponent(cluster)}`;
}

export function rackPath(cluster: string, rack: string): string {
  return `${clusterPath(cluster)}/racks/${encodeURIComponent(rack)}`;
}

export function hostPath(host: string): string {
  return `/hosts/${encodeURIComponent(host)}`;
}

export function gpuPath(id: string): string {
  return `/gpus/${encodeURIComponent(id)}`;
}

export function jobPath(job: string): string {
  return `/jobs/${encodeURIComponent(job)}`;
}

export function modelPath(model: string): string {
  return `/models/${encodeURIComponent(model)}`;
}

/** The way down to a GPU, as far as it is known. */
export function stepsTo(gpu: Pick<Gpu, "cluster" | "rack" | "host"> | undefined, view: View): Step[] {
  const steps: Step[] = [{ name: "Fleet", to: "/" }];
  if (gpu !== undefined) {
    steps.push({ name: gpu.cluster, to: clusterPath(gpu.cluster) });
    if (gpu.rack !== "") steps.push({ name: gpu.rack, to: rackPath(gpu.cluster, gpu.rack) });
    if (gpu.host !== "") steps.push({ name: gpu.host, to: hostPath(gpu.host) });
  }
  return steps.map((step) => ({ ...step, to: keepWindow(view, step.to) }));
}
