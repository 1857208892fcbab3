// Build elements and update them in place. Text is only ever set as text: there is no way to pass
// HTML, so data of the log cannot become part of the page's structure.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "rect", "title"]);

/** Return a new element. Attributes whose value is null or false are left out. */
export function h(tag, attributes, ...children) {
  const element = SVG_TAGS.has(tag)
    ? document.createElementNS(SVG, tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) {
      element.append(document.createTextNode(String(child)));
    }
  }
}

/** Make the children of `target` like `children`. Elements that stay keep focus and selection. */
export function update(target, ...children) {
  const wanted = document.createElement(target.nodeName);
  append(wanted, children);
  updateChildren(target, wanted);
}

/**
 * Make the children of `target` like those of `wanted`. A child with a key is matched by the key, any
 * other child by its place. The children before `at` are done; what is left from `at` on is removed.
 */
function updateChildren(target, wanted) {
  const keyed = new Map();
  for (const child of target.children) {
    if (child.dataset.key) keyed.set(child.dataset.key, child);
  }
  let at = target.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = next.dataset ? next.dataset.key : undefined;
    let match = key ? keyed.get(key) : at;
    if (match && (match.nodeName !== next.nodeName || keyOf(match) !== key)) match = null;
    if (!match) {
      target.insertBefore(next, at);
      continue;
    }
    if (match !== at) target.insertBefore(match, at);
    else at = at.nextSibling;
    updateNode(match, next);
  }
  while (at) {
    const removed = at;
    at = at.nextSibling;
    removed.remove();
  }
}

function keyOf(node) {
  return node.dataset ? node.dataset.key : undefined;
}

function updateNode(node, wanted) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.nodeValue !== wanted.nodeValue) node.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name)) node.removeAttribute(name);
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  updateChildren(node, wanted);
}

/**
 * Return a table. A column has a `title`, and `number: true` if its cells are numbers. A row has a
 * `key` and `cells`, the first of which names the row. The roles are explicit, because the layout
 * for phones would otherwise take them away.
 */
export function table(caption, columns, rows, empty) {
  const head = columns.map((column) =>
    h("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, column.title));
  const body = rows.map((row) =>
    h("tr", { "data-key": row.key, role: "row", class: row.tone || null }, row.cells.map((cell, index) => {
      const column = columns[index];
      const attributes = {
        class: [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim() || null,
        "data-label": column.title,
      };
      const content = h("div", { class: "cell" }, cell);
      return index === 0
        ? h("th", { ...attributes, scope: "row", role: "rowheader" }, content)
        : h("td", { ...attributes, role: "cell" }, content);
    })));
  if (!rows.length) return h("p", { class: "muted", "data-key": `empty ${caption}` }, empty);
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption, "data-key": caption },
    h("table", { role: "table" },
      h("caption", { class: "hidden" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h("tbody", { role: "rowgroup" }, body)));
}
