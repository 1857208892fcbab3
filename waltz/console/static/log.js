// The log browser: pages of transactions, and the search for a request id.

import { h, table, update } from "/dom.js";
import { bytes, whole, withCommands } from "/format.js";

const FORMATS = [["auto", "automatic"], ["text", "text"], ["json", "JSON"], ["hex", "hex"]];
const COUNTS = [10, 50, 200];

/** The log browser. `navigate` changes the parameters in the address of the page. */
export class LogView {
  constructor(navigate) {
    this.navigate = navigate;
    this.query = new URLSearchParams();
    this.page = null;
    this.problem = null;
    this.search = null;
    this.loading = 0;
    this.numPartitions = 1;
    this.results = h("div", { id: "log-results" });
    this.form = null;
  }

  /** Show the log browser for the parameters in the address. */
  show(target, query) {
    this.query = query;
    const found = this.search && this.search.value && this.search.value.found;
    if (String(found) !== query.get("first")) this.search = null; // The search found another page.
    if (!this.form || !target.contains(this.form)) {
      this.form = this.makeForm();
      this.finder = this.makeFinder();
      target.replaceChildren(
        h("section", { class: "card" }, this.form, this.finder), this.results);
    }
    this.fillForm();
    this.load();
  }

  /** Take note of a new sample: the number of partitions, and new transactions to follow. */
  sampled(cluster) {
    this.numPartitions = Math.max(1, cluster.partitions.length);
    const select = this.form && this.form.elements.partition;
    if (select && select.options.length !== this.numPartitions) this.fillForm();
    const mine = cluster.partitions.find((each) => each.partition === this.partition());
    // After a failed load, each sample is a reason to try again.
    const grown = mine && (this.problem || (this.page && mine.high_water_mark > this.page.high_water_mark));
    if (grown && this.form && this.form.elements.follow.checked && !this.query.has("first")) this.load();
  }

  partition() {
    return Number(this.query.get("partition") || 0);
  }

