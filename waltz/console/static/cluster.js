// The views of the cluster: functions from the newest sample to elements.

import { h, table } from "/dom.js";
import { bar, bytes, ranges, rate, state, time, unknown, whole, withCommands } from "/format.js";

export function overview(cluster) {
  return [
    health(cluster.health),
    cluster.totals && totals(cluster),
    section("Work under way", work(cluster.work)),
    section("Latest changes", timelineList(cluster, 6),
      h("p", { "data-key": "more" }, h("a", { href: "#/timeline" }, "Whole timeline"))),
  ];
}

function section(title, ...content) {
  return h("section", { class: "card", "data-key": title }, h("h2", {}, title), content);
}

function health({ state: word, headline, statements }) {
  return h("section", { class: `card health ${word}`, "data-key": "health" },
    h("h2", {}, state(word)),
    h("p", { class: "headline" }, headline),
    statements.length > 0 && h("ul", { class: "statements" }, statements.map((each) =>
      h("li", { "data-key": each.text, class: each.severity },
        h("p", {}, state(each.severity), h("span", { class: "text" }, each.text)),
        beginning(each.period),
        h("p", { class: "remedy" }, withCommands(each.command ? `${each.remedy}: ${each.command}` : each.remedy))))));
}

/** Return what is known of the time at which a problem began. */
function beginning({ since, after }) {
  if (since === null && after === null) return null;
  let words;
  if (since === null) words = ["Since some time after ", time(after)];
  else if (after === null) words = ["Since ", time(since), " or earlier"];
  else words = ["Since some time between ", time(after), " and ", time(since)];
  return h("p", { class: "muted small" }, words);
}

function totals({ totals: sums, rates }) {
  return h("section", { class: "tiles", "data-key": "totals", "aria-label": "Numbers" },
    h("dl", {},
      tile("Transactions per second", rate(sums.transactions_per_second), sparkline(rates), "broad"),
      tile("Open partitions", outOf(sums.open_partitions, sums.partitions), unknownOnes(sums.unknown_partitions)),
      tile("Healthy replicas", outOf(sums.healthy_replicas, sums.replicas), unknownOnes(sums.unknown_replicas)),
      tile("Servers answering", outOf(sums.answering_servers, sums.servers)),
      tile("Storages answering", outOf(sums.answering_storages, sums.storages)),
      tile("Damaged records", damagedRecords(sums))));
}

function tile(name, value, more, kind) {
  return h("div", { class: `tile ${kind || ""}`, "data-key": name },
    h("dt", {}, name), h("dd", {}, h("span", { class: "value" }, value), more));
}

function unknownOnes(count) {
  return count > 0 && h("span", { class: "muted small" }, `${count} unknown`);
}

/** Return the number of damaged records. Storages that do not answer may have more of them. */
function damagedRecords({ damaged_records: known, answering_storages: answering, storages: all }) {
  if (answering === all) return whole(known);
  return known === 0 ? unknown() : [h("span", { class: "of" }, "at least "), whole(known)];
}

function outOf(part, total) {
  return [h("span", { class: part < total ? "short" : null }, part), h("span", { class: "of" }, ` of ${total}`)];
}

/** Return the rates of the last minutes as a line; it has a gap where the rate is unknown. */
function sparkline(points) {
  const known = points.filter((point) => point.transactions_per_second !== null);
  if (known.length < 2) return null;
  const most = Math.max(...known.map((point) => point.transactions_per_second));
  const highest = Math.max(1, most);
  const first = points[0].at;
  const span = Math.max(1, points[points.length - 1].at - first);
  let path = "";
  let drawing = false;
  for (const { at, transactions_per_second: value } of points) {
    if (value === null) {
      drawing = false;
      continue;
    }
    const x = (((at - first) / span) * 200).toFixed(1);
    const y = (38 - (value / highest) * 34).toFixed(1);
    path += `${drawing ? "L" : "M"}${x} ${y}`;
    drawing = true;
  }
  const minutes = Math.max(1, Math.round(span / 60));
  const text = `at most ${Math.round(most).toLocaleString("en")} in the last ${minutes === 1 ? "minute" : `${minutes} minutes`}`;
  return h("span", { class: "sparkline" },
    h("svg", { viewBox: "0 0 200 40", preserveAspectRatio: "none", "aria-hidden": "true" },
      h("line", { x1: 0, y1: 39, x2: 200, y2: 39 }),
      h("path", { d: path })),
    h("span", { class: "muted small" }, text));
}

function work(items) {
  const columns = [
    { title: "Work" }, { title: "Partition", number: true }, { title: "Storage" },
    { title: "Progress", wide: true }, { title: "Meaning", wide: true },
  ];
  const rows = items.map((each) => ({
    key: `${each.kind} ${each.partition} ${each.storage}`,
    cells: [
      each.kind, each.partition, h("span", { class: "name" }, each.storage),
      each.total === null || each.done === null
        ? unknown()
        : bar(each.total ? each.done / each.total : 1, [whole(each.done), " of ", whole(each.total), ` ${each.unit}`]),
      withCommands(each.text),
    ],
  }));
  return table("Work under way", columns, rows, "No replica is being filled, moved or repaired.");
}

