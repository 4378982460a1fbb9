"use strict";
document.documentElement.classList.add("scripted");

// On a narrow screen the pictures come first, and the filters open on demand.
function foldFilters() {
  const filters = document.querySelector("details.filters");
  if (filters && matchMedia("(max-width: 46rem)").matches) filters.open = false;
}

// Empty fields make no address: a filter that is not set leaves no trace.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "get") return;
  for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
});

// A picture to search by is sent as it is; the answer names the gallery of those like it.
async function upload(input) {
  const address = `/like?dataset=${encodeURIComponent(input.dataset.upload)}`;
  const headers = { "Content-Type": "application/octet-stream" };
  const answer = await fetch(address, { method: "POST", headers, body: input.files[0] });
  if (answer.ok) location.assign((await answer.json()).location);
  else input.closest("form").insertAdjacentElement("afterend", notice("This picture cannot be searched by."));
}

function notice(text) {
  const shown = document.createElement("p");
  shown.className = "card fault";
  shown.setAttribute("role", "alert");
  shown.textContent = text;
  return shown;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-upload]") && event.target.files.length) upload(event.target);
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Arrow keys move between the pictures of a grid; Enter opens one, as for any link.
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 0, ArrowUp: 0 }[event.key];
  const grid = document.querySelector("[data-grid]");
  if (step === undefined || !grid || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target !== document.body && !event.target.closest("[data-grid]")) return;
  const items = [...grid.querySelectorAll("a.item")];
  const at = items.indexOf(document.activeElement);
  const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  const by = step || (event.key === "ArrowDown" ? columns : -columns);
  const next = items[at < 0 ? 0 : at + by];
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.scrollIntoView({ block: "nearest" });
});

addEventListener("pageshow", () => {
  foldFilters();
  for (const field of document.querySelectorAll("form :disabled")) field.disabled = false;
});

// While a threshold moves, the shares come from the sample in the page; when it is let go, the server cuts.
function predicate(rule) {
  const { over, under, strictLow, strictHigh } = rule.dataset;
  const edges = {};
  for (const slider of rule.querySelectorAll("[data-side]")) edges[slider.dataset.side] = Number(Number(slider.value).toPrecision(4));
  const factor = under ? ` * ${under}` : "";
  const parts = [];
  if ("low" in edges) parts.push(`${over} ${strictLow === "1" ? ">" : ">="} ${edges.low}${factor}`);
  if ("high" in edges) parts.push(`${over} ${strictHigh === "1" ? "<" : "<="} ${edges.high}${factor}`);
  const low = edges.low ?? -Infinity, high = edges.high ?? Infinity;
  const inside = (v) => v !== null && (strictLow === "1" ? v > low : v >= low) && (strictHigh === "1" ? v < high : v <= high);
  return { text: parts.join(" AND "), inside };
}

document.addEventListener("input", (event) => {
  const rule = event.target.matches("[data-side]") && event.target.closest("[data-rule]");
  if (!rule) return;
  rule.sample ??= JSON.parse(rule.dataset.sample);
  const { text, inside } = predicate(rule);
  event.target.closest("label").querySelector("output").textContent = Number(Number(event.target.value).toPrecision(4));
  rule.querySelector("textarea").value = text;
  const chart = rule.querySelector(".chart"), edge = chart.querySelector(`[data-edge="${event.target.dataset.side}"]`);
  const place = (600 * (event.target.value - chart.dataset.low)) / (chart.dataset.high - chart.dataset.low);
  for (const end of ["x1", "x2"]) edge.setAttribute(end, place);
  const bars = chart.querySelectorAll("rect"), width = (chart.dataset.high - chart.dataset.low) / bars.length;
  bars.forEach((bar, n) => bar.classList.toggle("falls", !inside(Number(chart.dataset.low) + (n + 0.5) * width)));
  const judged = rule.sample.filter(([value]) => value !== null);
  const own = judged.filter(([value]) => inside(value)).length;
  const all = rule.sample.filter(([value, others]) => others && inside(value)).length;
  const share = (n, of) => `${((100 * n) / Math.max(1, of)).toFixed(1)} %`;
  rule.querySelector(".estimate").textContent =
    `This rule keeps ${share(own, judged.length)} of those it judges; all rules keep ${share(all, rule.sample.length)} (of a sample of ${rule.sample.length.toLocaleString("en")}).`;
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-side]")) event.target.closest("[data-rule]").querySelector("form").requestSubmit();
});

document.addEventListener("click", (event) => {
  if (!event.target.matches("[data-copy]")) return;
  navigator.clipboard?.writeText(event.target.closest("p").querySelector("code").textContent);
  event.target.textContent = "Copied";
});

// Judging: 1, 2, 3 and u press the buttons of the pair; a held key judges once.
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, textarea, select")) return;
  document.querySelector(`[data-judge] [data-key="${CSS.escape(event.key)}"]`)?.click();
});

// One answer for each pair, however often the button is pressed; the chosen rule's own threshold is proposed.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-judge]")) return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "1";
});
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-threshold]")) return;
  event.target.form.elements.threshold.value = event.target.selectedOptions[0].dataset.low;
});
