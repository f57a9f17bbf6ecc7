"use strict";
// The page is complete without any of this: it adds a choice of theme, copying, print,
// and limits that a reader may move.
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(root).colorScheme === "dark";
  root.dataset.theme = dark ? "light" : "dark";
});

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const range = document.createRange();
  range.selectNodeContents(source);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    document.execCommand("copy"); // files opened by double click may not use the clipboard directly
  }
  const label = button.firstChild;
  const before = label.textContent;
  label.textContent = "Copied";
  setTimeout(() => { label.textContent = before; }, 1500);
}
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => copy(button));
}

let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details.card:not([open]), details.passed:not([open])")];
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of closed) one.open = false;
});

// A link into a closed part opens it.
addEventListener("hashchange", () => {
  const target = document.getElementById(location.hash.slice(1));
  for (let one = target && target.parentElement; one; one = one.parentElement) {
    if (one.tagName === "DETAILS") one.open = true;
  }
});

// What to rent: the rule of `stash recommend`, over the ways that no other beats in both.
function explore(part) {
  const rows = [...part.querySelectorAll("tr[data-way]")];
  const ways = rows.map((row) => ({
    row,
    way: row.dataset.way,
    hours: Number(row.dataset.hours),
    cost: Number(row.dataset.cost),
  }));
  const worth = Number(part.dataset.worth);
  const sliders = ["deadline", "budget"].map((name) => document.getElementById("rent-" + name));

  function limit(slider) {
    const told = JSON.parse(slider.dataset.labels)[slider.value];
    slider.setAttribute("aria-valuetext", told);
    slider.nextElementSibling.textContent = told;
    return JSON.parse(slider.dataset.values)[slider.value] ?? Infinity;
  }

  function best(deadline, budget) {
    let score = (way) => way.cost + worth * way.hours;
    if (deadline < Infinity) score = (way) => way.cost;
    else if (budget < Infinity) score = (way) => way.hours;
    return ways
      .filter((way) => way.hours <= deadline && way.cost <= budget)
      .sort((a, b) => score(a) - score(b) || a.cost - b.cost || a.hours - b.hours)[0];
  }

  function moveLimit(drawing, name, value, axis) {
    const group = drawing.querySelector(`[data-limit="${name}"]`);
    const [low, high, start, end] = drawing.dataset[axis].split(" ").map(Number);
    group.setAttribute("visibility", value < Infinity ? "visible" : "hidden");
    const shown = Math.min(Math.max(value, low), high);
    const place = start + (Math.log(shown / low) / Math.log(high / low)) * (end - start);
    const across = axis === "hours" ? ["x1", "x2"] : ["y1", "y2"];
    for (const side of across) group.firstChild.setAttribute(side, place);
  }

  function update() {
    const [deadline, budget] = sliders.map(limit);
    const chosen = best(deadline, budget);
    for (const { row, way, hours, cost } of ways) {
      const late = hours > deadline;
      const dear = cost > budget;
      const taken = chosen !== undefined && way === chosen.way;
      row.classList.toggle("chosen", taken);
      row.classList.toggle("out", late || dear);
      const told = late ? (dear ? "too slow, too dear" : "too slow") : dear ? "too dear" : "";
      row.querySelector(".by-limits").textContent = taken ? "rent this" : told;
      for (const mark of part.querySelectorAll(`g[data-way="${way}"]`)) {
        mark.setAttribute("opacity", late || dear ? "0.3" : "1");
        mark.querySelector(".mark").setAttribute("visibility", taken ? "visible" : "hidden");
      }
    }
    for (const drawing of part.querySelectorAll("g[data-hours]")) {
      moveLimit(drawing, "deadline", deadline, "hours");
      moveLimit(drawing, "budget", budget, "cost");
    }
    const sentence = chosen ? chosen.row.dataset.sentence : part.dataset.nothing;
    part.querySelector(".choice strong").textContent = sentence;
  }

  part.querySelector(".sliders").hidden = false;
  for (const slider of sliders) slider.addEventListener("input", update);
  update();
}
for (const sliders of document.querySelectorAll("section.rent .sliders")) {
  explore(sliders.closest("section"));
}
