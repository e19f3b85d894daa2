"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = {};
  let printing = false;

  /* Texts as `var(--ink)` name colours of the style sheet, which has those of both schemes. */
  const read = () => {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).match(/#[0-9a-f]+/g)[dark.matches && !printing ? 1 : 0];
    return JSON.parse(document.getElementById("charts").textContent, (_, value) => (
      typeof value === "string" && value.startsWith("var(--") ? colour(value.slice(4, -1)) : value
    ));
  };

  const draw = (place, { charts, template }) => {
    const figures = charts[place.id];
    const { data, layout } = figures[chosen[place.id]] || Object.values(figures)[0];
    /* Many cells share few texts, so they hold their numbers. */
    data.filter((trace) => trace.meta).forEach((trace) => {
      trace.customdata = trace.customdata.map((row) => row.map((number) => trace.meta[number]));
    });
    const paper = !printing ? {} : {
      width: place.closest(".pair") ? 315 : 665, height: Math.min(layout.height || 280, 800), autosize: false,
      font: { size: 10 }, legend: { font: { size: 9 } },
    };
    const whole = { ...layout, ...paper, template };
    place.style.height = whole.height ? `${whole.height}px` : "";
    Plotly.react(place, data, whole, { displayModeBar: false, responsive: !printing });
  };
  const drawAll = () => {
    const known = read();
    all(".chart").forEach((place) => draw(place, known));
  };
  const print = (begins) => {
    printing = begins;
    drawAll();
  };
  dark.addEventListener("change", drawAll);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));

  const bindChoice = (select) => {
    const id = select.dataset.chart;
    if ([...select.options].some((option) => option.value === chosen[id])) select.value = chosen[id];
    select.addEventListener("change", () => {
      chosen[id] = select.value;
      draw(document.getElementById(id), read());
    });
  };

  const show = ({ target }) => {
    const cell = target.closest("[data-show]");
    if (cell) document.getElementById(cell.dataset.show).textContent = cell.title;
  };
  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);

  /* One cell of a heat map is in the order of the Tab key; arrow keys move on from there. */
  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const bindHeatMap = (table) => {
    const cells = all(".cell", table);
    const rows = all("tr:not(.group)", table.tBodies[0]);
    const enter = (entered) => cells.forEach((cell) => { cell.tabIndex = cell === entered ? 0 : -1; });
    enter(cells[0]);
    table.addEventListener("focusin", ({ target }) => enter(target));
    table.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      let [row, column] = [rows.indexOf(event.target.parentElement), event.target.cellIndex];
      let next;
      do {
        row += step[0];
        column += step[1];
        next = rows[row]?.cells[column];
      } while (next && !next.matches(".cell"));
      next?.focus();
    });
  };

  const bindTable = (table) => {
    const heads = all("thead th", table);
    heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      heads.forEach((each) => { each.ariaSort = "none"; });
      head.ariaSort = sign === 1 ? "ascending" : "descending";
      const compare = (a, b) => (
        a.dataset.value ? a.dataset.value - b.dataset.value : a.textContent.localeCompare(b.textContent)
      );
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => sign * compare(a.cells[column], b.cells[column]));
      table.tBodies[0].append(...rows);
    }));
  };

  const bindFilter = (input) => {
    const rows = all(`#${input.dataset.table} tbody tr`);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      rows.forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      });
      const shown = rows.filter((row) => !row.hidden).length;
      document.querySelector(`[data-count=${input.dataset.table}]`).textContent = `${shown} of ${rows.length} keys`;
    });
  };

  const bind = () => {
    all("select[data-chart]").forEach(bindChoice);
    all("table.heat").forEach(bindHeatMap);
    all("table.sortable").forEach(bindTable);
    all("input[data-table]").forEach(bindFilter);
    drawAll();
  };
  bind();

  /* A page that is followed has its script from a server, which it asks for news every two seconds. */
  if (!document.querySelector("script[src]")) return;
  let tag = null;
  const state = document.createElement("p");
  state.className = "note";
  state.setAttribute("role", "status");
  const say = (text) => {
    state.textContent = text;
    document.querySelector("header").append(state);
  };

  /* Choices of charts stay by themselves; open details and filters are put back. */
  const replace = (text) => {
    const found = new DOMParser().parseFromString(text, "text/html");
    const open = all("details").map((each) => each.open);
    const filters = all("input[data-table]").map((each) => each.value);
    all(".chart").forEach((place) => Plotly.purge(place));
    document.title = found.title;
    for (const name of ["header", "main", "footer", "#charts"]) {
      document.querySelector(name).replaceWith(document.importNode(found.querySelector(name), true));
    }
    bind();
    const details = all("details");
    if (details.length === open.length) details.forEach((each, number) => { each.open = open[number]; });
    all("input[data-table]").forEach((each, number) => {
      each.value = filters[number] || "";
      each.dispatchEvent(new Event("input"));
    });
  };
  const look = async () => {
    try {
      const answer = await fetch("/", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        const text = await answer.text();
        if (tag !== null) replace(text);
        tag = answer.headers.get("ETag");
        say("Followed: the page changes when the run has measured more.");
      } else if (answer.status !== 304) {
        say(await answer.text());
      }
    } catch {
      say("The server of this page has ended: `tuccl report --follow` starts it again.");
    }
    setTimeout(look, 2000);
  };
  look();
})();
