"use strict";
// Everything works without this: it makes a grid one stop of the keyboard, shows the newest of a wide
// picture, keeps a live page fresh, and at most two runs chosen.
(function () {
  // Arrows walk a grid of nodes; Tab passes it.
  for (const grid of document.querySelectorAll(".cells")) {
    const cells = [...grid.children];
    cells.forEach((cell, n) => { cell.tabIndex = n === 0 ? 0 : -1; });
    grid.addEventListener("keydown", (event) => {
      const at = cells.indexOf(document.activeElement);
      if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;  // of the browser
      const top = cells[0].offsetTop;
      const next = cells.findIndex((cell) => cell.offsetTop !== top);
      const wide = next < 0 ? cells.length : next;
      const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide,
                     Home: -at, End: cells.length - 1 - at};
      const to = cells[at + steps[event.key]];
      if (to === undefined) return;
      event.preventDefault();
      cells[at].tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    });
  }

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
  async function again() {
    const old = document.getElementById("live");
    if (old === null) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const next = page.getElementById("live");
        if (answer.ok && next !== null) old.replaceWith(document.importNode(next, true));
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
