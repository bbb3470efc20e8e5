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

/** Returns what a form's inputs hold. An empty field that is not required is left out. */
export function contentOf(fields: Field[], data: FormData): Json {
  const content: Json = {};
  for (const field of fields) {
    const text = String(data.get(field.name) ?? '');
    if (field.kind === 'boolean') content[field.name] = data.get(field.name) !== null;
    else if (field.kind === 'choices') content[field.name] = data.getAll(field.name).map(String);
    else if (text === '' && !field.required) continue;
    else content[field.name] = field.kind === 'number' || field.kind === 'integer' ? Number(text) : text;
  }
  return content;
}

function Input({ field, id }: { field: Field; id: string }) {
  const common = { id, name: field.name, required: field.required };
  const initial = field.initial === undefined ? '' : String(field.initial);
  switch (field.kind) {
    case 'boolean':
      return <input id={id} name={field.name} type="checkbox" defaultChecked={field.initial === true} />;
    case 'choice':
      return (
        <select {...common} defaultValue={initial}>
          {field.required ? null : <option value="" />}
          {field.choices.map((one) => (
            <option key={one.value} value={one.value}>
              {one.title}
            </option>
          ))}
        </select>
      );
    case 'choices':
      return (
        <select {...common} multiple>
          {field.choices.map((one) => (
            <option key={one.value} value={one.value} selected={array(field.initial).includes(one.value)}>
              {one.title}
            </option>
          ))}
        </select>
      );
    case 'number':
    case 'integer':
      return <input {...common} type="number" step={field.kind === 'integer' ? 1 : 'any'} defaultValue={initial} />;
    default:
      return <input {...common} type="text" defaultValue={initial} />;
  }
}

/** The inputs of a form. The form around them has the buttons. */
export function Inputs({ fields, request }: { fields: Field[]; request: string }) {
  return (
    <div class="ask-form">
      {fields.map((field) => {
        const id = `field-${request}-${field.name}`;
        return (
          <div key={field.name} class="ask-field">
            <label for={id}>
              {field.title}
              {field.required ? null : <span class="soft"> (optional)</span>}
            </label>
            <Input field={field} id={id} />
            {field.description ? <p class="soft">{field.description}</p> : null}
          </div>
        );
      })}
    </div>
  );
}