export function partitions(cluster) {
  const columns = [
    { title: "Partition" }, { title: "State" }, { title: "Server" },
    { title: "Session", number: true }, { title: "Last id", number: true },
    { title: "Transactions/s", number: true }, { title: "Replicas and their lag", wide: true },
  ];
  const rows = cluster.partitions.map((each) => ({
    key: `partition ${each.partition}`,
    cells: [
      h("a", { href: `#/log?partition=${each.partition}`, title: "Show the end of its log" }, each.partition),
      [state(each.state), each.reason && h("span", { class: "reason" }, each.reason)],
      each.server === null ? "none" : [`server ${each.server}`, h("span", { class: "reason name" }, each.endpoint || "not running")],
      each.session === null ? "never opened" : [whole(each.session),
        h("span", { class: "reason" }, each.generation === null ? "" : `generation ${each.generation}`)],
      each.high_water_mark === -1 ? "empty log" : whole(each.high_water_mark),
      rate(each.transactions_per_second),
      replicas(each.replicas),
    ],
  }));
  return [h("section", { class: "card", "data-key": "partitions" },
    h("p", { class: "muted" }, "Lag is the number of committed transactions that a replica lacks."),
    table("Partitions", columns, rows, "The cluster has no partitions."))];
}

function replicas(all) {
  if (!all.length) return "none";
  return h("ul", { class: "replicas" }, all.map((each) =>
    h("li", { "data-key": each.storage },
      h("span", { class: "name" }, each.storage),
      state(each.state),
      h("span", { class: "lag" }, "lag ", whole(each.lag)),
      each.reason && h("span", { class: "reason" }, each.reason))));
}

export function storages(cluster) {
  const columns = [
    { title: "Storage" }, { title: "State" }, { title: "Group" },
    { title: "Replicas", number: true }, { title: "Greatest lag", number: true },
    { title: "Log", number: true }, { title: "Disk used", wide: true },
    { title: "Scrubber", wide: true }, { title: "Damage", wide: true },
  ];
  const rows = cluster.storages.map((each) => ({
    key: each.storage,
    cells: [
      h("span", { class: "name" }, each.storage),
      [state(each.answers ? "answers" : "no answer"), each.problem && h("span", { class: "reason" }, each.problem)],
      each.group === null ? "none" : each.group,
      each.held === null ? [unknown(), h("span", { class: "reason" }, `${each.assigned.length} assigned`)]
        : `${each.held} of ${each.assigned.length}`,
      whole(each.greatest_lag), bytes(each.log_bytes), disk(each), scrubber(each), damage(each),
    ],
  }));
  return [
    h("section", { class: "card", "data-key": "storages" },
      table("Storages", columns, rows, "The cluster has no storages.")),
    section("Work under way", work(cluster.work)),
  ];
}

function disk({ disk_free_bytes: free, disk_size_bytes: size }) {
  if (free === null || !size) return unknown();
  const used = 1 - free / size;
  return bar(used, [`${Math.round(used * 100)} %, `, bytes(free), " free"], used > 0.8 ? "warn" : "");
}

function scrubber({ scrub_progress: progress, scrub_passes: passes }) {
  if (progress === null) return unknown();
  const done = passes === null ? "" : `, ${passes} ${passes === 1 ? "pass" : "passes"} done`;
  return bar(progress, `${Math.floor(progress * 100)} %${done}`);
}

function damage({ damaged, refused }) {
  if (damaged === null) return unknown();
  if (!damaged.length && !refused.length) return "none found";
  return h("ul", { class: "plain" },
    damaged.slice(0, 20).map((each) => h("li", {}, state("damaged"), ` partition ${each.partition}, `,
      each.first_id === each.last_id ? `id ${each.first_id}` : `ids ${each.first_id}–${each.last_id}`)),
    damaged.length > 20 && h("li", {}, `and ${damaged.length - 20} more ranges`),
    refused.map((each) => h("li", {}, state("refused"), ` partition ${each.partition}: ${each.reason}`)));
}

export function servers(cluster) {
  const columns = [
    { title: "Server" }, { title: "State" }, { title: "Address" },
    { title: "Partitions" }, { title: "Preferred" }, { title: "Transactions/s", number: true },
  ];
  const rows = cluster.servers.map((each) => ({
    key: `server ${each.id}`,
    cells: [
      each.id,
      [state(each.answers ? "answers" : "no answer"), each.problem && h("span", { class: "reason" }, each.problem)],
      each.endpoint === null ? unknown() : h("span", { class: "name" }, each.endpoint),
      ranges(each.partitions), each.preferred.length ? ranges(each.preferred) : "any",
      rate(each.transactions_per_second),
    ],
  }));
  return [h("section", { class: "card", "data-key": "servers" },
    table("Servers", columns, rows, "No server is running."))];
}

export function timeline(cluster) {
  return [h("section", { class: "card", "data-key": "timeline" }, timelineList(cluster, 300))];
}

function timelineList({ timeline: entries, watching_since: since }, most) {
  const begun = since === null ? null : h("p", { class: "muted", "data-key": "since" },
    entries.length ? "Changes since " : "Nothing has changed since ", time(since),
    ", when the console began to watch.");
  // Usually the two samples around a change are seconds apart, and one time says enough.
  const list = h("ol", { class: "timeline", "data-key": "entries" }, entries.slice(0, most).map((each) =>
    h("li", { "data-key": each.number, class: each.bad ? "bad" : "" },
      h("span", { class: "when" }, each.at - each.after > 30 ? [time(each.after), " to "] : null, time(each.at)),
      h("span", { class: "kind" }, each.bad ? h("span", { "aria-hidden": "true" }, "✕ ") : null, each.kind),
      h("span", { class: "what" }, each.text))));
  return [begun, entries.length > 0 && list];
}
