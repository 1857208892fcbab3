// The page: follows the samples of the cluster, and shows the view that the address names.

import { update, h } from "/dom.js";
import { clock } from "/format.js";
import { overview, partitions, servers, storages, timeline } from "/cluster.js";
import { LogView } from "/log.js";

const RETRY_MS = 2000;
const VIEWS = { overview, partitions, storages, servers, timeline };
const TITLES = {
  overview: "Overview", partitions: "Partitions", storages: "Storages",
  servers: "Servers", log: "Log", timeline: "Timeline",
};

const byId = (id) => document.getElementById(id);
const log = new LogView((query) => {
  const wanted = `#/log?${query}`;
  if (location.hash === wanted) log.load();
  else location.hash = wanted;
});

let cluster = null;
let unreachable = false;
let paused = false;
let watching = null;

function route() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: name in TITLES ? name : "overview", query: new URLSearchParams(query || "") };
}

function render() {
  const { name } = route();
  showState();
  if (!cluster || name === "log") return;
  update(byId("view"), VIEWS[name](cluster));
}

function showState() {
  const names = cluster && cluster.names;
  byId("cluster-name").textContent = names ? [names.name, names.root].filter(Boolean).join(" · ") : "connecting";
  let text = "no sample yet";
  if (cluster && cluster.at !== null) {
    const at = clock(cluster.at);
    if (paused) text = `Paused at ${at}`;
    else if (cluster.problem || unreachable) text = `Not current: as of ${at}`;
    else text = `Live, ${at}`;
  } else if (paused) text = "Paused";
  byId("live-state").textContent = text;
  const problem = unreachable ? "The console does not answer: is its process still running?" : cluster && cluster.problem;
  document.body.classList.toggle("stale", Boolean(problem));
  update(byId("notice"), problem && h("p", { class: "banner" }, `${problem}${/[.?]$/.test(problem) ? "" : "."} `,
    cluster && cluster.at !== null ? `The values below are not current: they are those of ${clock(cluster.at)}.`
      : "Nothing is known of the cluster yet. The console keeps trying."));
}

/** Show the view that the address names; return whether it is another one than before. */
function changeView() {
  const { name, query } = route();
  const title = TITLES[name];
  const isOtherView = byId("heading").textContent !== title;
  byId("heading").textContent = title;
  document.title = `${title} · Waltz console`;
  for (const link of byId("views").children) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (name === "log") log.show(byId("view"), query);
  else if (isOtherView) byId("view").replaceChildren();
  render();
  return isOtherView;
}

/** Follow the samples until the page is hidden or paused. Each request waits for the next sample. */
async function watch(signal) {
  while (!signal.aborted) {
    try {
      const response = await fetch(`/api/cluster?after=${cluster ? cluster.number : 0}`, { signal });
      if (!response.ok) throw new Error(response.statusText);
      cluster = await response.json();
      unreachable = false;
      log.sampled(cluster);
      render();
    } catch (error) {
      if (signal.aborted) return;
      unreachable = true;
      render();
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Begin or end to watch the samples, as the page is shown, hidden or paused. */
function follow() {
  const shouldWatch = !paused && !document.hidden;
  if (shouldWatch && !watching) {
    watching = new AbortController();
    watch(watching.signal);
  } else if (!shouldWatch && watching) {
    watching.abort();
    watching = null;
  }
  render();
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  follow();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // The part of the address after # names the view.
  byId("content").focus();
});
document.addEventListener("visibilitychange", follow);
window.addEventListener("hashchange", () => {
  // The focus moves to the new heading, so that a reader of the page begins there.
  if (changeView()) byId("heading").focus();
});
changeView();
follow();
