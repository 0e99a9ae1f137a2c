"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const drawn = new Set();

function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themed(layout) {
  const ink = themeColour("--ink"), line = themeColour("--line");
  const result = {
    ...layout, autosize: true, hovermode: "closest",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, family: "system-ui, sans-serif", size: 13 },
    margin: { t: 30, r: 20, b: 50, l: 60 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: themeColour("--muted"), activecolor: ink },
    hoverlabel: { align: "left", bgcolor: themeColour("--card"), font: { color: ink } },
  };
  for (const key of ["xaxis", "yaxis", ...Object.keys(layout)]) {
    if (/^[xy]axis/.test(key)) {
      const colours = { gridcolor: line, linecolor: line, zerolinecolor: line };
      result[key] = { automargin: true, ...layout[key], ...colours };
    }
  }
  return result;
}

function draw(element) {
  const { data, layout } = figures[element.dataset.plot];
  window.Plotly.react(element, data, themed(layout), {
    responsive: true, displaylogo: false,
    // Nothing of a report goes anywhere at a click.
    showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d"],
  });
  drawn.add(element);
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
    elements.forEach((each) => { each.textContent = `This browser cannot draw plots (${error}).`; });
    return;
  }
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      observer.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  elements.forEach((element) => observer.observe(element));
  addEventListener("beforeprint", () => elements.forEach(draw));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => drawn.forEach(draw));
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
