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

document.addEventListener("change", (event) => {
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
