// A line chart as SVG that answers to the pointer, to touch and to the arrow keys.
//
//   const chart = playChart(element, {title, xLabel, yLabel, logarithmic, formatX, formatY});
//   chart.show({x: [...], series: [{id, label, y: [...]}], marks: [...], range: [low, high], summary, yLabel});
//
// All series share the points x. Each has the colour and the dashes of its id, which docs/assets/play.css has.
// Marks are {x, label, id, kind: "line" | "stem", height}: vertical lines, or stems that stand on the axis.
window.playChart = function (element, options) {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 52, right: 12, top: 10, bottom: 40 };
  const HEIGHT = 270;
  let shown = null, index = null, places = null;

  element.classList.add("play-chart");
  element.innerHTML =
    '<p class="play-title"></p><ul class="play-legend"></ul>' +
    '<div class="play-plot" tabindex="0" role="group"><svg aria-hidden="true"></svg><div class="play-tip" hidden></div></div>' +
    '<p class="play-said" aria-live="polite"></p><p class="play-summary"></p>';
  const part = (name) => element.querySelector(`.play-${name}`);
  const plot = part("plot"), svg = element.querySelector("svg"), tip = part("tip");
  part("title").textContent = options.title;
  plot.setAttribute("aria-label", `Chart: ${options.title}. Left and right arrows read its values.`);

  function draw(name, attributes, parent = svg, text = null) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return parent.appendChild(node);
  }

  // Round numbers between two ends: steps of 1, 2 or 5 times a power of ten.
  function ticks(low, high, wanted) {
    const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  function powerTicks(low, high) {
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
      for (const factor of [1, 2, 5]) if (factor * power >= low * 0.999 && factor * power <= high * 1.001) found.push(factor * power);
    }
    return found;
  }

  function scales(width) {
    const map = options.logarithmic ? Math.log : (x) => x;
    const all = [...shown.x, ...shown.marks.map((mark) => mark.x)];
    const left = Math.min(...all), right = Math.max(...all);
    const pad = options.logarithmic ? 0 : 0.02 * (right - left);
    const start = map(left) - pad, span = map(right) + pad - start || 1;
    const [low, high] = shown.range;
    const inner = width - MARGIN.left - MARGIN.right, tall = HEIGHT - MARGIN.top - MARGIN.bottom;
    return {
      x: (value) => MARGIN.left + (inner * (map(value) - start)) / span,
      y: (value) => MARGIN.top + tall * (1 - (Math.min(Math.max(value, low), high) - low) / (high - low || 1)),
      xTicks: options.logarithmic ? powerTicks(left, right) : ticks(left - pad, right + pad, Math.max(4, Math.floor(width / 70))),
      yTicks: ticks(low, high, 5),
    };
  }

  function axes(scale, width) {
    const bottom = HEIGHT - MARGIN.bottom;
    for (const value of scale.yTicks) {
      draw("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: scale.y(value), y2: scale.y(value) });
      draw("text", { class: "tick", x: MARGIN.left - 6, y: scale.y(value) + 4, "text-anchor": "end" }, svg, options.formatY(value, true));
    }
    for (const value of scale.xTicks) {
      draw("line", { class: "tick", x1: scale.x(value), x2: scale.x(value), y1: bottom, y2: bottom + 4 });
      draw("text", { class: "tick", x: scale.x(value), y: bottom + 17, "text-anchor": "middle" }, svg, options.formatX(value, true));
    }
    draw("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom });
    draw("text", { class: "label", x: (MARGIN.left + width - MARGIN.right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, svg, options.xLabel);
    const middle = (MARGIN.top + bottom) / 2;
    draw("text", { class: "label", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, svg, shown.yLabel ?? options.yLabel);
  }

  function path(scale, series) {
    let text = "", pen = "M";
    shown.x.forEach((x, k) => {
      const y = series.y[k];
      if (y === null || !Number.isFinite(y)) pen = "M";
      else {
        text += `${pen}${scale.x(x).toFixed(2)},${scale.y(y).toFixed(2)}`;
        pen = "L";
      }
    });
    return text;
  }

  function render() {
    if (shown === null) return;
    const width = Math.max(plot.clientWidth, 240);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", HEIGHT);
    svg.replaceChildren();
    const scale = (places = scales(width));
    axes(scale, width);
    const bottom = HEIGHT - MARGIN.bottom;
    for (const mark of shown.marks.filter((one) => one.kind === "line")) {
      draw("line", { class: "play-marker", x1: scale.x(mark.x), x2: scale.x(mark.x), y1: MARGIN.top, y2: bottom });
    }
    for (const series of shown.series) draw("path", { class: `play-line ${series.id}`, d: path(scale, series) });
    for (const mark of shown.marks.filter((one) => one.kind === "stem")) {
      const top = bottom - (bottom - MARGIN.top) * mark.height;
      draw("line", { class: `play-stem ${mark.id}`, x1: scale.x(mark.x), x2: scale.x(mark.x), y1: bottom, y2: top });
      draw("circle", { class: `play-dot ${mark.id}`, cx: scale.x(mark.x), cy: top, r: 4 });
    }
    draw("g", { class: "cursor" });
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
    draw("line", { class: "play-cursor", x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }, cursor);
    if (stop.k !== undefined) {
      for (const series of shown.series) {
        const y = series.y[stop.k];
        if (y !== null && Number.isFinite(y)) draw("circle", { class: `play-dot ${series.id}`, cx: x, cy: places.y(y), r: 4 }, cursor);
      }
    }
    const rows = stop.mark ? [stop.mark.label] : shown.series.map((series) =>
      `${series.label}: ${series.y[stop.k] === null ? "–" : options.formatY(series.y[stop.k])}`);
    const head = `${options.xName} ${options.formatX(stop.x)}`;
    tip.replaceChildren(...[head, ...rows].map((text, k) => {
      const line = document.createElement(k === 0 ? "strong" : "span");
      if (k > 0) line.className = stop.mark ? stop.mark.id : shown.series[k - 1].id;
      line.textContent = text;
      return line;
    }));
    const room = plot.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(x + 12 > room ? x - tip.offsetWidth - 12 : x + 12, room))}px`;
    part("said").textContent = [head, ...rows].join("; ");
  }

  function nearest(event) {
    const x = event.clientX - svg.getBoundingClientRect().left;
    let best = 0;
    shown.stops.forEach((stop, k) => {
      // A mark is easier to hit than a point of a curve.
      const distance = (one) => Math.abs(places.x(one.x) - x) - (one.mark ? 5 : 0);
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
      shown = { marks: [], summary: "", ...what };
      // Where the cursor may stand: points of the curves, and marks that have something to say.
      const every = Math.max(1, Math.round(shown.x.length / 60));
      shown.stops = [
        ...shown.x.map((x, k) => ({ x, k })).filter((stop) => stop.k % every === 0),
        ...shown.marks.filter((mark) => mark.label).map((mark) => ({ x: mark.x, mark })),
      ].sort((a, b) => a.x - b.x);
      part("legend").replaceChildren(...shown.series.map((series) => {
        const item = document.createElement("li");
        const sample = draw("svg", { width: 30, height: 10, "aria-hidden": "true" }, item);
        draw("path", { class: `play-line ${series.id}`, d: "M1,5L29,5" }, sample);
        item.append(series.label);
        return item;
      }));
      part("summary").textContent = shown.summary;
      render();
    },
    values: () => shown,
  };
};
