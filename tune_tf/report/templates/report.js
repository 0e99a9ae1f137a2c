"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const printing = matchMedia("print");
const drawn = new Set(), replaced = new Set();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function merged(base, over) {
  const found = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const both = value && found[key] && !Array.isArray(value) && typeof value === "object";
    found[key] = both ? merged(found[key], value) : value;
  }
  return found;
}

function themed(figure) {
  const ink = colour("--ink"), line = colour("--line");
  const layout = merged({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { color: ink, family: "system-ui, sans-serif", size: 13 },
    margin: { t: 40, r: 20, b: 60, l: 70 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--muted"), activecolor: ink },
    hoverlabel: { align: "left", bgcolor: colour("--card"), font: { color: ink } },
  }, figure.layout);
  const axes = Object.keys(layout).filter((key) => /^[xy]axis/.test(key));
  for (const key of ["xaxis", "yaxis", ...axes]) {
    layout[key] = merged({ gridcolor: line, linecolor: line, automargin: true }, layout[key] ?? {});
  }
  const data = figure.data.map((trace) => trace.meta !== "ink" ? trace : {
    ...trace,
    line: { ...trace.line, color: ink },
    marker: { ...trace.marker, color: ink, line: { ...trace.marker?.line, color: ink } },
  });
  return [data, layout];
}

function draw(place) {
  if (replaced.has(place)) return;
  const figure = figures[place.dataset.plot];
  if (!drawn.has(place)) place.replaceChildren();
  const [data, layout] = themed(figure);
  const settings = {
    responsive: true, displaylogo: false,
    // Nothing of a report goes anywhere at a click.
    showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d"],
  };
  window.Plotly.react(place, data, layout, settings);
  drawn.add(place);
  if (place.querySelector(".no-webgl")) showStill(place);
}

function showStill(place) {
  const image = document.getElementById(`${place.dataset.plot}-static`);
  place.hidden = true; // not taken away: plotly.js may still be at work in it
  place.after(image.content.cloneNode(true));
  replaced.add(place);
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
  const places = [...document.querySelectorAll("[data-plot]")];
  if (!places.length) return;
  try {
    await loadPlotly();
  } catch (error) {
    for (const place of places) {
      place.textContent = `This browser cannot draw the plot (${error}); plots/ has it as a file.`;
    }
    return;
  }
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  draw(places[0]);
  places.slice(1).forEach((place) => seen.observe(place));
  addEventListener("beforeprint", () => places.forEach((place) => drawn.has(place) || draw(place)));
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
      const compared = (a, b) => {
        const [first, second] = [key(a, column), key(b, column)];
        if (first === undefined || second === undefined) {
          return (first === undefined) - (second === undefined);
        }
        const apart = isNaN(first) || isNaN(second) ? first.localeCompare(second) : first - second;
        return down ? -apart : apart;
      };
      body.append(...[...body.rows].sort(compared));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  }
}

document.querySelectorAll("table.sortable").forEach(sortable);
drawAll();
