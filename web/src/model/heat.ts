/** Steps of the scale of heat, as legends and cells share them. */

/** Where the eight steps begin for temperature: ordinary values stay quiet, the last 20 degrees have hue. */
const STEPS_CELSIUS = [30, 42, 54, 66, 73, 78, 83, 88];

const HEAT_STEPS = 8;

/** Step of the scale, 0 to 7; null where the value is missing. */
export function heatStep(celsius: number | null | undefined): number | null {
  if (celsius === null || celsius === undefined) return null;
  return Math.max(0, STEPS_CELSIUS.filter((start) => celsius >= start).length - 1);
}

/** Step of an even scale from 0 to `most`. */
export function evenStep(value: number | null | undefined, most: number): number | null {
  if (value === null || value === undefined || !(most > 0)) return null;
  return Math.min(HEAT_STEPS - 1, Math.max(0, Math.floor((value / most) * HEAT_STEPS)));
}
