"use strict";
(() => {
  const EVERY_MS = 2000;
  let tag = null;

  const state = document.createElement("p");
  state.className = "note";
  state.setAttribute("role", "status");
  const tell = (text) => {
    state.textContent = text;
    document.querySelector("header").append(state);
  };

  /* Choices of charts stay by themselves; open details and filters are put back. */
  const replace = (text) => {
    const found = new DOMParser().parseFromString(text, "text/html");
    const open = [...document.querySelectorAll("details")].map((each) => each.open);
    const filters = [...document.querySelectorAll("input[data-table]")].map((each) => each.value);
    document.querySelectorAll(".js-plotly-plot").forEach((place) => Plotly.purge(place));
    document.title = found.title;
    for (const name of ["header", "main", "footer", "#charts"]) {
      document.querySelector(name).replaceWith(document.importNode(found.querySelector(name), true));
    }
    document.dispatchEvent(new Event("replaced"));
    const details = [...document.querySelectorAll("details")];
    if (details.length === open.length) details.forEach((each, number) => { each.open = open[number]; });
    document.querySelectorAll("input[data-table]").forEach((each, number) => {
      if (!filters[number]) return;
      each.value = filters[number];
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
        tell("Followed: the page changes when the run has measured more.");
      } else if (answer.status !== 304) {
        tell(await answer.text());
      }
    } catch (error) {
      tell("The server of this page has ended: `tuccl report --follow` starts it again.");
    }
    setTimeout(look, EVERY_MS);
  };
  look();
})();
