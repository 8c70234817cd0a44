// A chart as SVG that answers to the pointer, to touch and to the arrow keys.
//
//   const chart = playChart(element, {title, xName, xLabel, yLabel, logarithmic, formatX, formatY});
//   chart.show({x: [...], series: [{id, label, y: [...], kind}], rug: [...], line, range, summary, yLabel});
//
// All series share the points x. Each has the colour and the dashes of its id, which docs/assets/play.css has; `kind` is
// "line" (if not given) or a mark: "ring", "dot" or "cross". A rug is {x, id, label, many}: short marks on the axis, one
// row of them for each series, a circle where `many` values are in one place. `line` is a vertical line at an x, `range`
// what the vertical axis must hold.
window.playChart = function (element, options) {
  "use strict";
  const { draw, ticks, logTicks, drawAxes } = window.playAxes;
  const MARGIN = { left: 62, right: 20, top: 10, bottom: 42 };
  const HEIGHT = 280, ROW = 9;
  let shown = null, index = null, places = null, frame = null;

  element.classList.add("play-chart");
  element.innerHTML =
    '<p class="play-title"></p><ul class="play-legend"></ul>' +
    '<div class="play-plot" tabindex="0" role="group"><svg aria-hidden="true"></svg><div class="play-tip" hidden></div></div>' +
    '<p class="play-said" aria-live="polite"></p><p class="play-summary"></p>';
  const part = (name) => element.querySelector(`.play-${name}`);
  const plot = part("plot"), svg = element.querySelector("svg"), tip = part("tip");
  part("title").textContent = options.title;
  plot.setAttribute("aria-label", `Chart: ${options.title}. Left and right arrows read its values.`);

  function scales() {
    const map = options.logarithmic ? Math.log : (x) => x;
    const all = [...shown.x, ...shown.rug.map((mark) => mark.x)];
    const [left, right] = [Math.min(...all), Math.max(...all)];
    const pad = options.logarithmic ? 0 : 0.02 * (right - left);
    const start = map(left) - pad, span = map(right) + pad - start || 1;
    const { low, high, list: yTicks } = ticks(...shown.range, 5, true);
    const wide = frame.right - frame.left, tall = frame.floor - frame.top;
    return {
      x: (value) => frame.left + (wide * (map(value) - start)) / span,
      y: (value) => frame.top + tall * (1 - (value - low) / (high - low || 1)),
      xTicks: options.logarithmic ? logTicks(left, right) : ticks(left - pad, right + pad, Math.max(3, Math.floor(wide / 55))).list,
      yTicks,
    };
  }

  // A mark of a scatter plot around a point, as the text of a path.
  const MARKS = {
    ring: (x, y) => `M${x - 3},${y}a3,3 0 1,0 6,0a3,3 0 1,0 -6,0`,
    dot: (x, y) => `M${x - 1},${y}a1,1 0 1,0 2,0a1,1 0 1,0 -2,0`,
    cross: (x, y) => `M${x - 2.5},${y - 2.5}l5,5m0,-5l-5,5`,
  };
  const pixel = (value) => Math.round(10 * value) / 10;

  function path(series) {
    let text = "", pen = "M";
    const mark = MARKS[series.kind];
    shown.x.forEach((x, k) => {
      const y = series.y[k];
      if (y === null || !Number.isFinite(y)) pen = "M";
      else if (mark) text += mark(pixel(places.x(x)), pixel(places.y(y)));
      else {
        text += `${pen}${places.x(x).toFixed(2)},${places.y(y).toFixed(2)}`;
        pen = "L";
      }
    });
    return text;
  }

  const row = (id) => frame.floor + ROW * (0.5 + shown.series.findIndex((one) => one.id === id)) + 3;

  function render() {
    if (shown === null) return;
    const width = Math.max(plot.clientWidth, 240), bottom = HEIGHT - MARGIN.bottom;
    frame = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom, floor: bottom };
    if (shown.rug.length) frame.floor = bottom - ROW * shown.series.length - 6;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", HEIGHT);
    svg.replaceChildren();
    places = scales();
    drawAxes(svg, frame, places, { ...places, xLabel: options.xLabel, yLabel: shown.yLabel ?? options.yLabel });
    if (shown.line !== undefined) {
      draw(svg, "line", { class: "play-marker", x1: places.x(shown.line), x2: places.x(shown.line), y1: frame.top, y2: bottom });
    }
    for (const series of shown.series) draw(svg, "path", { class: `play-${series.kind ?? "line"} ${series.id}`, d: path(series) });
    for (const mark of shown.rug) {
      const x = places.x(mark.x), y = row(mark.id);
      if (mark.many) draw(svg, "circle", { class: `play-dot-rug ${mark.id}`, cx: x, cy: y, r: 4 });
      else draw(svg, "line", { class: `play-rug ${mark.id}`, x1: x, x2: x, y1: y - 4, y2: y + 4 });
    }
    draw(svg, "g", { class: "cursor" });
    point();
  }

  // Show the values at the chosen point: a line, a dot on each series, and the numbers beside it.
  function point() {
    const cursor = svg.querySelector(".cursor");
    cursor.replaceChildren();
    tip.hidden = index === null;
    if (index === null) return;
    index = Math.min(Math.max(index, 0), shown.stops.length - 1);
    const stop = shown.stops[index], x = places.x(stop.x);
    draw(cursor, "line", { class: "play-cursor", x1: x, x2: x, y1: frame.top, y2: frame.bottom });
    if (stop.k !== undefined) {
      for (const series of shown.series) {
        const y = series.y[stop.k];
        if (y !== null && Number.isFinite(y)) draw(cursor, "circle", { class: `play-point ${series.id}`, cx: x, cy: places.y(y), r: 4 });
      }
    }
    const named = shown.series.filter((series) => !series.guide);
    const rows = stop.mark ? [stop.mark.label] : named.map((series) =>
      `${series.label}: ${series.y[stop.k] === null ? "–" : options.formatY(series.y[stop.k])}`);
    const head = `${options.xName} ${options.formatX(stop.x)}`;
    tip.replaceChildren(...[head, ...rows].map((text, k) => {
      const line = document.createElement(k === 0 ? "strong" : "span");
      if (k > 0) line.className = stop.mark ? stop.mark.id : named[k - 1].id;
      line.textContent = text;
      return line;
    }));
    const room = plot.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(x + 12 > room ? x - tip.offsetWidth - 12 : x + 12, room))}px`;
    part("said").textContent = [head, ...rows].join("; ");
  }

  function nearest(event) {
    const x = event.clientX - svg.getBoundingClientRect().left;
    const y = event.clientY - svg.getBoundingClientRect().top;
    let best = 0;
    // Marks of the rug are chosen in its rows, points of the series above them.
    const inRug = shown.rug.length > 0 && y > frame.floor;
    const distance = (one) => Math.abs(places.x(one.x) - x) + (one.mark ? Math.abs(row(one.mark.id) - y) : 0) +
      (Boolean(one.mark) === inRug ? 0 : 1e4);
    shown.stops.forEach((stop, k) => {
      if (distance(stop) < distance(shown.stops[best])) best = k;
    });
    index = best;
    point();
  }

  function hide() {
    index = null;
    if (shown) point();
  }

  plot.addEventListener("pointermove", (event) => shown && nearest(event));
  plot.addEventListener("pointerdown", (event) => shown && nearest(event));
  plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && document.activeElement !== plot && hide());
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    if (!shown) return;
    const last = shown.stops.length - 1;
    const here = index === null ? Math.floor(last / 2) : index;
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, PageUp: here + 10, PageDown: here - 10, Home: 0, End: last }[event.key];
    if (event.key === "Escape") return hide();
    if (to === undefined) return;
    event.preventDefault();
    index = Math.min(Math.max(to, 0), last);
    point();
  });
  new ResizeObserver(render).observe(plot);

  return {
    show(what) {
      shown = { rug: [], summary: "", ...what };
      // Where the cursor may stand: points of the curves, and marks of the rug.
      const every = Math.max(1, Math.round(shown.x.length / 60));
      shown.stops = [
        ...shown.x.map((x, k) => ({ x, k })).filter((stop) => stop.k % every === 0),
        ...shown.rug.map((mark) => ({ x: mark.x, mark })),
      ].sort((a, b) => a.x - b.x);
      part("legend").replaceChildren(...shown.series.map((series) => {
        const item = document.createElement("li"), wide = series.kind ? 12 : 30;
        const sample = draw(item, "svg", { width: wide, height: 12, "aria-hidden": "true" });
        draw(sample, "path", { class: `play-${series.kind ?? "line"} ${series.id}`, d: series.kind ? MARKS[series.kind](6, 6) : "M1,6L29,6" });
        item.append(series.label);
        return item;
      }));
      part("summary").textContent = shown.summary;
      render();
    },
    values: () => shown,
  };
};
