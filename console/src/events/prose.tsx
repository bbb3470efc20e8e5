// An agent's words in their form. Nothing in them is ever read as HTML.
import type { ComponentChildren } from 'preact';

import { type Block, blocks, inline, type Inline, type Item } from './markdown';

const words = (text: string) => inline(text).map(word);

function word(node: Inline, at: number): ComponentChildren {
  if (typeof node === 'string') return node;
  if (node.kind === 'code') return <code key={at}>{node.text}</code>;
  if (node.kind !== 'link') {
    const Tag = node.kind;
    return <Tag key={at}>{node.inside.map(word)}</Tag>;
  }
  // The text may say anything, also from right to left; the host says where the link goes.
  return (
    <a key={at} href={node.address} title={node.address} target="_blank" rel="noreferrer noopener">
      <bdi>{node.inside.map(word)}</bdi>
      {node.host ? <bdi class="link-host"> ({node.host})</bdi> : null}
    </a>
  );
}

const part = (block: Block, at: number) => <Part key={at} block={block} />;

function Part({ block }: { block: Block }) {
  switch (block.kind) {
    case 'code':
      return (
        <pre tabIndex={0}>
          <code>{block.text}</code>
        </pre>
      );
    case 'heading': {
      // The page's own heading is above them.
      const Tag = `h${Math.min(6, block.level + 2)}` as 'h3';
      return <Tag>{words(block.text)}</Tag>;
    }
    case 'list':
      return block.start === null ? <ul>{block.items.map(item)}</ul> : <ol start={block.start}>{block.items.map(item)}</ol>;
    case 'quote':
      return <blockquote>{block.blocks.map(part)}</blockquote>;
    case 'rule':
      return <hr />;
    case 'table':
      return (
        <div class="prose-table" tabIndex={0}>
          <table>
            <thead>
              <tr>{block.head.map((cell, at) => <th key={at}>{words(cell)}</th>)}</tr>
            </thead>
            <tbody>
              {block.rows.map((row, at) => (
                <tr key={at}>{row.map((cell, column) => <td key={column}>{words(cell)}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    default:
      return <p>{words(block.text)}</p>;
  }
}

const item = ({ done, blocks }: Item, at: number) => (
  <li key={at} class={done === null ? undefined : 'task'}>
    {done === null ? null : <span class={done ? 'box done' : 'box'} role="img" aria-label={done ? 'done' : 'to do'} />}
    {blocks.map(part)}
  </li>
);

export function Prose({ text }: { text: string }) {
  return <div class="prose">{blocks(text).map(part)}</div>;
}
