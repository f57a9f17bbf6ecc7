"use strict";
// The page is complete without any of this: it adds a choice of theme, copying, and print.
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
