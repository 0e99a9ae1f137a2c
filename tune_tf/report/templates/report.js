"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const printing = matchMedia("print");
const drawn = new Set(), replaced = new Set();

function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function merge(base, changes) {
  const result = { ...base };
  for (const [key, value] of Object.entries(changes)) {
    const both = value && result[key] && !Array.isArray(value) && typeof value === "object";
    result[key] = both ? merge(result[key], value) : value;
  }
  return result;
}

function themed(figure) {
  const ink = themeColour("--ink"), line = themeColour("--line");
  const layout = merge({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { color: ink, family: "system-ui, sans-serif", size: 13 },
    margin: { t: 40, r: 20, b: 60, l: 70 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: themeColour("--muted"), activecolor: ink },
    hoverlabel: { align: "left", bgcolor: themeColour("--card"), font: { color: ink } },
  }, figure.layout);
  const axes = Object.keys(layout).filter((key) => /^[xy]axis/.test(key));
  for (const key of ["xaxis", "yaxis", ...axes]) {
    layout[key] = merge({ gridcolor: line, linecolor: line, automargin: true }, layout[key] ?? {});
  }
  const data = figure.data.map((trace) => trace.meta !== "ink" ? trace : {
    ...trace,
    line: { ...trace.line, color: ink },
    marker: { ...trace.marker, color: ink, line: { ...trace.marker?.line, color: ink } },
  });
  return [data, layout];
}

function draw(element) {
  if (replaced.has(element)) return;
  const figure = figures[element.dataset.plot];
  if (!drawn.has(element)) element.replaceChildren();
  const [data, layout] = themed(figure);
  const settings = {
    responsive: true, displaylogo: false,
    // Nothing of a report goes anywhere at a click.
    showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d"],
  };
  window.Plotly.react(element, data, layout, settings);
  drawn.add(element);
  if (element.querySelector(".no-webgl")) showStatic(element);
}

function showStatic(element) {
  const image = document.getElementById(`${element.dataset.plot}-static`);
  element.hidden = true; // not taken away: plotly.js may still be at work in it
  element.after(image.content.cloneNode(true));
  replaced.add(element);
}

async function loadPlotly() {
  const packed = atob(document.getElementById("plotly").textContent.trim());
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

async function drawAll() {
  const elements = [...document.querySelectorAll("[data-plot]")];
  if (!elements.length) return;
  try {
    await loadPlotly();
  } catch (error) {
    for (const element of elements) {
      element.textContent = `This browser cannot draw the plot (${error}); plots/ has it as a file.`;
    }
    return;
  }
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      observer.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  draw(elements[0]);
  elements.slice(1).forEach((element) => observer.observe(element));
  addEventListener("beforeprint", () => {
    elements.filter((element) => !drawn.has(element)).forEach((element) => draw(element));
  });
  for (const change of [dark, printing]) {
    change.addEventListener("change", () => drawn.forEach(draw));
  }
}

function sortable(table) {
  const body = table.tBodies[0];
  const key = (row, column) => row.cells[column].dataset.key;
  for (const [column, header] of [...table.tHead.rows[0].cells].entries()) {
    header.querySelector("button").addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      const compare = (a, b) => {
        const [first, second] = [key(a, column), key(b, column)];
        if (first === undefined || second === undefined) {
          return (first === undefined) - (second === undefined);
        }
        const isText = isNaN(first) || isNaN(second);
        const difference = isText ? first.localeCompare(second) : first - second;
        return down ? -difference : difference;
      };
      body.append(...[...body.rows].sort(compare));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  }
}

document.querySelectorAll("table.sortable").forEach(sortable);
drawAll();
