"use strict";
// Draws every chart of the page, in the colours of the page, and again when those or its width change.
(function () {
  const config = {displaylogo: false, displayModeBar: false, scrollZoom: false, showLink: false,
                  plotlyServerURL: "", responsive: true};

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

  function draw() {
    const font = {size: 13, color: variable("--text"),
                  family: getComputedStyle(document.body).fontFamily};
    for (const place of document.querySelectorAll("[data-chart]")) {
      const chart = dressed(JSON.parse(document.getElementById(place.dataset.chart).textContent), "");
      const layout = Object.assign(chart.layout, {
        font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false,
        hoverlabel: {align: "left", bgcolor: variable("--card"), bordercolor: variable("--line"),
                     font: {color: variable("--text"), size: 13}}});
      Plotly.react(place, chart.data, layout, config);
    }
  }

  draw();
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", draw);
  }
})();
