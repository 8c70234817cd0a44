// The phase diagram of a cell: its predicted rate as a colour over two parameters, and a point that can be moved.
//
//   const phase = playPhase(element, onMove);
//   phase.show({cell, strength, input});      // strength and input are places in the table docs/assets/play_phases.js
window.playPhase = function (element, onMove) {
  "use strict";
  const { draw, ticks, logTicks, drawAxes } = window.playAxes;
  const { strengths, inputs, ...cells } = window.playPhases;
  const MARGIN = { left: 62, right: 20, top: 10, bottom: 42 }, HEIGHT = 360;
  let now = null, frame = null, places = null;

  element.classList.add("play-chart");
  element.innerHTML =
    '<p class="play-title"></p><div class="play-plot"><canvas aria-hidden="true"></canvas><svg aria-hidden="true"></svg></div>' +
    '<svg class="play-colours" aria-hidden="true" height="46"></svg>';
  const plot = element.querySelector(".play-plot"), canvas = element.querySelector("canvas");
  const svg = plot.querySelector("svg"), bar = element.querySelector(".play-colours");

  // --- colours: blue below 1 and orange above, which the colour-blind can tell apart, with a jump of lightness at 1 ---

  const STOPS = [[0, [8, 48, 107]], [0.5, [50, 120, 185]], [0.8, [130, 185, 220]], [1, [226, 238, 248]],
    [1, [253, 184, 120]], [1.1, [230, 110, 30]], [1.5, [150, 50, 0]]];

  function colour(rate) {
    const next = STOPS.findIndex(([end], k) => k > 0 && rate < end);
    if (next < 0) return STOPS[STOPS.length - 1][1];
    const [low, from] = STOPS[next - 1], [high, to] = STOPS[next];
    return from.map((value, k) => value + ((to[k] - value) * (rate - low)) / (high - low));
  }

  // --- the table ------------------------------------------------------------------------------------------------------

  const rateAt = (row, column) => cells[now.cell].rate[row][column] / 1e4;

  // The place of a value between the points of an axis: the point below it, and the share of the way to the next.
  function between(points, value, map) {
    const above = points.findIndex((point) => point > value);
    const below = above < 0 ? points.length - 2 : Math.max(above - 1, 0);
    return [below, (map(value) - map(points[below])) / (map(points[below + 1]) - map(points[below]))];
  }

  function fill() {
    const wide = Math.round(frame.right - frame.left), tall = Math.round(frame.bottom - frame.top);
    canvas.width = wide;
    canvas.height = tall;
    Object.assign(canvas.style, { left: `${frame.left}px`, top: `${frame.top}px`, width: `${wide}px`, height: `${tall}px` });
    const image = new ImageData(wide, tall);
    const columns = Array.from({ length: wide }, (_, x) => between(strengths, places.strength(frame.left + x + 0.5), (v) => v));
    for (let y = 0; y < tall; y++) {
      const [row, up] = between(inputs, places.input(frame.top + y + 0.5), Math.log);
      columns.forEach(([column, along], x) => {
        const low = rateAt(row, column) * (1 - along) + rateAt(row, column + 1) * along;
        const high = rateAt(row + 1, column) * (1 - along) + rateAt(row + 1, column + 1) * along;
        image.data.set([...colour(low * (1 - up) + high * up), 255], 4 * (y * wide + x));
      });
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  // The line on which the rate is 1: a piece in each triangle of the grid that it crosses.
  function boundary() {
    let text = "";
    const point = (row, column) => ({ x: places.x(strengths[column]), y: places.y(inputs[row]), rate: rateAt(row, column) - 1 });
    const crossing = (a, b) => {
      const share = a.rate / (a.rate - b.rate);
      return `${(a.x + share * (b.x - a.x)).toFixed(1)},${(a.y + share * (b.y - a.y)).toFixed(1)}`;
    };
    for (let row = 0; row + 1 < inputs.length; row++) {
      for (let column = 0; column + 1 < strengths.length; column++) {
        const corners = [point(row, column), point(row, column + 1), point(row + 1, column + 1), point(row + 1, column)];
        for (const [a, b, c] of [[0, 1, 2], [0, 2, 3]].map((places) => places.map((k) => corners[k]))) {
          const ends = [[a, b], [b, c], [c, a]].filter(([one, other]) => one.rate < 0 !== other.rate < 0);
          if (ends.length === 2) text += `M${crossing(...ends[0])}L${crossing(...ends[1])}`;
        }
      }
    }
    return text;
  }

  function render() {
    if (now === null) return;
    const width = Math.max(plot.clientWidth, 240);
    frame = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: HEIGHT - MARGIN.bottom };
    const [first, last] = [strengths[0], strengths[strengths.length - 1]];
    const [low, high] = [Math.log(inputs[0]), Math.log(inputs[inputs.length - 1])];
    const wide = frame.right - frame.left, tall = frame.bottom - frame.top;
    places = {
      x: (strength) => frame.left + (wide * (strength - first)) / (last - first),
      y: (input) => frame.bottom - (tall * (Math.log(input) - low)) / (high - low),
      strength: (x) => first + ((last - first) * (x - frame.left)) / wide,
      input: (y) => Math.exp(low + ((high - low) * (frame.bottom - y)) / tall),
    };
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", HEIGHT);
    svg.replaceChildren();
    fill();
    drawAxes(svg, frame, places, {
      xTicks: ticks(first, last, Math.max(3, Math.floor(wide / 55))).list, yTicks: logTicks(inputs[0], inputs[inputs.length - 1]),
      xLabel: now.xLabel, yLabel: "input, root mean square",
    });
    draw(svg, "path", { class: "play-boundary", d: boundary() });
    draw(svg, "text", { class: "play-region", x: frame.left + 12, y: frame.top + 22 }, "settles");
    draw(svg, "text", { class: "play-region", x: frame.right - 12, y: frame.bottom - 12, "text-anchor": "end" }, "does not settle");
    draw(svg, "g", { class: "here" });
    colourBar(width);
    mark();
  }

  function colourBar(width) {
    const left = MARGIN.left, right = width - MARGIN.right, most = 1.5;
    const place = (rate) => left + ((right - left) * rate) / most;
    bar.setAttribute("width", width);
    bar.replaceChildren();
    for (let x = left; x < right; x += 2) {
      const shade = colour((most * (x + 1 - left)) / (right - left)).map(Math.round);
      draw(bar, "rect", { x, y: 2, width: Math.min(2.5, right - x), height: 10, fill: `rgb(${shade})` });
    }
    draw(bar, "line", { class: "play-boundary", x1: place(1), x2: place(1), y1: 0, y2: 14 });
    for (const { value, label } of ticks(0, most, 3).list) {
      draw(bar, "text", { class: "tick", x: place(value), y: 26, "text-anchor": "middle" }, label);
    }
    draw(bar, "text", { class: "label", x: (left + right) / 2, y: 42, "text-anchor": "middle" }, "rate: factor of a small error in each step");
  }

  function mark() {
    const here = svg.querySelector(".here"), x = places.x(strengths[now.strength]), y = places.y(inputs[now.input]);
    here.replaceChildren();
    draw(here, "circle", { class: "play-here-rim", cx: x, cy: y, r: 8 });
    draw(here, "circle", { class: "play-here", cx: x, cy: y, r: 5 });
  }

  const nearest = (points, value, map) =>
    points.reduce((best, point, k) => (Math.abs(map(point) - map(value)) < Math.abs(map(points[best]) - map(value)) ? k : best), 0);

  function move(event) {
    if (now === null || !(event.buttons & 1 || event.type === "click")) return;
    const box = svg.getBoundingClientRect();
    onMove({
      strength: nearest(strengths, places.strength(event.clientX - box.left), (v) => v),
      input: nearest(inputs, places.input(event.clientY - box.top), Math.log),
    });
  }

  plot.addEventListener("click", move);
  plot.addEventListener("pointermove", move);
  new ResizeObserver(render).observe(plot);

  return {
    show({ cell, strength, input, title, xLabel }) {
      const same = now !== null && now.cell === cell && places !== null;
      now = { cell, strength, input, xLabel };
      element.querySelector(".play-title").textContent = title;
      if (same) mark();
      else render();
    },
  };
};

// The answer at a place, in sentences: whether it settles, the rate, and what both mean. Above a rate of 0.9 networks of
// some hundred units differ from wide ones.
window.playPhase.answer = function (rate, steps) {
  "use strict";
  return [
    steps ? `Settles in about ${steps} steps.` : "Does not settle.",
    ` Rate ${rate.toFixed(3)} per step. `,
    steps ? "After them the state changes by less than a thousandth of its size." : "Small errors do not shrink.",
    steps && rate > 0.9 ? " Narrow networks settle more slowly here, or not at all: see width= in Will it settle?" : "",
  ];
};
