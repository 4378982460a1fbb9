// Search, sort and page through pairs, and enlarge pictures. Without this script all of it can be read, unsorted.
"use strict";
document.documentElement.classList.add("scripted");

const AT_ONCE = 24;

function browsePairs(section) {
  const list = section.querySelector(".many");
  const cards = [...list.querySelectorAll(".pair")];
  const words = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));
  const search = section.querySelector("input[type=search]");
  const sort = section.querySelector("select");
  const [back, on] = section.querySelectorAll(".pages button");
  const said = section.querySelector(".pages output");
  let found = cards, page = 0;

  function show() {
    const pages = Math.max(1, Math.ceil(found.length / AT_ONCE));
    page = Math.min(Math.max(page, 0), pages - 1);
    const shown = new Set(found.slice(page * AT_ONCE, (page + 1) * AT_ONCE));
    for (const card of cards) card.hidden = !shown.has(card);
    said.textContent = `${found.length} found, page ${page + 1} of ${pages}`;
    back.disabled = page === 0;
    on.disabled = page === pages - 1;
  }
  function choose() {
    const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = cards.filter((card) => asked.every((word) => words.get(card).includes(word)));
    const [column, way] = sort.value.split(" ");
    if (way) {
      const value = (card) => parseFloat(card.dataset[column]);
      const known = (card) => Number.isFinite(value(card));
      found.sort((a, b) => known(b) - known(a) || (way === "up" ? 1 : -1) * (value(a) - value(b)) || 0);
    }
    list.append(...found);
    page = 0;
    show();
  }
  function turn(by) {
    page += by;
    show();
    section.scrollIntoView();
  }
  search.addEventListener("input", choose);
  sort.addEventListener("change", choose);
  back.addEventListener("click", () => turn(-1));
  on.addEventListener("click", () => turn(1));
  show();
}

function enlargePictures() {
  const dialog = document.querySelector("dialog");
  const large = dialog.querySelector("img"), words = dialog.querySelector(".words");
  const pictures = [...document.querySelectorAll(".picture img")];
  let at = null;

  function open(picture) {
    const of = picture.closest(".pair, .shot");
    at = picture;
    large.src = picture.src;
    large.alt = picture.alt;
    words.replaceChildren(...[...of.children].filter((each) => !each.contains(picture)).map((each) => each.cloneNode(true)));
    const id = document.createElement("code");
    id.textContent = `pairmill why ${of.dataset.id}`;
    words.append(id);
    if (!dialog.open) dialog.showModal();
  }
  function step(by) {
    const near = [...at.closest(".strip, .many").querySelectorAll(".picture img")].filter((each) => !each.closest("[hidden]"));
    open(near[(near.indexOf(at) + by + near.length) % near.length]);
  }
  for (const picture of pictures) {
    picture.tabIndex = 0;
    picture.setAttribute("role", "button");
    picture.setAttribute("aria-label", `Enlarge: ${picture.alt || "picture"}`);
  }
  document.addEventListener("click", (event) => {
    if (pictures.includes(event.target)) open(event.target);
    if (event.target === dialog) dialog.close();
  });
  document.addEventListener("keydown", (event) => {
    if (dialog.open && event.key === "ArrowRight") step(1);
    else if (dialog.open && event.key === "ArrowLeft") step(-1);
    else if (pictures.includes(event.target) && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      open(event.target);
    }
  });
  dialog.addEventListener("close", () => at && at.focus());
  const [back, on, close] = dialog.querySelectorAll("button");
  back.addEventListener("click", () => step(-1));
  on.addEventListener("click", () => step(1));
  close.addEventListener("click", () => dialog.close());
}

for (const section of document.querySelectorAll("#pairs")) if (section.querySelector(".tools")) browsePairs(section);
enlargePictures();
