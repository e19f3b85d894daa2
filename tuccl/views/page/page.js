"use strict";
(() => {
  const root = document.documentElement;
  let charts = {};
  let places = [];
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

  /* Texts that begin with `--` name variables of the style sheet. */
  const coloured = (value, style) => {
    if (typeof value === "string" && value.startsWith("--")) return style.getPropertyValue(value).trim();
    if (Array.isArray(value)) return value.map((each) => coloured(each, style));
    if (!isObject(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, style)]));
  };

  /* Many cells share few texts, so they hold their numbers. */
  const spelled = (trace) => {
    if (!trace.texts) return trace;
    const { texts, ...rest } = trace;
    return { ...rest, customdata: trace.customdata.map((row) => row.map((number) => texts[number])) };
  };

  const merged = (below, above) => {
    const result = { ...below };
    for (const [name, value] of Object.entries(above || {})) {
      result[name] = isObject(value) && isObject(result[name]) ? merged(result[name], value) : value;
    }
    return result;
  };

  const axis = {
    gridcolor: "--rule", linecolor: "--muted", zeroline: false, ticks: "outside", tickcolor: "--muted",
    automargin: true, fixedrange: true,
  };
  const common = {
    font: { family: "system-ui, 'Segoe UI', 'Liberation Sans', sans-serif", size: 13, color: "--ink" },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 60, r: 16, t: 12, b: 44 },
    legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yanchor: "bottom", yref: "container" },
    hoverlabel: { bgcolor: "--surface", bordercolor: "--muted", font: { color: "--ink" }, align: "left" },
    hovermode: "closest", showlegend: true, xaxis: axis, yaxis: axis,
  };

  const chosen = {};
  const heightOf = (place) => {
    const { layout, layouts } = charts[place.id];
    return (layouts && chosen[place.id] ? layouts[chosen[place.id]] : layout).height;
  };
  const draw = (place, size) => {
    const chart = charts[place.id];
    const choice = chosen[place.id];
    const traces = choice ? chart.choices[choice] : chart.traces;
    let layout = merged(merged(common, chart.layout), choice && chart.layouts ? chart.layouts[choice] : {});
    layout = merged(layout, size);
    const style = getComputedStyle(root);
    place.style.height = layout.height ? `${layout.height}px` : "";
    Plotly.react(place, coloured(traces.map(spelled), style), coloured(layout, style), {
      displayModeBar: false, responsive: !size, displaylogo: false,
    });
  };
  const drawAll = (size) => places.forEach((place) => draw(place, size));

  const bindCharts = () => {
    charts = JSON.parse(document.getElementById("charts").textContent);
    places = [...document.querySelectorAll(".chart")].filter((place) => charts[place.id]);
    document.querySelectorAll("select[data-chart]").forEach((select) => {
      const place = document.getElementById(select.dataset.chart);
      const choose = () => {
        chosen[place.id] = select.value;
        draw(place);
      };
      select.addEventListener("change", choose);
      if (charts[place.id].choices[chosen[place.id]]) select.value = chosen[place.id];
      chosen[place.id] = select.value;
    });
    drawAll();
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    places.forEach((place) => draw(place, {
      width: place.closest(".pair") ? 315 : 665, autosize: false, font: { size: 10 },
      height: Math.min(heightOf(place) || 280, 800), legend: { font: { size: 9 } },
    }));
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    drawAll();
  });

  const show = (event) => {
    const cell = event.target.closest("[data-show]");
    if (!cell) return;
    document.getElementById(cell.dataset.show).textContent = cell.title;
  };
  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);

  /* One cell of a heat map is in the order of the Tab key; arrow keys move on from there. */
  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const bindHeatMap = (table) => {
    const cells = [...table.querySelectorAll(".cell")];
    const enter = (entered) => cells.forEach((cell) => { cell.tabIndex = cell === entered ? 0 : -1; });
    enter(cells[0]);
    table.addEventListener("focusin", (event) => enter(event.target));
    table.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      const rows = [...table.tBodies[0].rows].filter((row) => row.cells.length > 1);
      let row = rows.indexOf(event.target.parentElement) + step[0];
      let column = event.target.cellIndex + step[1];
      while (rows[row] && rows[row].cells[column] && !rows[row].cells[column].matches(".cell")) {
        row += step[0];
        column += step[1];
      }
      const next = rows[row] && rows[row].cells[column];
      if (next) next.focus();
    });
  };

  const bindTable = (table) => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((each) => each.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const sign = ascending ? 1 : -1;
      const value = (row) => {
        const cell = row.cells[column];
        return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
      };
      const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
      const rows = [...body.rows].sort((a, b) => sign * compare(value(a), value(b)));
      rows.forEach((row) => body.append(row));
    }));
  };

  const bindFilter = (input) => {
    const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
    const count = document.querySelector(`[data-count="${input.dataset.table}"]`);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      });
      count.textContent = `${shown} of ${rows.length} keys`;
    });
  };

  const bind = () => {
    bindCharts();
    document.querySelectorAll("table.heat").forEach(bindHeatMap);
    document.querySelectorAll("table.sortable").forEach(bindTable);
    document.querySelectorAll("input[data-table]").forEach(bindFilter);
  };
  bind();
  /* A page that is followed has its content replaced. */
  document.addEventListener("replaced", bind);
})();
