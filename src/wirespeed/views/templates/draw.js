"use strict";
// Draws every chart and map, in the colours of the page: at once what is in sight, the others in turn,
// and all again when the colours change. What is not drawn yet is drawn before it is printed.
(function () {
  const config = {displaylogo: false, displayModeBar: false, scrollZoom: false, showLink: false,
                  plotlyServerURL: ""};

  function variable(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // A colour is given as the name of a variable of the page's style.
  function dressed(value, key) {
    if (typeof value === "string") {
      return /color$/i.test(key) && value.startsWith("--") ? variable(value) : value;
    }
    if (Array.isArray(value)) return value.map((one) => dressed(one, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, one]) => [k, dressed(one, k)]));
  }

  function read(id) {
    return JSON.parse(document.getElementById(id).textContent);
  }

  function common(size) {
    return {font: {size, color: variable("--text"), family: getComputedStyle(document.body).fontFamily},
            hoverlabel: {align: "left", bgcolor: variable("--card"), bordercolor: variable("--line"),
                         font: {color: variable("--text"), size: 13}}};
  }

  function chart(place) {
    const {data, layout} = dressed(read(place.dataset.chart), "");
    for (const trace of data) {
      if (trace.type === "bar") trace.marker.line = {color: variable("--soft"), width: 0.7};
    }
    const paper = {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false};
    Plotly.react(place, data, Object.assign(layout, common(13), paper),
                 Object.assign({responsive: true}, config));
  }

  function map(place) {
    const {data: [measured, empty], layout} = read(place.dataset.figure);
    empty.colorscale = [[0, variable("--empty")], [1, variable("--empty")]];
    layout.plot_bgcolor = variable("--gap");
    Object.assign(layout, common(layout.font.size));
    for (const frame of layout.shapes) frame.line.color = variable("--mark");
    Plotly.react(place, [measured, empty], layout, Object.assign({responsive: false}, config));
  }

  function draw(place) {
    waiting.delete(place);
    (place.dataset.chart ? chart : map)(place);
  }

  const places = [...document.querySelectorAll("[data-chart], [data-figure]")];
  const waiting = new Set(places);

  function inSight(place) {
    const box = place.getBoundingClientRect();
    return box.bottom >= 0 && box.top <= innerHeight;
  }

  function next() {
    if (waiting.size === 0) return;
    const left = [...waiting];
    draw(left.find(inSight) || left[0]);
    setTimeout(next, 0);
  }

  function again() {
    const idle = waiting.size === 0;
    for (const place of places) waiting.add(place);
    if (idle) next();
  }

  function now() {
    for (const place of [...waiting]) draw(place);
  }

  next();
  // Plotly measures text in an element of its own, which is nothing to be read.
  const ruler = document.getElementById("js-plotly-tester");
  if (ruler) ruler.setAttribute("aria-hidden", "true");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  matchMedia("print").addEventListener("change", again);
  addEventListener("beforeprint", now);
})();
