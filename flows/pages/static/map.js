"use strict";
// A map of up to millions of points, drawn pixel by pixel into an image: no WebGL, so remote desktops draw it too.
// A frame of a million points takes some 20 ms. Places are whole numbers from 0 to SIDE.
const SIDE = 65535, NONE = 255, NAMED = 10, LEVELS = 254, CORNERS = 120;
const NAMES = ["#1f77b4", "#d95f02", "#1b9e77", "#e7298a", "#7570b3", "#66a61e", "#e6ab02", "#8c564b", "#17becf", "#c23b3b", "#8a8f96"];
const DROPS = ["#d95f02", "#a1460a", "#f0a35e", "#c23b3b", "#e0a100", "#8c564b", "#f58d7c"];
const RAMPS = { light: ["#440154", "#3b528b", "#21918c", "#5ec962", "#d8c400"], dark: ["#7a5fc0", "#4f7fd0", "#2fb3a6", "#7fd860", "#fde725"] };

const map = document.querySelector("[data-map]");
const canvas = map.querySelector("canvas"), note = map.querySelector(".mapnote"), card = map.querySelector(".mapcard");
const paper = canvas.getContext("2d", { alpha: false });
const view = { x: SIDE / 2, y: SIDE / 2, scale: 0, fit: 0 };  // centre, and pixels of the canvas for one step
let places = new Uint16Array(0), codes = new Uint8Array(0), colours = new Uint32Array(256), back = 0;
let labels = [], labelled = true;
let lasso = null, lassoing = false, waiting = false, pixels = null;

const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
const packed = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
const query = (more) => new URLSearchParams({ dataset: map.dataset.dataset, ...more });

function mixed(ramp, share) {
  const at = Math.min(share * (ramp.length - 1), ramp.length - 1.001), low = Math.floor(at);
  const [from, to] = [rgb(ramp[low]), rgb(ramp[low + 1])];
  return from.map((value, n) => Math.round(value + (at - low) * (to[n] - value)));
}

// Ask until the map is made; each answer of 202 comes after two seconds.
async function get(path) {
  for (;;) {
    const answer = await fetch(path);
    if (answer.status === 202) { note.textContent = "The map is being made; a million pictures take a minute, once."; continue; }
    if (!answer.ok) throw new Error((await answer.json()).fault);
    return answer;
  }
}

// Fates have the colours of all pages: kept blue, copies green, rules that drop from orange to brown.
function fate(name, n) {
  const of = { kept: "--keep", duplicate: "--copy", exact_duplicate: "--copy" }[name];
  return of ? getComputedStyle(map).getPropertyValue(of).trim() : name ? DROPS[n % DROPS.length] : NAMES[NAMED];
}

async function colour(by) {
  const answer = await get(`/map/colours?${query({ by })}`);
  const legend = JSON.parse(answer.headers.get("X-Legend"));
  codes = new Uint8Array(await answer.arrayBuffer());
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  back = packed(rgb(dark ? "#1c1e21" : "#ffffff"));
  colours.fill(packed(rgb(dark ? "#4a4e55" : "#c9cccf")));
  if (legend.names) for (let n = 0; n <= NAMED; n++) colours[n] = packed(rgb(by === "fate" ? fate(legend.names[n], n) : NAMES[n]));
  else for (let n = 0; n <= LEVELS; n++) colours[n] = packed(mixed(RAMPS[dark ? "dark" : "light"], n / LEVELS));
  say(legend);
  draw();
}

// The legend is text beside small drawn squares: a strict policy allows no style of an element's own.
function say(legend) {
  const shown = document.querySelector(".legend");
  shown.replaceChildren();
  const number = (value) => Number(value.toPrecision(4)).toString();
  const counts = new Uint32Array(256);
  for (const code of codes) counts[code]++;
  const add = (code, text) => {
    const square = document.createElement("canvas");
    [square.width, square.height] = [12, 12];
    const [painted, value] = [square.getContext("2d"), colours[code]];
    painted.fillStyle = `rgb(${value & 255} ${(value >> 8) & 255} ${(value >> 16) & 255})`;
    painted.fillRect(0, 0, 12, 12);
    const entry = document.createElement("span");
    entry.append(square, ` ${text}`);
    shown.append(entry);
  };
  if (legend.names) {
    legend.names.forEach((name, n) => counts[n] && add(n, `${name} ${counts[n].toLocaleString("en")}`));
    if (counts[NAMED]) add(NAMED, `others ${counts[NAMED].toLocaleString("en")}`);
  } else for (const n of [0, 0.25, 0.5, 0.75, 1]) add(Math.round(n * LEVELS), number(legend.low + n * (legend.high - legend.low)));
  if (counts[NONE]) add(NONE, `none ${counts[NONE].toLocaleString("en")}`);
}

