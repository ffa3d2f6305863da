"use strict";
// Draws every figure of the page, in the colours of the page, and again when those change.
(function () {
  const config = {displaylogo: false, displayModeBar: false, scrollZoom: false, showLink: false,
                  plotlyServerURL: "", responsive: false};

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function dressed(figure) {
    const [measured, empty] = figure.data, layout = figure.layout;
    empty.colorscale = [[0, color("--empty")], [1, color("--empty")]];
    layout.plot_bgcolor = color("--gap");
    layout.font = {size: layout.font.size, color: color("--text"),
                   family: getComputedStyle(document.body).fontFamily};
    layout.hoverlabel = {align: "left", bgcolor: color("--card"), bordercolor: color("--line"),
                         font: {color: color("--text"), size: 13}};
    for (const frame of layout.shapes) frame.line.color = color("--mark");
    return [[measured, empty], layout];
  }

  function draw() {
    for (const place of document.querySelectorAll("[data-figure]")) {
      const text = document.getElementById(place.dataset.figure).textContent;
      Plotly.react(place, ...dressed(JSON.parse(text)), config);
    }
  }

  draw();
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", draw);
  }
})();
