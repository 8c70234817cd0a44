// Charts of the page Play, drawn by uPlot (docs/assets/vendor) in the colours of the theme; values are read by pointer,
// touch and arrow keys.
//
//   const chart = playChart(element, {title, xLabel, yLabel, xName, formatX, value, series, ...options of uPlot});
//   chart.show([x, ...columns], summary);
//
// A series is {id, label, kind}: the id has a colour in docs/assets/play.css; the kind is "line" (if not given) or a mark.
// `value(value, series, k)` is what the legend says at the k-th x.
window.playChart = (function () {
  "use strict";
  const HEIGHT = 280, FONT = "12px sans-serif";
  const minus = (text) => String(text).replace("-", "−");
  const colour = (name) => getComputedStyle(document.getElementById("playground")).getPropertyValue(`--${name}`).trim();
  const LINES = { deq: { width: 6, alpha: 0.55 }, papers: { width: 2, dash: [8, 5] }, injected: { width: 3, dash: [2, 4] }, plain: { width: 1.5 } };
  // Lines of a mark around its place, as pairs of ends; rings and dots are circles with a radius.
  const STROKES = { cross: [[-2.5, -2.5, 2.5, 2.5], [-2.5, 2.5, 2.5, -2.5]], tick: [[0, -4, 0, 4]] }, RADII = { ring: 3, dot: 1 };

  const marks = (kind) => (chart, index) => {
    const path = new Path2D(), pixel = devicePixelRatio, radius = RADII[kind] * pixel;
    chart.data[index].forEach((value, k) => {
      if (value === null) return;
      const x = chart.valToPos(chart.data[0][k], "x", true), y = chart.valToPos(value, "y", true);
      for (const [left, top, right, bottom] of STROKES[kind] ?? []) {
        path.moveTo(x + left * pixel, y + top * pixel);
        path.lineTo(x + right * pixel, y + bottom * pixel);
      }
      if (!radius) return;
      path.moveTo(x + radius, y);
      path.arc(x, y, radius, 0, 2 * Math.PI);
    });
    return { stroke: path, flags: 0 };
  };

  const series = ({ id, label, kind }, value) => ({
    label, stroke: () => colour(id), points: { show: false },
    ...(kind ? { paths: marks(kind), width: kind === "tick" ? 2.5 : 1 } : LINES[id]),
    value: (chart, y, index, k) => (k == null ? "" : value(y, index - 1, k)),
  });

  const axis = (label, more) => ({
    label, font: FONT, labelFont: FONT, labelSize: 22, stroke: () => colour("ink"), grid: { stroke: () => colour("faint"), width: 1 },
    ticks: { stroke: () => colour("faint"), width: 1 }, values: (chart, places) => places.map((place) => (place === null ? "" : minus(place))), ...more,
  });

  // A chart of uPlot that follows the width of its element and the theme.
  function responsive(element, options, data) {
    const chart = new uPlot({ width: Math.max(element.clientWidth, 240), height: HEIGHT, ...options }, data, element);
    new ResizeObserver(() => chart.setSize({ width: Math.max(element.clientWidth, 240), height: chart.height })).observe(element);
    new MutationObserver(() => chart.redraw()).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
    return chart;
  }

  function readable(chart, title) {
    const { over } = chart, hide = () => chart.setCursor({ left: -10, top: -10 });
    Object.assign(over, { tabIndex: 0, role: "group", ariaLabel: `Chart: ${title}. Left and right arrows read its values.` });
    chart.root.querySelector(".u-legend").ariaLive = "polite";
    over.addEventListener("blur", hide);
    over.addEventListener("pointermove", (event) =>
      event.pointerType === "touch" && chart.setCursor({ left: event.offsetX, top: event.offsetY }));
    over.addEventListener("keydown", (event) => {
      const x = chart.data[0], last = x.length - 1, here = chart.cursor.idx ?? Math.floor(last / 2);
      const to = { ArrowRight: here + 1, ArrowLeft: here - 1, PageUp: here + 10, PageDown: here - 10, Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined) return;
      event.preventDefault();
      chart.setCursor({ left: chart.valToPos(x[Math.min(Math.max(to, 0), last)], "x"), top: over.clientHeight / 2 });
    });
  }

  function playChart(element, { title, xLabel, yLabel, xName, formatX, value, series: listed, xAxis, yAxis, ...options }) {
    element.classList.add("play-chart");
    element.innerHTML = `<p class="play-title">${title}</p><div></div><p class="play-summary"></p>`;
    const chart = responsive(element.children[1], {
      padding: [10, 16, 0, 0], cursor: { y: false, drag: { x: false, y: false } },
      legend: { markers: { width: 0, fill: () => "" } },
      axes: [axis(xLabel, { size: 34, ...xAxis }), axis(yLabel, { size: 52, ...yAxis })],
      series: [{ label: xName, value: (_, x) => (x == null ? "" : formatX(x)) }, ...listed.map((one) => series(one, value))],
      ...options,
    }, [[], ...listed.map(() => [])]);
    readable(chart, title);
    chart.root.querySelectorAll(".u-series").forEach((row, k) => k && row.classList.add(listed[k - 1].id, listed[k - 1].kind ?? "line"));
    return {
      chart,
      show(data, summary) {
        element.lastChild.textContent = summary;
        chart.setData(data);
      },
    };
  }

  return Object.assign(playChart, { minus, colour, axis, responsive });
})();
