// Charts, tables that sort, and a page that prints whole. Runs on every page.
"use strict";
{
  const ink = "currentColor"; // the page's, which follows the reader's colour scheme
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    ast: true, // expressions are interpreted: the page's policy allows no eval
    config: {
      background: null,
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: {
        labelColor: ink, titleColor: ink, domainColor: ink, tickColor: ink, gridColor: ink,
        gridOpacity: 0.15, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
      },
      legend: { labelColor: ink, titleColor: ink, labelFontSize: 12 },
    },
    actions: { export: true, source: false, compiled: false, editor: false },
  };

  // Vega takes names for keys of plain objects, and cannot draw what all of those have: "constructor", "toString" ...
  const drawable = (key, value) => (typeof value === "string" && value in Object.prototype ? `${value}\u2060` : value);

  function draw(data) {
    const place = data.nextElementSibling;
    const spec = JSON.parse(data.textContent, drawable);
    return vegaEmbed(place, spec, { ...options, downloadFileName: data.dataset.name }).then(
      ({ view }) => {
        place.querySelector("summary")?.setAttribute("aria-label", "Save this chart");
        view.addEventListener("click", (event, item) => {
          if (item?.datum?.href) location.hash = item.datum.href;
        });
      },
      (error) => {
        place.textContent = `The chart could not be drawn (${error.message}). The table beside it has every number.`;
      },
    );
  }

  // A number out of a cell's text; what is none goes last, whatever the order.
  function figure(text) {
    const plain = text.trim().replaceAll(",", "").replace(/%$/, "").replace(/^\[/, "");
    return /^[+-]?\d/.test(plain) ? parseFloat(plain) : NaN;
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending" && (column > 0 || head.hasAttribute("aria-sort"));
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const keyed = [...body.rows].map((row) => {
          const text = row.cells[column].textContent;
          return { row, text, number: figure(text) };
        });
        const numbers = keyed.some(({ number }) => !Number.isNaN(number));
        const sign = down ? -1 : 1;
        keyed.sort((a, b) => {
          if (!numbers) return sign * a.text.localeCompare(b.text);
          if (Number.isNaN(a.number) || Number.isNaN(b.number)) return Number.isNaN(a.number) - Number.isNaN(b.number);
          return sign * (a.number - b.number);
        });
        body.append(...keyed.map(({ row }) => row));
      });
    });
  }

  window.drawn = Promise.all([...document.querySelectorAll("script.spec")].map(draw));
  document.querySelectorAll("table.sortable").forEach(sortable);
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("main details:not([open])")];
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
  });
}
