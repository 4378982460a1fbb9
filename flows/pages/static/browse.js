"use strict";
document.documentElement.classList.add("scripted");

// On a narrow screen the pictures come first, and the filters open on demand.
function foldFilters() {
  const filters = document.querySelector("details.filters");
  if (filters && matchMedia("(max-width: 46rem)").matches) filters.open = false;
}

// Empty fields make no address: a filter that is not set leaves no trace.
document.addEventListener("submit", (event) => {
  if (event.target.dataset.loads && event.target.elements.words?.value) event.target.after(notice(event.target.dataset.loads));
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
  shown.className = "card notice";
  shown.setAttribute("role", "alert");
  shown.textContent = text;
  return shown;
}

// The size of thumbnails is kept for this browser.
function size(chosen) {
  document.documentElement.dataset.size = localStorage.size = chosen;
  for (const field of document.querySelectorAll("[data-size]:is(select)")) field.value = chosen;
}
addEventListener("pageshow", () => size(localStorage.size ?? "m"));
document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-size]")) size(event.target.value);
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
  if (event.target.matches("[data-keys]")) document.querySelector("#keys").showModal();
  if (!event.target.matches("[data-copy]")) return;
  navigator.clipboard?.writeText(event.target.closest("p").querySelector("code").textContent);
  event.target.textContent = "Copied";
});

// Judging: 1, 2, 3 and u press the buttons of the pair; a held key judges once. A key that is pressed while the next pair
// loads waits for it.
function judge(key) {
  const button = document.querySelector(`[data-judge] [data-key="${CSS.escape(key)}"]`);
  if (!button) return;
  if (document.querySelector("[data-judge][data-sent]")) sessionStorage.keys = (sessionStorage.keys ?? "") + key;
  else button.click();
}
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, textarea, select")) return;
  if (/^[123u]$/.test(event.key)) judge(event.key);
  if (event.key === "?") document.querySelector("#keys").showModal();
  if (event.key === "x") document.activeElement.closest(".cell")?.querySelector(".pick input").click();
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("[data-judge]")) delete form.dataset.sent;
  const [key, ...later] = document.querySelector("[data-judge]") ? (sessionStorage.keys ?? "") : "";
  sessionStorage.keys = later.join("");
  if (key) judge(key);
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

// Selecting: a click ticks one, with Shift all from the last one to it; "all" stands for what is not loaded yet too.
let lastPicked = null;
const picks = () => [...document.querySelectorAll(".pick input")];
function tellSelected() {
  const form = document.querySelector("form.acting"), every = form?.elements.every;
  if (!form) return;
  const n = every.checked ? Number(every.dataset.every) : picks().filter((box) => box.checked).length;
  form.classList.toggle("some", n > 0);
  form.querySelector("[data-selected]").textContent = n ? `${n.toLocaleString("en")} selected` : "none selected";
}
document.addEventListener("click", (event) => {
  if (!event.target.matches(".pick input")) return;
  const boxes = picks(), at = boxes.indexOf(event.target), from = boxes.indexOf(lastPicked);
  if (event.shiftKey && from >= 0) {
    for (const box of boxes.slice(Math.min(at, from), Math.max(at, from) + 1)) box.checked = event.target.checked;
  }
  lastPicked = event.target;
  event.target.form.elements.every.checked = false;
  tellSelected();
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-every]")) tellSelected();
});
addEventListener("pageshow", tellSelected);

// An act is sent once, and its answer is shown in place; without scripts it is a page.
document.addEventListener("submit", async (event) => {
  const form = event.target, button = event.submitter;
  if (!form.matches("[data-act]") || !button) return;
  event.preventDefault();
  if (form.dataset.busy) return;
  form.dataset.busy = "1";
  const place = (form.closest("[data-acted]") ?? form.querySelector("[data-acted]"));
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form, button)) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...page.querySelectorAll(".acted, .message"));
    if (answer.ok) markPicked(form, button);
  } catch {
    place.replaceChildren(notice("No answer: is `pairmill browse` still running? Nothing that it said was done is lost."));
  }
  delete form.dataset.busy;
});
function markPicked(form, button) {
  if (!form.matches(".acting") || ["edit", "export"].includes(button.value)) return;
  for (const box of picks().filter((each) => each.checked || form.elements.every.checked)) {
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.textContent = button.textContent.toLowerCase() + (button.value.endsWith("tag") ? ` ${form.elements.word.value}` : "");
    box.closest(".cell").querySelector(".mark")?.remove();
    box.closest(".cell").classList.add("marked");
    box.closest(".pick").before(mark);
    box.checked = false;
  }
  form.elements.every.checked = false;
  tellSelected();
}

// Previous and next on a picture: the order is that of the gallery from which it was opened.
document.addEventListener("click", (event) => {
  const item = event.target.closest("[data-grid] a.item");
  if (item) sessionStorage.order = JSON.stringify([...document.querySelectorAll("[data-grid] a.item")].map((a) => a.getAttribute("href")));
});
addEventListener("pageshow", () => {
  const steps = document.querySelector("[data-steps]");
  if (!steps) return;
  const order = JSON.parse(sessionStorage.order ?? "[]"), at = order.indexOf(location.pathname + location.search);
  for (const link of steps.querySelectorAll("a")) {
    const to = at < 0 ? undefined : order[at + Number(link.dataset.step)];
    link.hidden = !to;
    if (to) link.href = to;
    if (to) steps.hidden = false;
  }
});
document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: "-1", ArrowRight: "1" }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, textarea, select")) return;
  const link = document.querySelector(`[data-steps] a[data-step="${step}"][href]`);
  if (link && !link.hidden) location.assign(link.href);
});
