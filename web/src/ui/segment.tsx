/** A row of choices of which one holds. */

export interface Choice {
  value: string;
  label: string;
}

export interface SegmentProps {
  label: string;
  choices: readonly Choice[];
  value: string | null;
  onChoose: (value: string) => void;
}

export function Segment({ label, choices, value, onChoose }: SegmentProps) {
  return (
    <fieldset className="segment" aria-label={label}>
      {choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          aria-pressed={choice.value === value}
          onClick={() => onChoose(choice.value)}
        >
          {choice.label}
        </button>
      ))}
    </fieldset>
  );
}