function resize() {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  pixels = paper.createImageData(canvas.width, canvas.height);
  const before = view.fit;
  view.fit = Math.min(canvas.width, canvas.height) / SIDE;
  view.scale = before ? (view.scale * view.fit) / before : view.fit;
  draw();
}

function draw() {
  if (waiting || !pixels) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; paint(); });
}

function paint() {
  const begun = performance.now();
  const width = canvas.width, height = canvas.height, field = new Uint32Array(pixels.data.buffer);
  const left = width / 2 - view.x * view.scale, top = height / 2 - view.y * view.scale, { scale } = view;
  const zoom = scale / view.fit, n = places.length / 2;
  const size = Math.max(1, Math.min(9, Math.round(Math.sqrt((width * height) / Math.max(n, 1)) * 0.12 * Math.sqrt(zoom))));
  field.fill(back);
  for (let i = 0; i < n; i++) {
    const x = (left + places[2 * i] * scale) | 0, y = (top + places[2 * i + 1] * scale) | 0;
    if (x < 0 || y < 0 || x + size > width || y + size > height) continue;
    const value = colours[codes[i]];
    if (size === 1) { field[y * width + x] = value; continue; }
    for (let row = y; row < y + size; row++) field.fill(value, row * width + x, row * width + x + size);
  }
  paper.putImageData(pixels, 0, 0);
  if (lasso) {
    paper.beginPath();
    lasso.forEach(([x, y]) => paper.lineTo(left + x * scale, top + y * scale));
    paper.closePath();
    paper.lineWidth = 2;
    paper.strokeStyle = "#d95f02";
    paper.stroke();
  }
  if (labelled) name(left, top, scale);
  map.dataset.drawn = n;
  map.dataset.frame = (performance.now() - begun).toFixed(1);
}

// Names of clusters, the largest first; one that would cover another is left out.
function name(left, top, scale) {
  const ratio = canvas.width / canvas.clientWidth, high = 16 * ratio, taken = [];
  paper.font = `600 ${12 * ratio}px system-ui, sans-serif`;
  [paper.lineWidth, paper.lineJoin, paper.textAlign] = [4 * ratio, "round", "center"];
  const style = getComputedStyle(map);
  [paper.strokeStyle, paper.fillStyle] = [style.getPropertyValue("--card"), style.getPropertyValue("--ink")];
  for (const each of labels) {
    const text = each.name.split(",")[0] || `cluster ${each.cluster}`, half = paper.measureText(text).width / 2;
    const x = Math.min(Math.max(left + each.x * scale, half), canvas.width - half), y = top + each.y * scale;
    if (y < high || y > canvas.height || x < half || taken.some(([u, v, w]) => Math.abs(v - y) < high && Math.abs(u - x) < w + half)) continue;
    taken.push([x, y, half]);
    paper.strokeText(text, x, y);
    paper.fillText(text, x, y);
  }
  map.dataset.labels = taken.length;
}

// The same clusters as links, for the keyboard and for screen readers.
function link() {
  document.querySelector("[data-clusters]").replaceChildren(...labels.map((each) => {
    const shown = document.createElement("a");
    shown.href = `/cluster/${each.cluster}?${query({})}`;
    shown.textContent = `${each.name || `cluster ${each.cluster}`} ${each.n.toLocaleString("en")}`;
    return shown;
  }));
}

function place(event) {
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  const x = (event.clientX - box.left) * ratio, y = (event.clientY - box.top) * ratio;
  return [view.x + (x - canvas.width / 2) / view.scale, view.y + (y - canvas.height / 2) / view.scale];
}