  makeForm() {
    const form = h("form", { class: "controls", "aria-label": "Which transactions" },
      field("Partition", h("select", { name: "partition", id: "log-partition" })),
      field("From id", h("input", { name: "first", id: "log-first", inputmode: "numeric", autocomplete: "off", placeholder: "newest" })),
      field("Transactions", h("select", { name: "count", id: "log-count" }, COUNTS.map((n) => h("option", { value: n }, n)))),
      field("Data as", h("select", { name: "format", id: "log-format" }, FORMATS.map(([value, name]) => h("option", { value }, name)))),
      h("button", { type: "submit", class: "primary" }, "Show"),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "follow" }), "Follow the end"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go({ first: form.elements.first.value.trim() || null });
    });
    for (const name of ["partition", "count", "format"]) {
      form.elements[name].addEventListener("change", () =>
        this.go(name === "partition" ? { first: null } : {}));
    }
    return form;
  }

  makeFinder() {
    const finder = h("form", { class: "controls", role: "search", "aria-label": "Search by request id" },
      field("Request id", h("input", { name: "request", id: "log-request", autocomplete: "off", placeholder: "client:generation:partition:seq", size: 34 })),
      h("button", { type: "submit" }, "Find"));
    finder.addEventListener("submit", (event) => {
      event.preventDefault();
      this.find(finder.elements.request.value, null);
    });
    return finder;
  }

  fillForm() {
    const { partition, first, count, format } = this.form.elements;
    const wanted = Math.max(this.numPartitions, this.partition() + 1);
    if (partition.options.length !== wanted) {
      partition.replaceChildren(...Array.from({ length: wanted }, (_, n) => h("option", { value: n }, n)));
    }
    partition.value = String(this.partition());
    first.value = this.query.get("first") || "";
    count.value = this.query.get("count") || "50";
    format.value = this.query.get("format") || "auto";
  }

  /** Change the address to what the form says, with `changes`. */
  go(changes) {
    const { partition, first, count, format } = this.form.elements;
    const values = { partition: partition.value, first: first.value.trim() || null, count: count.value, format: format.value, ...changes };
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) if (value !== null) query.set(name, value);
    this.search = null;
    this.navigate(query);
  }

  async load() {
    const turn = ++this.loading;
    const query = new URLSearchParams(this.query);
    query.delete("partition");
    const answer = await fetchJson(`/api/log/${this.partition()}?${query}`);
    if (turn !== this.loading) return; // A later call of load() will show its page.
    this.page = answer.value;
    this.problem = answer.problem;
    this.render();
  }

  async find(request, before) {
    this.search = { request, running: true };
    this.render();
    const query = new URLSearchParams({ request });
    if (before !== null) query.set("before", before);
    const answer = await fetchJson(`/api/find?${query}`);
    this.search = { request, ...answer };
    this.render();
    if (answer.value && answer.value.found !== null) {
      const { partition, found } = answer.value;
      const shown = new URLSearchParams({ partition, first: found, count: "10", format: this.form.elements.format.value });
      this.navigate(shown);
    }
  }

  render() {
    update(this.results, this.searchResult(), this.problem
      ? h("p", { class: "banner", role: "alert" }, this.problem)
      : this.page && this.pageOf(this.page));
    for (const button of this.results.querySelectorAll("button[data-go]")) {
      button.onclick = () => this.go({ first: button.dataset.go || null });
    }
    const older = this.results.querySelector("button[data-before]");
    if (older) older.onclick = () => this.find(this.search.request, older.dataset.before);
  }

  searchResult() {
    if (!this.search) return null;
    const { running, problem, value } = this.search;
    let content;
    if (running) content = "Searching …";
    else if (problem) content = problem;
    else if (value.found !== null) content = `Found: transaction ${value.found} of partition ${value.partition} has this request id.`;
    else {
      const ids = value.last_id < value.first_id ? "The log is empty" : `Not found in the ids ${value.first_id} to ${value.last_id}`;
      content = value.complete ? [ids, ". The whole log was searched: it is not in partition ", value.partition, "."]
        : [ids, ", the newest ones. ", h("button", { type: "button", "data-before": value.first_id }, "Search older ones")];
    }
    return h("p", { class: "banner neutral", role: "status", "data-key": "search" }, content);
  }

  pageOf(page) {
    if (page.high_water_mark < 0) return h("p", { class: "card muted" }, `The log of partition ${page.partition} is empty.`);
    if (!page.records.length) {
      return h("p", { class: "card" }, "There is no such transaction: the log of partition ", page.partition, " ends at ", whole(page.high_water_mark), ".");
    }
    const first = page.records[0].id;
    const last = page.records[page.records.length - 1].id;
    const count = Number(this.form.elements.count.value);
    return h("section", { class: "card", "data-key": "page", "aria-label": "Transactions" },
      h("div", { class: "pager" },
        h("p", {}, "Ids ", whole(first), " to ", whole(last), " of a log that ends at ", whole(page.high_water_mark), "."),
        h("div", { class: "buttons" },
          h("button", { type: "button", "data-go": Math.max(0, first - count), disabled: first === 0 }, "Older"),
          h("button", { type: "button", "data-go": page.next_id === null ? "" : page.next_id, disabled: page.next_id === null }, "Newer"),
          h("button", { type: "button", "data-go": "" }, "Newest"))),
      page.is_truncated && h("p", { class: "muted" }, "The page is short, because its transactions are large."),
      table("Transactions", COLUMNS, page.records.map((each) => row(page.partition, each)), ""));
  }
}

const COLUMNS = [
  { title: "Id", number: true }, { title: "Request id" }, { title: "Header", number: true },
  { title: "Size", number: true }, { title: "Data", wide: true },
];

function row(partition, { id, client_id: client, generation, seq, header, data }) {
  return {
    key: `record ${id}`,
    cells: [
      id, h("span", { class: "name" }, `${client}:${generation}:${partition}:${seq}`), header, bytes(data.size),
      data.size === 0 ? h("span", { class: "muted" }, "no data") : [
        h("pre", { class: data.format, tabindex: data.text.includes("\n") ? "0" : null }, data.text),
        data.notice && h("p", { class: "notice" }, `${data.notice}. `,
          data.truncated && withCommands(`For all of it: waltz log read ${partition} ${id} --raw`))],
    ],
  };
}

function field(label, control) {
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control);
}

async function fetchJson(path) {
  try {
    const response = await fetch(path);
    const value = await response.json();
    if (response.ok) return { value, problem: null };
    return { value: null, problem: `${value.error}` };
  } catch (error) {
    return { value: null, problem: "The console does not answer: is its process still running?" };
  }
}
