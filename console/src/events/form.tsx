// A form that an agent wants filled in: fields of plain values, from a JSON schema.
import { array, object, string, type Json } from './json';

export interface Choice {
  value: string;
  title: string;
}

export interface Field {
  name: string;
  title: string;
  description: string;
  kind: 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'choices';
  choices: Choice[];
  required: boolean;
  initial: unknown;
}

function choicesOf(schema: Json): Choice[] {
  const titled = array(schema['oneOf'] ?? schema['anyOf']).map((one) => ({ value: string(object(one)['const']), title: string(object(one)['title']) }));
  return titled.length ? titled : array(schema['enum']).map((value) => ({ value: string(value), title: string(value) }));
}

/** Returns the fields of a form, in the order of its schema. */
export function fieldsOf(form: Json): Field[] {
  const required = array(form['required']);
  return Object.entries(object(form['properties'])).map(([name, value]): Field => {
    const schema = object(value);
    const type = string(schema['type']);
    const many = type === 'array';
    const choices = choicesOf(many ? object(schema['items']) : schema);
    const plain = type === 'number' || type === 'integer' || type === 'boolean' ? type : 'text';
    return {
      name,
      title: string(schema['title']) || name,
      description: string(schema['description']),
      kind: many ? 'choices' : choices.length ? 'choice' : plain,
      choices,
      required: required.includes(name),
      initial: schema['default'],
    };
  });
}

/** Returns the name of a field's input. The agent's own names could hide properties of the form element. */
const inputName = (index: number) => `field-${index}`;

/** Returns what a form's inputs hold. An empty field that is not required is left out. */
export function contentOf(fields: Field[], data: FormData): Json {
  const entries: [string, unknown][] = [];
  fields.forEach((field, index) => {
    const name = inputName(index);
    const text = String(data.get(name) ?? '');
    if (field.kind === 'boolean') entries.push([field.name, data.get(name) !== null]);
    else if (field.kind === 'choices') entries.push([field.name, data.getAll(name).map(String)]);
    else if (text === '' && !field.required) return;
    else entries.push([field.name, field.kind === 'number' || field.kind === 'integer' ? Number(text) : text]);
  });
  return Object.fromEntries(entries);
}

function Input({ field, name, id, value }: { field: Field; name: string; id: string; value: unknown }) {
  const common = { id, name, required: field.required };
  const text = value === undefined || value === null ? '' : String(value);
  const chosen = Array.isArray(value) ? value : [text];
  const options = field.choices.map((one) => (
    <option key={one.value} value={one.value} selected={chosen.includes(one.value)}>
      {one.title}
    </option>
  ));
  switch (field.kind) {
    case 'boolean':
      return <input id={id} name={name} type="checkbox" defaultChecked={value === true} />;
    case 'choice':
      return (
        <select {...common}>
          <option value="" selected={text === ''} />
          {options}
        </select>
      );
    case 'choices':
      return (
        <select {...common} multiple>
          {options}
        </select>
      );
    case 'number':
    case 'integer':
      return <input {...common} type="number" step={field.kind === 'integer' ? 1 : 'any'} defaultValue={text} />;
    default:
      return <input {...common} type="text" defaultValue={text} />;
  }
}

/** The inputs of a form, with what was typed before. The form around them has the buttons. */
export function Inputs({ fields, request, draft }: { fields: Field[]; request: string; draft: Json | undefined }) {
  return (
    <div class="ask-form">
      {fields.map((field, index) => {
        const id = `${inputName(index)}-${request}`;
        const value = draft ? draft[field.name] : field.initial;
        return (
          <div key={field.name} class="ask-field">
            <label for={id}>
              {field.title}
              {field.required ? null : <span class="soft"> (optional)</span>}
            </label>
            <Input field={field} name={inputName(index)} id={id} value={value} />
            {field.description ? <p class="soft">{field.description}</p> : null}
          </div>
        );
      })}
    </div>
  );
}