function zoom(by, at) {
  const [x, y] = at ?? [view.x, view.y];
  const scale = Math.max(view.fit * 0.5, Math.min(view.fit * 2000, view.scale * by));
  view.x = x + ((view.x - x) * view.scale) / scale;
  view.y = y + ((view.y - y) * view.scale) / scale;
  view.scale = scale;
  draw();
}

// Of a long line, CORNERS places: the address of the gallery holds them.
function choose(line) {
  const step = Math.max(1, Math.ceil(line.length / CORNERS));
  const kept = line.filter((_, n) => n % step === 0).map((corner) => corner.map((v) => Math.max(0, Math.min(SIDE, Math.round(v)))));
  if (kept.length > 2) location.assign(`/gallery?${query({ area: kept.map((corner) => corner.join(",")).join(";") })}`);
}

function nearest([x, y]) {
  const within = 8 / view.scale;
  let found = -1, best = within * within;
  for (let i = 0; i < places.length; i += 2) {
    const dx = places[i] - x, dy = places[i + 1] - y, distance = dx * dx + dy * dy;
    if (distance < best) [found, best] = [i / 2, distance];
  }
  return found;
}

let shown = -1, asking = 0;
async function show(n) {
  if (n === shown) return;
  shown = n;
  if (n < 0) { card.hidden = true; return; }
  const asked = ++asking;
  const answer = await fetch(`/map/point?${query({ n })}`);
  if (!answer.ok || asked !== asking) return;
  const image = await answer.json();
  card.href = `/item/${image.image_id}?${query({})}`;
  card.querySelector("img").src = `/picture/small/${image.sha256}`;
  card.querySelector(".line").textContent = image.dropped_by === "" ? "kept" : image.dropped_by ?? "";
  card.querySelector(".text").textContent = image.text ?? "";
  card.hidden = false;
}

let held = null, moved = false;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  [held, moved] = [{ at: place(event), x: event.clientX, y: event.clientY }, false];
  if (lassoing || event.shiftKey) lasso = [held.at];
});
canvas.addEventListener("pointermove", (event) => {
  if (!held) { if (event.pointerType === "mouse") show(nearest(place(event))); return; }
  if (Math.hypot(event.clientX - held.x, event.clientY - held.y) > 3) moved = true;
  const at = place(event);
  if (lasso) lasso.push(at);
  else { view.x += held.at[0] - at[0]; view.y += held.at[1] - at[1]; }
  draw();
});
canvas.addEventListener("pointerup", (event) => {
  const line = lasso;
  [held, lasso] = [null, null];
  if (line && moved) choose(line);
  else if (!moved) show(nearest(place(event)));
  draw();
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 400), place(event));
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const step = 60 / view.scale, by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
  if (by) { event.preventDefault(); view.x += by[0]; view.y += by[1]; draw(); }
  if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.5 : 1 / 1.5);
});

document.addEventListener("click", (event) => {
  const factor = event.target.dataset?.zoom;
  if (factor === "0") { Object.assign(view, { x: SIDE / 2, y: SIDE / 2, scale: view.fit }); draw(); }
  else if (factor) zoom(Number(factor));
  if (event.target.matches("[data-labels]")) {
    labelled = !labelled;
    event.target.setAttribute("aria-pressed", String(labelled));
    draw();
  }
  if (!event.target.matches("[data-lasso]")) return;
  lassoing = !lassoing;
  event.target.setAttribute("aria-pressed", String(lassoing));
  canvas.classList.toggle("lassoing", lassoing);
});
document.querySelector("[data-colour]").addEventListener("change", (event) => {
  history.replaceState(null, "", `/map?${query({ by: event.target.value })}`);
  colour(event.target.value).catch(fail);
});

function fail(error) {
  note.textContent = error.message || "The map cannot be read; open the page again.";
  note.hidden = false;
}

new ResizeObserver(resize).observe(canvas);
get(`/map/points?${query({})}`).then(async (answer) => {
  places = new Uint16Array(await answer.arrayBuffer());
  labels = JSON.parse(answer.headers.get("X-Labels"));
  link();
  await colour(map.dataset.by);
  note.hidden = true;
  document.querySelector(".mapsaid").textContent =
    `${(places.length / 2).toLocaleString("en")} pictures with a vector, near ones alike. Projection ${answer.headers.get("X-Digest")}, frozen beside the lake.`;
}).catch(fail);
