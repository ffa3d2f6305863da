"use strict";
// Everything works without this: it makes a grid one stop of the keyboard, shows the newest of a wide
// picture, keeps a live page fresh, and at most two runs chosen.
(function () {
  // Arrows walk a grid of nodes; Tab passes it.
  function stops(part) {
    for (const grid of part.querySelectorAll(".cells"))
      [...grid.children].forEach((cell, n) => { cell.tabIndex = n === 0 ? 0 : -1; });
  }
  function step(from, to) {
    for (const cell of from.parentElement.children) cell.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }
  stops(document);
  addEventListener("keydown", (event) => {
    const cell = event.target, grid = cell.parentElement;
    if (!grid || !grid.classList.contains("cells")) return;
    if (event.altKey || event.ctrlKey || event.metaKey) return;  // of the browser
    const cells = [...grid.children], at = cells.indexOf(cell), top = cells[0].offsetTop;
    const next = cells.findIndex((one) => one.offsetTop !== top);
    const wide = next < 0 ? cells.length : next;
    const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide,
                   Home: -at, End: cells.length - 1 - at};
    const to = cells[at + steps[event.key]];
    if (to === undefined) return;
    event.preventDefault();
    step(cell, to);
  });

  // Of a picture that is wider than the window the newest is shown.
  for (const picture of document.querySelectorAll(".frame > .plot-t")) {
    picture.parentElement.scrollLeft = picture.parentElement.scrollWidth;
  }

  // At most two runs are compared: a third takes the place of the one that was chosen first.
  const chosen = [];
  addEventListener("change", (event) => {
    if (event.target.name !== "run") return;
    if (event.target.checked) chosen.push(event.target);
    else if (chosen.includes(event.target)) chosen.splice(chosen.indexOf(event.target), 1);
    while (chosen.length > 2) chosen.shift().checked = false;
  });

  // A live page asks for itself again, and only what moves is put in place.
  const main = document.querySelector("[data-again]");
  if (main === null) return;
  function renew(old, next) {  // who was at some place by keyboard stays there
    const places = (part) => [...part.querySelectorAll("a, .cells > *")];
    const at = places(old).indexOf(document.activeElement);
    old.replaceWith(next);
    stops(next);
    const there = places(next)[at];
    if (there === undefined) return;
    if (there.parentElement.classList.contains("cells")) step(there, there);
    else there.focus();
  }
  async function again() {
    const old = document.getElementById("live");
    if (old === null) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const next = page.querySelector("[data-again] #live");  // else it is over
        if (answer.ok && next !== null) renew(old, document.importNode(next, true));
        else if (answer.ok) location.reload();
        document.getElementById("lost").hidden = answer.ok;
      } catch {
        document.getElementById("lost").hidden = false;
      }
    }
    setTimeout(again, 1000 * Number(main.dataset.again));
  }
  setTimeout(again, 1000 * Number(main.dataset.again));
})();
